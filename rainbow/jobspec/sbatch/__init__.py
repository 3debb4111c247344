"""Slurm's batch scripts: options and script → jobspec, and back."""

from rainbow.jobspec.sbatch.call import call_of
from rainbow.jobspec.sbatch.document import Surroundings, jobspec_of_call
from rainbow.jobspec.sbatch.options import GivenOptions
from rainbow.jobspec.sbatch.script import is_script, read_call, words_of_call

__all__ = ["GivenOptions", "Surroundings", "call_of", "is_script", "jobspec_of_call", "read_call", "words_of_call"]
