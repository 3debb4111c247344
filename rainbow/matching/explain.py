"""Why not: the first part of a request that a cluster cannot meet, with the numbers at the nearest miss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.matching.bound import Bound
from rainbow.matching.needs import misses
from rainbow.matching.slots import host_needs, parts
from rainbow.matching.taken import Taken
from rainbow.matching.verdict import Reason, Why

if TYPE_CHECKING:
    from rainbow.jobspec import Need, Request, Resource
    from rainbow.matching.layout import Layout


def shortfall(request: Request, resources: tuple[Resource, ...], layout: Layout, taken: Taken) -> Reason | None:
    """Return why the counted bound of some part is too small; None if every part would fit alone."""
    for resource in resources:
        if _found(Bound(layout, taken), resource) >= resource.count.min:
            continue
        if request.constraint and _found(Bound(layout, Taken(layout)), resource) >= resource.count.min:
            return _constrained(layout, taken)
        if _found(Bound(layout, taken, ask_needs=False), resource) >= resource.count.min:
            return _needing(resource, layout, taken)
        return _too_small(resource, layout, taken)
    return None


def collision(resources: tuple[Resource, ...]) -> Reason:
    """Say that each part would fit alone, but not all of them together."""
    names = ", ".join(resource.label or resource.type for resource in resources)
    return Reason(Why.SIBLINGS_COLLIDE, f"each part fits alone, not all together: {names}", names)


def out_of_budget(steps: int) -> Reason:
    """Say that the search was given up."""
    return Reason(Why.BUDGET, f"given up after {steps} steps; this is no proof that it does not fit", "steps", steps)


def _found(bound: Bound, resource: Resource) -> int:
    return bound.available(resource, 0, 0, enough=resource.count.min)


def _constrained(layout: Layout, taken: Taken) -> Reason:
    passing = len(layout.workers) - len(taken.barred)
    kind = layout.worker_type
    text = f"only {passing} of {len(layout.workers)} {kind}s pass the constraint, too few for the request"
    return Reason(Why.CONSTRAINT_UNMET, text, "constraint", None, passing, {"workers": len(layout.workers)})


def _needing(resource: Resource, layout: Layout, taken: Taken) -> Reason:
    """Name the need that the candidates for it come closest to meeting."""
    for part in resource.walk():
        needs = _needs_at(part, layout)
        if not needs:
            continue
        kind = layout.worker_type if part.is_slot else part.type
        candidates = layout.by_type.get(kind) or [0]
        meeting = sum(1 for i in candidates if misses(needs, layout, iter([i])) is None)
        miss = misses(needs, layout, iter(candidates))
        if miss or meeting < part.count.min:
            names = ", ".join(dict.fromkeys(need.subsystem for need in needs))
            why = f"; {miss.text}" if miss else ""
            text = f"{meeting} {kind} of {len(candidates)} with what is needed of {names}{why}"
            facts = {"nearest": miss.text if miss else ""}
            return Reason(Why.NEED_UNMET, text, names, part.count.min, meeting, facts)
    names = ", ".join(dict.fromkeys(need.subsystem for part in resource.walk() for need in part.needs))
    return Reason(Why.NEED_UNMET, f"too few vertices large enough have what is needed of {names}", names)


def _needs_at(part: Resource, layout: Layout) -> tuple[Need, ...]:
    return part.needs if part.is_slot else host_needs(part, layout.worker_type)


def _too_small(resource: Resource, layout: Layout, taken: Taken) -> Reason:
    """Go down to the innermost request that is short at the vertex that has most of it."""
    bound = Bound(layout, taken, ask_needs=False)
    wanted, found = resource.count.min, _found(bound, resource)
    part, place, most = resource, "", found
    while True:
        step = _shortest_child(part, layout, bound)
        if step is None:
            break
        part, place, most = step
    inner = "" if part is resource else f"; the most {part.type} in one {place} is {most}, {part.count.min} wanted"
    text = f"{wanted} {_called(resource)} wanted, {found} found{inner}"
    if part is resource:
        return Reason(Why.VERTEX_TOO_SMALL, text, _called(part), wanted, found)
    return Reason(Why.VERTEX_TOO_SMALL, text, part.type, part.count.min, most, {"in": place})


def _shortest_child(part: Resource, layout: Layout, bound: Bound) -> tuple[Resource, str, int] | None:
    places, kind = _places(part, layout, bound)
    for child in part.children:
        most = max((bound.available(child, i, i + 1 if not part.is_slot else i) for i in places), default=0)
        if most < child.count.min:
            return child, kind, most
    return None


def _places(part: Resource, layout: Layout, bound: Bound) -> tuple[list[int], str]:
    """Where the children of a request are looked for, and what such a place is called."""
    if not part.is_slot:
        return layout.by_type.get(part.type, []), part.type
    if parts(part, layout, 0, False).placed:
        return layout.workers, layout.worker_type
    return [0], "cluster"


def _called(resource: Resource) -> str:
    return f"slot {resource.label}".strip() if resource.is_slot else resource.type
