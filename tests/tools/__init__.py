"""Workflow tools, unmodified, over local clusters by Slurm's commands: `make tools`."""
