"""Slurm's commands at the service: which jobs they mean, and what they do."""
