"""Flux RFC 14 and its subset RFC 25 → Request; tasks may ask for subsystems by flat needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.checking import check
from rainbow.jobspec.common import (
    labels,
    read_command,
    read_counts,
    read_environment,
    read_resource,
    request_of,
    with_needs,
)
from rainbow.jobspec.request import Request, TaskSpec
from rainbow.jobspec.wants import task_needs


def read_rfc14(document: Mapping[str, Any]) -> Request:
    """Read a jobspec whose resources are a list and whose tasks name slots."""
    check(document, "rfc14")
    resources = tuple(read_resource(r, f"/resources/{k}") for k, r in enumerate(document["resources"]))
    known = labels(resources)
    tasks = []
    for k, task in enumerate(document["tasks"]):
        tasks.append(_task(task, f"/tasks/{k}", known, k))
        needs = task_needs(task.get("resources", {}), f"/tasks/{k}/resources")
        resources = tuple(with_needs(resource, task["slot"], needs) for resource in resources)
    return request_of((resources,), tuple(tasks), document.get("attributes"), "/attributes", dialect="rfc14")


def _task(task: Mapping[str, Any], at: str, known: list[str], number: int) -> TaskSpec:
    if task["slot"] not in known:
        raise JobspecError(
            f"there is no slot {task['slot']!r}; there are: {', '.join(known) or 'none'}", pointer=f"{at}/slot"
        )
    own = (task.get("attributes") or {}).get("environment")
    return TaskSpec(
        name=f"task-{number}",
        command=read_command(task["command"], f"{at}/command"),
        slots=(task["slot"],),
        environment=read_environment(own, f"{at}/attributes/environment"),
        **read_counts(task.get("count"), f"{at}/count"),
    )
