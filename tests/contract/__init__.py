"""One suite for each plug-in point, run over every implementation."""
