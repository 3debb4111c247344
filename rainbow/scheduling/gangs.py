"""A jobspec's tasks as gangs: what starts together, and which part of the request it asks for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rainbow.jobspec import Request, Resource, TaskSpec

if TYPE_CHECKING:
    from rainbow.matching import Take
    from rainbow.scheduling.policy import Placement


@dataclass(frozen=True, slots=True)
class GangTask:
    """One task of a gang: `index` is its place among the job's tasks, `labels` the slots it runs in (none: all)."""

    index: int
    name: str
    spec: TaskSpec
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gang:
    """Tasks that start together or not at all; `request` is what they ask for."""

    number: int
    tasks: tuple[GangTask, ...]
    request: Request


def gangs(request: Request) -> tuple[Gang, ...]:
    """Divide a request's tasks into gangs.

    Entries of RFC 14 and of the founding text start together; those of the next generation are independent
    unless they share a group, and the replicas of a task are independent copies.
    """
    if request.together:
        tasks = tuple(GangTask(k, spec.name, spec, spec.slots) for k, spec in enumerate(request.tasks))
        return (Gang(0, tasks, request),) if tasks else ()
    grouped: dict[str, list[tuple[str, TaskSpec]]] = {}
    for k, spec in enumerate(request.tasks):
        copies = [""] if spec.replicas == 1 else [f"-{copy}" for copy in range(spec.replicas)]
        for copy in copies:
            key = f"group {spec.group}" if spec.group and len(copies) == 1 else f"task {k}{copy}"
            grouped.setdefault(key, []).append((spec.name + copy, spec))
    return tuple(_numbered(request, list(grouped.values())))


def _numbered(request: Request, grouped: list[list[tuple[str, TaskSpec]]]) -> Iterable[Gang]:
    index = 0
    parts: dict[frozenset[str], Request] = {}  # copies of a task ask for the same, and the matcher is asked once
    for number, named in enumerate(grouped):
        tasks = tuple(GangTask(index + k, name, spec, spec.slots) for k, (name, spec) in enumerate(named))
        index += len(tasks)
        labels = {label for task in tasks for label in task.labels} if all(task.labels for task in tasks) else set()
        key = frozenset(labels)
        if key not in parts:
            parts[key] = _part(request, labels)
        yield Gang(number, tasks, parts[key])


def only(gang: Gang, indexes: Collection[int]) -> Gang:
    """Return what is left of a gang when only some of its tasks must start again."""
    tasks = tuple(task for task in gang.tasks if task.index in indexes)
    labels = {label for task in tasks for label in task.labels} if all(task.labels for task in tasks) else set()
    return Gang(gang.number, tasks, _part(gang.request, labels))


def _part(request: Request, labels: set[str]) -> Request:
    """Keep the trees that hold one of the labels; no labels keep all."""
    variants = []
    for resources in request.variants:
        kept = tuple(tree for tree in resources if not labels or _labels(tree) & labels)
        if kept and kept not in variants:
            variants.append(kept)
    return replace(request, variants=tuple(variants) or request.variants)


def _labels(tree: Resource) -> set[str]:
    return {part.label for part in tree.walk() if part.is_slot}


def placements(gang: Gang, take: Take) -> tuple[Placement, ...]:
    """Say for each task of a gang what it holds: {worker: {type: amount}}.

    What belongs to no task's slot goes to the first task. Tasks that share a slot share its space: the later
    ones list its workers with nothing of their own.
    """
    merged: list[dict[str, dict[str, int]]] = [{} for _ in gang.tasks]
    for label, held in take.placed:
        owners = [k for k, task in enumerate(gang.tasks) if not task.labels or label in task.labels] or [0]
        for worker, amounts in held.items():
            _add(merged[owners[0]].setdefault(worker, {}), amounts)
            for k in owners[1:]:
                merged[k].setdefault(worker, {})
    return tuple(merged)


def _add(held: dict[str, int], amounts: Mapping[str, int]) -> None:
    for kind, amount in amounts.items():
        held[kind] = held.get(kind, 0) + amount


def processes(spec: TaskSpec, slots: int, placement: Placement, worker_type: str) -> int:
    """How many processes a task starts over its slots, or over what its placement holds (RFC 14 `count`)."""
    if spec.total is not None:
        return spec.total
    if spec.per_resource is None:
        return max(1, slots) * spec.per_slot
    kind, each = spec.per_resource
    workers = sum(1 for worker in placement if worker)
    held = workers if kind == worker_type else sum(amounts.get(kind, 0) for amounts in placement.values())
    return max(1, held) * each


def slots_of(labels: Sequence[str], take: Take) -> int:
    """How many slots with one of these labels (none: any) a take holds."""
    return sum(1 for label, _ in take.placed if label and (not labels or label in labels))
