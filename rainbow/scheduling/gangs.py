"""Gangs: tasks that start together; and slots as amounts, for policies that share workers by capacity.

Only what amounts say completely becomes amounts: slots of leaves (cores, GPUs, memory), each slot anywhere or on
a worker of its own. Everything else (sockets, constraints, subsystem needs, exclusive parts) is left to the matcher.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from rainbow.jobspec import Request, Resource, TaskSpec
from rainbow.jobspec.quantities import base_unit, quantity
from rainbow.jobspec.request import Count
from rainbow.matching import Measure, consumables, measures, types_in_workers
from rainbow.scheduling.snapshot import SlotsView

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.matching import Take
    from rainbow.scheduling.snapshot import Placement


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
        reserved = tuple(tree for tree in resources if tree.within or not labels or _labels(tree) & labels)
        if reserved and reserved not in variants:
            variants.append(reserved)
    return replace(request, variants=tuple(variants) or request.variants)


def _labels(tree: Resource) -> set[str]:
    return {part.label for part in tree.walk() if part.is_slot}


def placements(gang: Gang, take: Take) -> tuple[Placement, ...]:
    """Say for each task of a gang what it holds: {worker: {type: amount}}.

    What belongs to no task's slot goes to the first task. Tasks that share a slot share its space: the later
    ones list its workers with nothing of their own.
    """
    merged: list[dict[str, dict[str, int]]] = [{} for _ in gang.tasks]
    owners: dict[str, list[int]] = {}
    for _, alike in groupby(take.placed):
        slots = list(alike)  # most are one object, which costs no comparison
        label, held = slots[0]
        first, *others = owners.get(label) or owners.setdefault(label, _owners(gang, label))
        for worker, amounts in held.items():
            _add(merged[first].setdefault(worker, {}), amounts, len(slots))
            for k in others:
                merged[k].setdefault(worker, {})
    return tuple(merged)


Piece = TypeVar("Piece", bound="Labelled")


class Labelled(Protocol):
    """A part of what a gang holds, with the label of the slot it is for."""

    @property
    def label(self) -> str:
        """The label, "" for what is in no slot."""


def divided(gang: Gang, pieces: Iterable[Piece]) -> tuple[tuple[Piece, ...], ...]:
    """Say for each task of a gang which pieces are its own, by the same rule as placements."""
    owned: list[list[Piece]] = [[] for _ in gang.tasks]
    for piece in pieces:
        owned[_owners(gang, piece.label)[0]].append(piece)
    return tuple(map(tuple, owned))


def _owners(gang: Gang, label: str) -> list[int]:
    return [k for k, task in enumerate(gang.tasks) if not task.labels or label in task.labels] or [0]


def _add(held: dict[str, int], amounts: Mapping[str, int], times: int = 1) -> None:
    for kind, amount in amounts.items():
        held[kind] = held.get(kind, 0) + amount * times


def summed(placements: Iterable[Placement]) -> dict[str, dict[str, int]]:
    """Sum what tasks hold by worker and type."""
    result: dict[str, dict[str, int]] = {}
    for placement in placements:
        for worker, amounts in placement.items():
            _add(result.setdefault(worker, {}), amounts)
    return result


WHOLE = frozenset({"node", "host", "machine", "socket", "cluster", "rack"})  # what has cores though nobody says so


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


MOST_COUNTS = 1_000


def slots_on(cluster: Cluster, request: Request) -> tuple[SlotsView, ...]:
    """Return a request's slots by amounts as a cluster counts them; none where only the matcher can say all of it."""
    if cluster.levels == "strict":
        return ()
    inside, outside = types_in_workers(cluster), consumables(cluster)
    return loose_slots(request, cluster.worker_type, inside, outside.keys() - inside, measures(cluster))


def loose_slots(
    request: Request,
    worker_type: str,
    inside: Collection[str],
    outside: Collection[str],
    measures: Mapping[str, Measure] = MappingProxyType({}),
) -> tuple[SlotsView, ...]:
    """Return a request's slots by amounts in base units; none if amounts do not say all of it.

    `inside` are the types workers hold, `outside` those the cluster holds beside them; `measures` says how amounts of
    the types with units are counted.
    """
    if len(request.variants) != 1 or request.constraint is not None:
        return ()
    types = set(inside) - {worker_type}, set(outside)
    results = [_slots(tree, worker_type, *types, measures) for tree in request.resources]
    return tuple(slots for slots in results if slots is not None) if None not in results else ()


def _slots(
    tree: Resource, worker_type: str, inside: set[str], outside: set[str], measures: Mapping[str, Measure]
) -> SlotsView | None:
    slot, parts, count, apart = tree, tree.children, tree.count, False
    if tree.type == worker_type and _plain(tree) and len(parts) == 1:
        slot, apart = parts[0], True  # workers that hold a slot each
        parts = slot.children
        if not _one(slot.count):
            return None
    elif len(parts) == 1 and parts[0].type == worker_type and _plain(parts[0]) and _one(parts[0].count):
        parts, apart = parts[0].children, True  # a slot that holds one worker
    if not slot.is_slot or not parts or not all(_leaf(part, inside | outside) for part in parts):
        return None
    amounts: dict[str, int] = {}
    for part in parts:
        each = _each(part, measures.get(part.type, Measure("", 1)))
        if each is None:
            return None
        amounts[part.type] = amounts.get(part.type, 0) + part.count.min * each
    held = {kind: amount for kind, amount in amounts.items() if kind in inside}
    beside = {kind: amount for kind, amount in amounts.items() if kind not in inside}
    if not held:
        return None
    counts = _counts(count)
    return SlotsView(slot.label, held, counts[0], counts[-1], counts, apart, beside)


def _each(part: Resource, measure: Measure) -> int | None:
    """Return the base units of one unit of a request, None where its unit is of another quantity than the graph's."""
    if not part.unit:
        return measure.factor
    measured, factor = quantity(part.unit)
    return factor if base_unit(measured) == measure.unit else None


def _plain(part: Resource) -> bool:
    return not part.exclusive and not part.needs


def _leaf(part: Resource, known: set[str]) -> bool:
    return _plain(part) and not part.children and part.type in known and not part.is_slot


def _one(count: Count) -> bool:
    return (count.min, count.max) == (1, 1)


def _counts(count: Count) -> tuple[int, ...]:
    """Return the admissible counts, the first thousand of a long range; one without an end is met by its least."""
    if count.listed:
        return tuple(islice(count.listed, MOST_COUNTS))
    if count.max is None or count.max == count.min:
        return (count.min,)
    return tuple(islice(_grown(count, count.max), MOST_COUNTS))


def _grown(count: Count, most: int) -> Collection[int]:
    result: list[int] = []
    value = count.min
    while value <= most and len(result) < MOST_COUNTS:
        result.append(value)
        value = {"+": value + count.operand, "*": value * count.operand}.get(count.operator) or min(
            value**count.operand, most + 1
        )
    return result


def processes_at_least(request: Request, spec: TaskSpec, whole: int) -> tuple[int, int]:
    """Return (processes, cores) of a task when its request is met with the least counts.

    Of slots it may have alternatively, and of variants, those that give each process most cores. `whole` is how many
    cores a worker counts that is asked for without cores. A slot without any is one process's.
    """
    results = [
        _processes_and_cores(tree, spec, labels, whole)
        for tree in request.variants
        for labels in ([{label} for label in spec.slots] or [set[str]()])
    ]
    return min(results, key=lambda each: (each[0] / max(each[1], 1), each), default=(1, 1))


def _processes_and_cores(
    resources: Iterable[Resource], spec: TaskSpec, labels: set[str], whole: int
) -> tuple[int, int]:
    slots = [
        (resource, times)
        for tree in resources
        for resource, times in _counted(tree, 1)
        if resource.is_slot and (not labels or resource.label in labels)
    ]
    copies = sum(times for _, times in slots) or 1
    amounts: Counter[str] = Counter()
    for slot, times in slots:
        amounts.update(_amounts(slot, times, whole))
    cores = max(amounts["core"], copies)
    if spec.total is not None:
        return spec.total, cores
    if spec.per_resource is None:
        return copies * spec.per_slot, cores
    kind, each = spec.per_resource
    return max(1, amounts[kind]) * each, cores


def _counted(resource: Resource, times: int) -> Iterable[tuple[Resource, int]]:
    """Yield a request and all below it, with how many of each there are at least."""
    stack = [(resource, times * max(resource.count.min, 1))]
    while stack:
        one, many = stack.pop()
        yield one, many
        stack.extend((child, many * max(child.count.min, 1)) for child in one.children)


def _amounts(slot: Resource, slots: int, whole: int) -> Counter[str]:
    """Return how much of each type all slots hold; what is asked for whole, without cores, counts as a worker."""
    amounts: Counter[str] = Counter()
    for child in slot.children:
        held: Counter[str] = Counter()
        for resource, many in _counted(child, slots):
            held[resource.type] += many
        if not held["core"] and child.type in WHOLE:
            held["core"] = whole * slots * max(child.count.min, 1)
        amounts.update(held)
    return amounts
