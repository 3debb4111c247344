"""Jobs that are stored: shown, explained, suspended, ended."""
