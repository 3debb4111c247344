"""Questions about what is stored, and what runs."""
