"""The load-based policy: percents of a cluster for each class, as Scoot counts them. policy.py has one round."""

from rainbow.scheduling.load_based.policy import LoadBased

__all__ = ["LoadBased"]
