"""Reasons why nothing matches: totals first, else the first part that cannot be met, with numbers.

Both backends explain by the same rules, from their own Counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from rainbow.jobspec.quantities import base_unit, in_words, known_unit, quantity
from rainbow.matching.model.layout import called, host_needs
from rainbow.matching.model.verdict import Reason, Why
from rainbow.matching.quick_check import UNCOUNTED, multiplied
from rainbow.text import meant, some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rainbow.jobspec import Need, Resource
    from rainbow.matching.model.layout import Pool
    from rainbow.matching.needs import NearMiss


CLUSTER = "cluster"


class Counts(Protocol):
    """What an empty cluster offers to the parts of one variant of a request."""

    worker_type: str

    def units(self, r: Resource, constrained: bool = True, needs: bool = True) -> int:
        """Count a top-level request, with or without the constraint and the needs; stops at what is wanted."""

    def most(self, part: Resource, child: Resource) -> tuple[int, str]:
        """Return the most of `child` that one place of `part` offers, needs aside, and what the place is called."""

    def content(self, place: str, pool: Pool) -> int:
        """Return the most base units of a pool in one vertex of a type, or in the cluster if there is none."""

    def meeting(self, needs: tuple[Need, ...], type_: str) -> tuple[int, int, NearMiss | None]:
        """How many vertices of a type there are, how many meet all needs, and the nearest miss if none does."""

    def offering(self, kind: str, child: Resource) -> int:
        """Return how many vertices of a type offer all of `child`, its needs aside."""

    def workers(self) -> tuple[int, int]:
        """How many workers there are, and how many pass the constraint."""

    def unmet(self) -> str:
        """Return which part of the constraint fewest workers satisfy, in words."""

    def sizes_of(self, type_: str) -> frozenset[tuple[int, str, bool]]:
        """Return (size, unit, whether it contains nothing) of the vertices of a type."""


def shortfall(resources: tuple[Resource, ...], counts: Counts) -> Reason | None:
    """Return why the counted bound of some part is too small; None if every part would fit alone."""
    for resource in resources:
        requirement = resource.count.min
        if counts.units(resource) >= requirement:
            continue
        if counts.units(resource, constrained=False) >= requirement:
            return _constrained(counts)
        if counts.units(resource, needs=False) >= requirement or _are_both_unmet(resource, counts):
            return _needing(resource, counts)
        return _too_small(resource, counts)
    return None


def of_variants(reasons: Sequence[Reason]) -> Reason:
    """Say why none of a request's alternatives fits: the first reason, with the words of the others."""
    answers = list(dict.fromkeys(reason.text for reason in reasons))
    if len(answers) == 1:
        return reasons[0]
    text = "; ".join(f"alternative {k}: {reason.text}" for k, reason in enumerate(reasons, 1))
    return replace(reasons[0], text=text)


def collision(resources: tuple[Resource, ...]) -> Reason:
    """Say that each part would fit alone, but not all of them together."""
    names = ", ".join(resource.label or resource.type for resource in resources)
    return Reason(
        Why.SIBLINGS_COLLIDE, f"each part fits by itself, but they compete for the same resources: {names}", names
    )


def unexplained() -> Reason:
    """Say that some part does not fit, where finding out which took too long."""
    return Reason(Why.VERTEX_TOO_SMALL, "not every part fits by itself; the search for which ended at its time limit")


def undecided() -> Reason:
    """Say that the budget ended before the answer; alike on every machine, whichever budget it was."""
    return Reason(Why.UNDECIDED, "the search ended at its time limit; the job may still fit")


def _are_both_unmet(resource: Resource, counts: Counts) -> bool:
    """Return whether it takes the constraint and a need together to leave too little."""
    return counts.units(resource, constrained=False, needs=False) >= resource.count.min


def _constrained(counts: Counts) -> Reason:
    workers, passing = counts.workers()
    few = f"{'only ' if passing else ''}{passing} of {some(workers, counts.worker_type)}"
    text = f"{few} satisfy the constraint; {counts.unmet()}"
    return Reason(Why.CONSTRAINT_UNMET, text, "constraint", None, passing, {"workers": workers})


def _needing(resource: Resource, counts: Counts) -> Reason:
    """Name the need that the candidates for it come closest to meeting."""
    unmet: list[Reason] = []
    for part, times in multiplied((resource,)):
        needs = part.needs if part.is_slot else host_needs(part, counts.worker_type)
        if not needs:
            continue
        kind = counts.worker_type if part.is_slot else part.type
        candidates, meeting, miss = counts.meeting(needs, kind)
        names = ", ".join(dict.fromkeys(need.subsystem for need in needs))
        meet = "meets" if candidates == 1 else "meet"
        of_sizes = _has_sizes(kind, counts)  # vertices say nothing of how many units those are
        among = f"{some(candidates, 'vertex', 'vertices')} of type {kind}" if of_sizes else some(candidates, kind)
        text = f"{meeting} of {among} {meet} the {names} requirements"
        if miss:
            facts = {"nearest": miss.text}
            return Reason(Why.NEED_UNMET, f"{text}; {miss.text}", names, times, meeting, facts)
        if meeting < times and not of_sizes:
            return Reason(Why.NEED_UNMET, text, names, times, meeting, {"nearest": ""})
        unmet.append(Reason(Why.NEED_UNMET, f"{text}, and too few of these are large enough", names))
    return unmet[0]


def _has_sizes(kind: str, counts: Counts) -> bool:
    """Return whether a vertex of a type may be several units."""
    return any(size > 1 for size, _, _ in counts.sizes_of(kind))


def _too_small(resource: Resource, counts: Counts) -> Reason:
    """Go down to the innermost request that is short at the vertex that has most of it."""
    for part in resource.walk():
        if (result := _incomparable(part, counts)) is not None:
            return result
    requirement, most = resource.count.min, counts.units(resource, needs=False)
    part, place, text = resource, "", f"found {_held(resource, CLUSTER, most, counts)} of {_units(resource)}"
    slots = 1
    while (step := _shortest_child(part, counts)) is not None:
        slots = part.count.min if part.is_slot and part is not resource else 1  # all of them are in one place
        part, place, most = step
    is_split = len(part.children) > 1
    held = _held(part, place, most, counts)
    if place == CLUSTER and not is_split:
        text += f"; the cluster has {held} of {_units(part)}"
    elif place and not is_split:
        text += f"; requested {_units(part, slots)} per {place}, the largest {place} has {held}"
    if is_split:
        text += f"; {_together(part, place, most, slots, counts)}"
    if part is resource:
        return Reason(Why.VERTEX_TOO_SMALL, text, called(part), requirement // part.scale, most // part.scale)
    requirement = part.count.min // part.scale
    return Reason(Why.VERTEX_TOO_SMALL, text, part.type, requirement, most // part.scale, {"in": place})


def _held(part: Resource, place: str, most: int, counts: Counts) -> str:
    """Write how much of a part there is, exactly where the unit that was asked for rounds it down."""
    if not part.unit:
        return str(most)
    measured, factor = quantity(part.unit)
    exact = counts.content(place, (part.type, measured))
    return in_words(exact if exact // factor == most else most * factor, base_unit(measured))


def _together(part: Resource, place: str, most: int, slots: int, counts: Counts) -> str:
    """Say that places have each of several things, and too few of them all."""
    every = [_units(child) for child in part.children]
    all_of = f"{', '.join(every[:-1])} and {every[-1]}"
    if most and place not in ("", CLUSTER):
        largest = f"the largest {place} has {'room for ' * part.is_slot}{most}"
        return f"requested {_units(part, slots)} with {all_of} per {place}, {largest}"
    if most and part.is_slot:
        return f"each takes {all_of}"
    both = "both " if len(every) == 2 else ""
    kind = (place or counts.worker_type) if part.is_slot else part.type
    text = f"{f'only {most}' if most else f'no {kind}'} {'have' if most > 1 else 'has'} {both}{all_of}"
    having = [(counts.offering(kind, child), _units(child)) for child in part.children if child.type != kind]
    alone = ", ".join(f"{many} {'has' if many == 1 else 'have'} {units}" for many, units in having if many)
    return f"{text}; {alone}" if alone else text


def _incomparable(part: Resource, counts: Counts) -> Reason | None:
    """Say that a type is not counted in the unit that is asked for."""
    units = {unit for _, unit, _ in counts.sizes_of(part.type)} if part.unit else set()
    if not units or any(quantity(unit)[0] == quantity(part.unit)[0] for unit in units):
        return None
    counted = f"in {' and '.join(sorted(filter(None, units)))}" if any(units) else "without a unit"
    known = known_unit(part.unit)
    hint = f"did you mean {known}?" if known and any(units) else meant(part.unit, units)
    text = f"{part.type} of this cluster is counted {counted}, requested {part.unit}{hint and f'; {hint}'}"
    return Reason(Why.VERTEX_TOO_SMALL, text, part.type, part.count.min, 0, {"unit": part.unit})


def _shortest_child(part: Resource, counts: Counts) -> tuple[Resource, str, int] | None:
    for child in part.children:
        most, place = counts.most(part, child)
        if most < child.count.min:
            return child, place, most
    return None


def _units(resource: Resource, times: int = 1) -> str:
    """Write how many a request wants: "4 cores", "64 GB memory", "2 slots build"."""
    requirement = resource.count.min * times
    if resource.is_slot:
        return f"{some(requirement, 'slot')} {resource.label}".strip()
    if resource.unit or resource.type in UNCOUNTED:
        measured, factor = quantity(resource.unit)
        return f"{in_words(requirement * factor, base_unit(measured))} {resource.type}"
    return some(requirement, resource.type)
