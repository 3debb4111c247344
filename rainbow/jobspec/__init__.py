"""Jobspec text of any dialect → Request."""

from rainbow.jobspec.request import Condition, Constraint, Count, Need, Request, Resource, TaskSpec

__all__ = ["Condition", "Constraint", "Count", "Need", "Request", "Resource", "TaskSpec"]
