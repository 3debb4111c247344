"""Slurm's commands over any cluster: their words read, and what they print, without any input or output."""
