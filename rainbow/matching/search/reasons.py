"""Why nothing matches: totals first, else the first part that cannot be met, with numbers.

Why not: the first part of a request that a cluster cannot meet, with the numbers at the nearest miss.

Both backends explain by the same rules, from their own Counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rainbow.matching.model.layout import host_needs
from rainbow.matching.model.verdict import Reason, Why

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from rainbow.jobspec import Need, Resource
    from rainbow.matching.model.conditions import NearMiss


class Counts(Protocol):
    """What an empty cluster offers to the parts of one variant of a request."""

    worker_type: str

    def units(self, r: Resource, constrained: bool = True, needs: bool = True) -> int:
        """Count a top-level request, with or without the constraint and the needs; stops at what is wanted."""

    def most(self, part: Resource, child: Resource) -> tuple[int, str]:
        """Return the most of `child` that one place of `part` offers, needs aside, and what the place is called."""

    def meeting(self, needs: tuple[Need, ...], type_: str) -> tuple[int, int, NearMiss | None]:
        """How many vertices of a type there are, how many meet all needs, and the nearest miss if none does."""

    def workers(self) -> tuple[int, int]:
        """How many workers there are, and how many pass the constraint."""


def shortfall(resources: tuple[Resource, ...], counts: Counts) -> Reason | None:
    """Return why the counted bound of some part is too small; None if every part would fit alone."""
    for resource in resources:
        wanted = resource.count.min
        if counts.units(resource) >= wanted:
            continue
        if counts.units(resource, constrained=False) >= wanted:
            return _constrained(counts)
        if counts.units(resource, needs=False) >= wanted or _are_both_unmet(resource, counts):
            return _needing(resource, counts)
        return _too_small(resource, counts)
    return None


def collision(resources: tuple[Resource, ...]) -> Reason:
    """Say that each part would fit alone, but not all of them together."""
    names = ", ".join(resource.label or resource.type for resource in resources)
    return Reason(Why.SIBLINGS_COLLIDE, f"each part fits alone, not all together: {names}", names)


def unexplained() -> Reason:
    """Say that some part does not fit, where finding out which took too long."""
    return Reason(Why.VERTEX_TOO_SMALL, "not every part fits by itself; the search for which ended at its time limit")


def undecided() -> Reason:
    """Say that the budget ended before the answer; alike on every machine, whichever budget it was."""
    return Reason(Why.UNDECIDED, "undecided: the search ended at its time limit; the job may still fit")


def _are_both_unmet(resource: Resource, counts: Counts) -> bool:
    """Tell whether it takes the constraint and a need together to leave too little."""
    return counts.units(resource, constrained=False, needs=False) >= resource.count.min


def _constrained(counts: Counts) -> Reason:
    workers, passing = counts.workers()
    text = f"only {passing} of {workers} {counts.worker_type}s pass the constraint, too few for the request"
    return Reason(Why.CONSTRAINT_UNMET, text, "constraint", None, passing, {"workers": workers})


def _needing(resource: Resource, counts: Counts) -> Reason:
    """Name the need that the candidates for it come closest to meeting."""
    for part in resource.walk():
        needs = part.needs if part.is_slot else host_needs(part, counts.worker_type)
        if not needs:
            continue
        kind = counts.worker_type if part.is_slot else part.type
        candidates, meeting, miss = counts.meeting(needs, kind)
        if miss or meeting < part.count.min:
            names = ", ".join(dict.fromkeys(need.subsystem for need in needs))
            why = f"; {miss.text}" if miss else ""
            text = f"{meeting} {kind} of {candidates} with what is needed of {names}{why}"
            facts = {"nearest": miss.text if miss else ""}
            return Reason(Why.NEED_UNMET, text, names, part.count.min, meeting, facts)
    names = ", ".join(dict.fromkeys(need.subsystem for part in resource.walk() for need in part.needs))
    return Reason(Why.NEED_UNMET, f"too few vertices large enough have what is needed of {names}", names)


def _too_small(resource: Resource, counts: Counts) -> Reason:
    """Go down to the innermost request that is short at the vertex that has most of it."""
    wanted, found = resource.count.min, counts.units(resource, needs=False)
    part, place, most = resource, "", found
    while True:
        step = _shortest_child(part, counts)
        if step is None:
            break
        part, place, most = step
    inner = "" if part is resource else f"; the most {part.type} in one {place} is {most}, {part.count.min} wanted"
    text = f"{wanted} {_called(resource)} wanted, {found} found{inner}"
    if part is resource:
        return Reason(Why.VERTEX_TOO_SMALL, text, _called(part), wanted, found)
    return Reason(Why.VERTEX_TOO_SMALL, text, part.type, part.count.min, most, {"in": place})


def _shortest_child(part: Resource, counts: Counts) -> tuple[Resource, str, int] | None:
    for child in part.children:
        most, place = counts.most(part, child)
        if most < child.count.min:
            return child, place, most
    return None


def _called(resource: Resource) -> str:
    return f"slot {resource.label}".strip() if resource.is_slot else resource.type


def wanted(resources: tuple[Resource, ...]) -> dict[tuple[str, str], int]:
    """Sum what a request needs by (type, unit); nested counts multiply, ranges count their least.

    >>> from rainbow.jobspec import Count, Resource
    >>> cores = Resource("core", Count(2))
    >>> wanted((Resource("node", Count(2), children=(Resource("slot", children=(cores,)),)),))
    {('node', ''): 2, ('core', ''): 4}
    """
    sums: dict[tuple[str, str], int] = {}
    for resource, times in _multiplied(resources):
        if not resource.is_slot:
            key = (resource.type, resource.unit)
            sums[key] = sums.get(key, 0) + times
    return sums


def _multiplied(resources: tuple[Resource, ...]) -> Iterator[tuple[Resource, int]]:
    stack = [(resource, 1) for resource in reversed(resources)]
    while stack:
        resource, above = stack.pop()
        times = above * resource.count.min
        yield resource, times
        stack.extend((child, times) for child in reversed(resource.children))


class Totals(Protocol):
    """A cluster's totals by type."""

    def total(self, kind: str, unit: str) -> int | None:
        """The total of a type in `unit`; None where some vertex's unit cannot be compared."""


def quick_check(resources: tuple[Resource, ...], types: Container[str], totals: Totals) -> Reason | None:
    """Return why the totals of a cluster that has `types` are too small, None if they are not."""
    for (kind, unit), units in wanted(resources).items():
        if kind not in types:
            return Reason(Why.TYPE_MISSING, f"there is no {kind} in the cluster", kind, units, 0)
        found = totals.total(kind, unit)
        if found is not None and found < units:
            text = f"{_amount(units, unit)} of {kind} wanted in all, the cluster has {_amount(found, unit)}"
            return Reason(Why.TOTAL_TOO_SMALL, text, kind, units, found)
    return None


def _amount(units: int, unit: str) -> str:
    return f"{units} {unit}".strip()
