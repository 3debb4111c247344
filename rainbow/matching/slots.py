"""Where slots are: a slot above the workers takes what is of worker level from one place.

A slot's host is the vertex matched by the request above it. If the host lies inside a worker, all of the slot
comes from below the host. If it lies above the workers, or there is none, the types of worker level come from
one worker (or from what lies outside every worker) and everything else from anywhere below the host.

A slot's needs belong to its host; without one to each worker it asks for, else to the place it takes from, else to
each vertex it takes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rainbow.matching.layout import OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rainbow.jobspec import Need, Resource
    from rainbow.matching.layout import Layout


class Parts(NamedTuple):
    """A slot's children by where they come from, and the needs that its place must meet."""

    placed: tuple[Resource, ...]  # from one place
    spread: tuple[Resource, ...]  # from anywhere below the host
    needs: tuple[Need, ...]
    originals: Mapping[int, int]  # number of a child here → its number in the slot

    @property
    def has_place(self) -> bool:
        """Tell whether each slot must be given a place."""
        return bool(self.placed or self.needs)


def parts(slot: Resource, layout: Layout, scope: int, hosted: bool) -> Parts:
    """Divide a slot found below `scope`; `hosted`: scope is the vertex of the request above the slot."""
    if layout.worker[scope] != OUTSIDE and hosted:
        return Parts((), slot.children, (), {child.number: child.number for child in slot.children})
    return parts_above(slot, layout.worker_type, layout.worker_level_types, hosted)


def parts_above(slot: Resource, worker_type: str, worker_level_types: frozenset[str], hosted: bool) -> Parts:
    """Divide a slot that is found above the workers."""
    spread, needs = slot.children, () if hosted else slot.needs
    if asks_workers(slot, worker_type):
        spread, needs = _needing(slot, {worker_type}), ()
    elif needs and spread and worker_level_types.isdisjoint(child.type for child in spread):
        spread, needs = _needing(slot, {child.type for child in spread}), ()
    placed = tuple(child for child in spread if child.type in worker_level_types)
    rest = tuple(child for child in spread if child.type not in worker_level_types)
    originals = {child.number: own.number for child, own in zip(spread, slot.children, strict=True)}
    return Parts(placed, rest, needs, originals)


def _needing(slot: Resource, types: Collection[str]) -> tuple[Resource, ...]:
    """Return a slot's children, those of some types with the slot's needs as well as their own."""
    if not slot.needs:
        return slot.children
    return tuple(replace(c, needs=c.needs + slot.needs) if c.type in types else c for c in slot.children)


def asks_workers(slot: Resource, worker_type: str) -> bool:
    """Tell whether a slot asks for whole workers; its needs then belong to each of them."""
    return any(child.type == worker_type for child in slot.children)


def host_needs(request: Resource, worker_type: str) -> tuple[Need, ...]:
    """Return what a vertex matched by `request` must find in subsystems: its own needs and its slots'."""
    needs, slots = list(request.needs), [child for child in request.children if child.is_slot]
    while slots:
        slot = slots.pop(0)
        needs += () if asks_workers(slot, worker_type) else slot.needs
        slots += [child for child in slot.children if child.is_slot]
    return tuple(needs)
