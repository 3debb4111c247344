"""Jobspec text of any dialect → Request."""

from rainbow.jobspec.command import jobspec_of
from rainbow.jobspec.reading import parse_jobspec
from rainbow.jobspec.request import (
    Condition,
    Constraint,
    Count,
    Dependency,
    Elastic,
    Need,
    Request,
    Resource,
    TaskSpec,
)
from rainbow.jobspec.text import Limits

__all__ = [
    "Condition",
    "Constraint",
    "Count",
    "Dependency",
    "Elastic",
    "Limits",
    "Need",
    "Request",
    "Resource",
    "TaskSpec",
    "jobspec_of",
    "parse_jobspec",
]
