"""Grid Engine's dispatcher: priorities, reservations and backfilling over a resource diagram."""

from rainbow.scheduling.priority.policy import Priority

__all__ = ["Priority"]
