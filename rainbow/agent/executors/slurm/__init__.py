"""Executor `slurm`: jobs of a Slurm that may be shared with others.

status    what squeue and scontrol print → states, reasons to wait, ends
estimate  what sinfo, squeue and sbatch --test-only print → variables for selection
call      one call of sbatch: words, script, variables (the options are those of jobspec/sbatch/request.py)
executor  starts the commands and keeps the runs
"""
