"""Executor `slurm`: jobs of a Slurm that may be shared with others.

request   what a task asks for → options of sbatch, or a refusal in words
status    what squeue and scontrol print → states, reasons to wait, ends
estimate  what sinfo, squeue and sbatch --test-only print → variables for selection
call      one call of sbatch: words, script, variables
executor  starts the commands and keeps the runs
"""
