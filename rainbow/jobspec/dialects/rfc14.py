"""Flux RFC 14 and its subset RFC 25 → Request; tasks may ask for subsystems by flat needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.attributes import task_needs
from rainbow.jobspec.dialects.common import (
    of_version,
    read_command,
    read_counts,
    read_environment,
    read_forests,
    request_of,
    with_needs,
)
from rainbow.jobspec.request import Need, Request, Resource, TaskSpec
from rainbow.jobspec.validation import Unread, check
from rainbow.jobspec.yaml_reader import step
from rainbow.text import shortened, unread


def read_rfc14(document: Mapping[str, Any]) -> Request:
    """Read a jobspec whose resources are a list and whose tasks name slots."""
    check(document, "rfc14")
    forests = read_forests(document["resources"], "/resources")
    known = [_slots(resources) for resources in forests]
    tasks = []
    needs: dict[str, tuple[Need, ...]] = {}
    for k, task in enumerate(document["tasks"]):
        tasks.append(_task(task, f"/tasks/{k}", known, k))
        requests = task_needs(task.get("resources", {}), f"/tasks/{k}/resources")
        needs[task["slot"]] = needs.get(task["slot"], ()) + requests
    variants = tuple(tuple(with_needs(resource, needs) for resource in resources) for resources in forests)
    attributes, warnings = document["attributes"], tuple(shortened(_unread(document), lambda result: unread(*result)))
    warnings = (*of_version(document), *warnings)
    return request_of(variants, tuple(tasks), attributes, "/attributes", dialect="rfc14", warnings=warnings)


def _unread(document: Mapping[str, Any]) -> Iterator[Unread]:
    """Yield what RFC 14 allows and nothing here acts on."""
    stack = [(part, f"/resources/{k}") for k, part in enumerate(document["resources"])]
    while stack:
        part, at = stack.pop()
        if "id" in part:
            yield f"{at}/id", "id", ()
        stack.extend((child, f"{at}/with/{k}") for k, child in enumerate(part.get("with", [])))
    for k, task in enumerate(document["tasks"]):
        if "distribution" in task:
            yield f"/tasks/{k}/distribution", "distribution", ()
        others = [key for key in task.get("attributes") or {} if key != "environment"]
        yield from ((f"/tasks/{k}/attributes/{step(key)}", key, ("environment",)) for key in others)


def _slots(resources: tuple[Resource, ...]) -> dict[str, set[str]]:
    """Map the labels of slots to the types of resources in them."""
    result: dict[str, set[str]] = {}
    for slot in (part for resource in resources for part in resource.walk() if part.is_slot):
        result.setdefault(slot.label, set()).update(part.type for part in slot.walk())
    return result


def _check_slot(label: str, known: Sequence[Mapping[str, set[str]]], pointer: str) -> None:
    """Refuse a slot that is in no alternative, or not in each of them: the task would have no place in the others."""
    if all(label in slots for slots in known):
        return
    there = dict.fromkeys(name for slots in known for name in slots)
    if label in there:
        text = f"slot {label!r} is not in every alternative; give all of them one label"
        raise JobspecError(text, pointer=pointer)
    raise JobspecError(
        f"slot {label!r} is not defined; defined slots: {', '.join(there)[:200] or 'none'}", pointer=pointer
    )


def _task(task: Mapping[str, Any], at: str, known: Sequence[Mapping[str, set[str]]], number: int) -> TaskSpec:
    _check_slot(task["slot"], known, f"{at}/slot")
    counts = read_counts(task["count"], f"{at}/count")
    kind = counts.get("per_resource", ("", 0))[0]
    if kind and not all(kind in slots[task["slot"]] for slots in known):
        raise JobspecError(f"slot {task['slot']} has no {kind} to count by", pointer=f"{at}/count/per_resource/type")
    own = (task.get("attributes") or {}).get("environment")
    return TaskSpec(
        name=f"task-{number}",
        command=read_command(task["command"], f"{at}/command"),
        slots=(task["slot"],),
        environment=read_environment(own, f"{at}/attributes/environment"),
        **counts,
    )
