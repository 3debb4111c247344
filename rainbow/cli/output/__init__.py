"""Output of commands: tables, JSON and progress."""
