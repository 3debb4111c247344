"""Slurm's batch scripts: options and script → jobspec, and back."""

from rainbow.jobspec.sbatch.call import call_of
from rainbow.jobspec.sbatch.document import Caller, jobspec_of_call
from rainbow.jobspec.sbatch.options import Call
from rainbow.jobspec.sbatch.script import is_script, read_call, words_of_call

__all__ = ["Call", "Caller", "call_of", "is_script", "jobspec_of_call", "read_call", "words_of_call"]
