"""Commands that users of Slurm know: sbatch, and the lists of sacct and sinfo."""
