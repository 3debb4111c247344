"""Rainbow's original dialect.

The founding text's dialect → Request: a single `task:` that asks its slot's place for subsystems.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.attributes import task_needs
from rainbow.jobspec.dialects.common import (
    labels,
    read_command,
    read_counts,
    read_environment,
    read_resource,
    request_of,
    with_needs,
)
from rainbow.jobspec.request import SLOT, Condition, Need, Request, Resource, TaskSpec
from rainbow.jobspec.schema_validation import check, unknown_keys

Forest = tuple[Resource, ...]


def read_founding(document: Mapping[str, Any]) -> Request:
    """Read a jobspec with one `task`; without resources it is a slot that only has needs."""
    check(document, "founding")
    task = document["task"]
    warnings = list(unknown_keys(document, "founding"))
    slot = task.get("slot") or ""
    if "resources" in document:
        forest = tuple(read_resource(r, f"/resources/{k}") for k, r in enumerate(document["resources"]))
    else:
        forest = (Resource(SLOT, label=slot or "default"),)
        warnings.append("no resources are asked for")
    if slot and labels(forest) and slot not in labels(forest):
        raise JobspecError(f"there is no slot {slot!r}", pointer="/task/slot")
    asked = dict(task.get("resources", {}))
    alternatives = _storages(asked)
    needs = task_needs({key: value for key, value in asked.items() if value}, "/task/resources")
    forest = _add(forest, slot, needs)
    variants = tuple(_add(forest, slot, (need,)) for need in alternatives) or (forest,)
    command = read_command(task.get("command"), "/task/command")
    if not command:
        warnings.append("task 0 has no command")
    attributes, at = _attributes(document, task)
    spec = TaskSpec(
        name=task.get("name", "task-0"),
        command=command,
        slots=(slot,) if slot in labels(forest) else (),
        environment=read_environment(
            (task.get("attributes") or {}).get("environment"), "/task/attributes/environment"
        ),
        **read_counts(task.get("count"), "/task/count"),
    )
    return request_of(variants, (spec,), attributes, at, dialect="founding", warnings=tuple(warnings))


def _add(forest: Forest, slot: str, needs: tuple[Need, ...]) -> Forest:
    """Give needs to the task's slot; without a slot, to what stands at the top."""
    if slot in labels(forest):
        return tuple(with_needs(resource, {slot: needs}) for resource in forest)
    return tuple(replace(resource, needs=resource.needs + needs) for resource in forest)


def _storages(asked: dict[str, Any]) -> list[Need]:
    """Take `storage: [{priority, storage}]` out of what is asked: any one will do, the lowest number first."""
    needs: list[tuple[int, int, Need]] = []
    for subsystem, wanted in list(asked.items()):
        if not isinstance(wanted, Mapping) or not isinstance(wanted.get("storage"), list):
            continue
        asked[subsystem] = {key: value for key, value in wanted.items() if key != "storage"}
        for k, entry in enumerate(wanted["storage"]):
            pointer = f"/task/resources/{subsystem}/storage/{k}"
            if not isinstance(entry, Mapping) or not isinstance(entry.get("storage"), str):
                raise JobspecError("a storage names its type", pointer=pointer)
            priority = entry.get("priority", k)
            if isinstance(priority, bool) or not isinstance(priority, int):
                raise JobspecError("a priority is a whole number", pointer=f"{pointer}/priority")
            condition = Condition("match", {"field": "type", "value": entry["storage"]})
            needs.append((priority, k, Need(subsystem, (condition,))))
    return [need for _, _, need in sorted(needs, key=lambda found: found[:2])][:64]


def _attributes(document: Mapping[str, Any], task: Mapping[str, Any]) -> tuple[Any, str]:
    """Find the attributes under the task or at the top; those at the top win where both say something."""
    if document.get("attributes"):
        return {**(task.get("attributes") or {}), **document["attributes"]}, "/attributes"
    return task.get("attributes"), "/task/attributes"
