"""Slots that lie free of each other: a request said by amounts alone, for policies that share workers by capacity.

Only what amounts say completely is turned into them: slots of leaves (cores, GPUs, memory), each slot anywhere or on
a worker of its own. Everything else (sockets, constraints, subsystem needs, exclusive parts) is left to the matcher.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from rainbow.jobspec import Request, Resource
from rainbow.jobspec.request import Count
from rainbow.scheduling.policy import SlotsView

MOST_COUNTS = 1_000


def loose_slots(
    request: Request, worker_type: str, inside: Collection[str], outside: Collection[str]
) -> tuple[SlotsView, ...]:
    """Return a request's slots by amounts; none if amounts do not say all of it.

    `inside` are the types workers hold, `outside` those the cluster holds beside them.
    """
    if len(request.variants) != 1 or request.constraint is not None:
        return ()
    found = [_slots(tree, worker_type, set(inside) - {worker_type}, set(outside)) for tree in request.resources]
    return tuple(slots for slots in found if slots is not None) if None not in found else ()


def _slots(tree: Resource, worker_type: str, inside: set[str], outside: set[str]) -> SlotsView | None:
    slot, parts, apart = tree, tree.children, False
    if tree.type == worker_type and not tree.exclusive and not tree.needs and len(tree.children) == 1:
        slot, apart = tree.children[0], True  # a worker that holds one slot
        parts = slot.children
        if not _one(tree.count) or not _one(slot.count):
            return None
    elif len(parts) == 1 and parts[0].type == worker_type and _plain(parts[0]) and _one(parts[0].count):
        parts, apart = parts[0].children, True  # a slot that holds one worker
    if not slot.is_slot or not parts or not all(_leaf(part, inside | outside) for part in parts):
        return None
    amounts: dict[str, int] = {}
    for part in parts:
        amounts[part.type] = amounts.get(part.type, 0) + part.count.min
    held = {kind: amount for kind, amount in amounts.items() if kind in inside}
    beside = {kind: amount for kind, amount in amounts.items() if kind not in inside}
    if not held:
        return None
    counts = _counts(slot.count)
    return SlotsView(slot.label, held, counts[0], counts[-1], counts, apart, beside)


def _plain(part: Resource) -> bool:
    return not part.exclusive and not part.needs and not part.unit


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
    found: list[int] = []
    value = count.min
    while value <= most and len(found) < MOST_COUNTS:
        found.append(value)
        value = {"+": value + count.operand, "*": value * count.operand}.get(count.operator) or min(
            value**count.operand, most + 1
        )
    return found
