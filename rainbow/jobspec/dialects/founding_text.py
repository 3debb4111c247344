"""The founding text's dialect → Request: a single `task:` that asks its slot's place for subsystems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rainbow.errors import JobspecError, LimitError
from rainbow.jobspec.attributes import task_needs
from rainbow.jobspec.dialects.common import (
    MOST_VARIANTS,
    labels,
    of_version,
    read_command,
    read_counts,
    read_environment,
    read_forests,
    request_of,
    with_needs,
)
from rainbow.jobspec.request import SLOT, Condition, Need, Request, Resource, TaskSpec
from rainbow.jobspec.validation import check, unknown_keys
from rainbow.text import REFUSED

Forest = tuple[Resource, ...]


def read_founding(document: Mapping[str, Any]) -> Request:
    """Read a jobspec with one `task`; without resources it is a slot that only has needs."""
    check(document, "founding")
    task = document["task"]
    warnings = [*of_version(document), *unknown_keys(document, "founding")]
    slot = task.get("slot") or ""
    if "resources" in document:
        forests = read_forests(document["resources"], "/resources")
    else:
        forests = ((Resource(SLOT, label=slot or "default"),),)
        warnings.append("missing resources: the job requests none")
    if slot and any(labels(forest) and slot not in labels(forest) for forest in forests):
        raise JobspecError(f"slot {slot!r} is not defined", pointer="/task/slot")
    request = dict(task.get("resources", {}))
    alternatives = _storages(request)
    needs = task_needs({key: value for key, value in request.items() if value}, "/task/resources")
    forests = tuple(_add(forest, slot, needs) for forest in forests)
    variants = tuple(_add(forest, slot, (need,)) for need in alternatives for forest in forests) or forests
    if len(variants) > MOST_VARIANTS:
        raise LimitError(f"more than {MOST_VARIANTS} ways to choose", pointer="/resources", limit="variants")
    command = read_command(task.get("command"), "/task/command")
    if not command:
        warnings.append(f"task 0 has no command; {REFUSED}")
    attributes, at = _attributes(document, task)
    asked_at = "/resources" if "resources" in document else "/task"
    spec = TaskSpec(
        name=task.get("name", "task-0"),
        command=command,
        slots=(slot,) if slot in labels(forests[0]) else (),
        environment=read_environment(
            (task.get("attributes") or {}).get("environment"), "/task/attributes/environment"
        ),
        **read_counts(task.get("count"), "/task/count"),
    )
    return request_of(
        variants, (spec,), attributes, at, dialect="founding", warnings=tuple(warnings), asked_at=asked_at
    )


def _add(forest: Forest, slot: str, needs: tuple[Need, ...]) -> Forest:
    """Give needs to the task's slot; without a slot, to what stands at the top."""
    if slot in labels(forest):
        return tuple(with_needs(resource, {slot: needs}) for resource in forest)
    return tuple(replace(resource, needs=resource.needs + needs) for resource in forest)


def _storages(request: dict[str, Any]) -> list[Need]:
    """Take `storage: [{priority, storage}]` out of what is asked: any one will do, the lowest number first."""
    needs: list[tuple[int, int, Need]] = []
    for subsystem, requirement in list(request.items()):
        if not isinstance(requirement, Mapping) or not isinstance(requirement.get("storage"), list):
            continue
        request[subsystem] = {key: value for key, value in requirement.items() if key != "storage"}
        for k, entry in enumerate(requirement["storage"]):
            pointer = f"/task/resources/{subsystem}/storage/{k}"
            if not isinstance(entry, Mapping) or not isinstance(entry.get("storage"), str):
                raise JobspecError("a storage names its type", pointer=pointer)
            priority = entry.get("priority", k)
            if isinstance(priority, bool) or not isinstance(priority, int):
                raise JobspecError("a priority is a whole number", pointer=f"{pointer}/priority")
            condition = Condition("match", {"field": "type", "value": entry["storage"]})
            needs.append((priority, k, Need(subsystem, (condition,))))
    return [need for _, _, need in sorted(needs, key=lambda result: result[:2])][:64]


def _attributes(document: Mapping[str, Any], task: Mapping[str, Any]) -> tuple[Any, str]:
    """Find the attributes under the task or at the top; those at the top win where both say something."""
    if document.get("attributes"):
        return {**(task.get("attributes") or {}), **document["attributes"]}, "/attributes"
    return task.get("attributes"), "/task/attributes"
