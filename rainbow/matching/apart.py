"""Requests that cannot collide: neither takes, whole or by contents, a type the other names.

Where no two siblings can collide, at any level, the counted bound is the answer and no search is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.matching.budget import FREE, Meter
from rainbow.matching.demand import for_one_slot, pools_of

if TYPE_CHECKING:
    from rainbow.jobspec import Resource
    from rainbow.matching.layout import Layout
    from rainbow.matching.rooted import Rooted


def cannot_collide(resources: tuple[Resource, ...], forms: Rooted | Layout, meter: Meter = FREE) -> bool:
    """Tell whether the counted bound of a request decides it on a cluster with vertices of these forms."""
    every = [r for top in resources for r in top.walk()]
    in_slots = (child for r in every if r.is_slot for child in r.children)
    if any(for_one_slot(child, forms) is None for child in in_slots):
        return False
    levels = [resources, *(r.children for r in every)]
    return all(_is_plain(r, forms) for r in every if not r.is_slot) and all(
        _are_apart(level, forms, meter) for level in levels if len(level) > 1
    )


def _is_plain(r: Resource, forms: Rooted | Layout) -> bool:
    """Tell whether the vertices of a request's type are of one form: none in another, all whole or all divisible."""
    if r.type in forms.nested:
        return False
    if r.children:
        return True
    mixed = r.type in forms.compound and r.type in forms.leaves
    return r.exclusive or not (mixed or len(list(pools_of(r, forms.pools))) > 1)


def _are_apart(siblings: tuple[Resource, ...], forms: Rooted | Layout, meter: Meter) -> bool:
    """Tell whether no sibling takes a type that another one names; what is named is taken too."""
    named: dict[str, int] = {}
    for place, r in enumerate(siblings):
        meter.step()
        if any(named.setdefault(type_, place) != place for type_ in _names(r)):
            return False
    for place, r in enumerate(siblings):
        meter.step()
        if any(named.get(type_, place) != place for type_ in _takes(r, forms)):
            return False
    return True


def _names(r: Resource) -> set[str]:
    return {part.type for part in r.walk() if not part.is_slot}


def _takes(r: Resource, forms: Rooted | Layout) -> set[str]:
    """The types a request takes: its own, and everything in what it takes whole."""
    taken: set[str] = set()
    for part in r.walk():
        if not part.is_slot:
            taken.add(part.type)
        if part.exclusive or (not part.children and part.type in forms.compound):
            taken |= forms.inside.get(part.type, frozenset())
    return taken
