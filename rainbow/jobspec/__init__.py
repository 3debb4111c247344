"""Jobspec text of any dialect → Request."""

from rainbow.jobspec.parse import jobspec_of, parse_jobspec
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
from rainbow.jobspec.yaml_reader import Limits

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
