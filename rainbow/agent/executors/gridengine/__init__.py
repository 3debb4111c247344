"""Executor `gridengine`: jobs of a Grid Engine that may be shared with others.

site      what its commands are called with, and what they print → rows, reasons to wait, ends
call      one call of qsub: words, and the script around what runs
executor  hands runs over, and watches them as the executor `slurm` does its own
"""
