"""The commands, a file for each noun or verb."""
