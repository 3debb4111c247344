"""Input of commands: files, settings, and jobs on the command line."""
