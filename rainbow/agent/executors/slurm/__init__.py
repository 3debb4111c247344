"""Executor `slurm`: jobs of a Slurm that may be shared with others.

status    what Slurm's commands print → states, reasons to wait, ends, and variables for selection
call      one call of sbatch: words, script, variables (the options are those of jobspec/sbatch/request.py)
handover  each run once, equal tasks as arrays
executor  starts the commands and keeps the runs
"""
