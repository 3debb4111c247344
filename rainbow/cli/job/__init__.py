"""Commands that change jobs."""
