"""Requests that cannot collide: neither takes, whole or by contents, a type the other names.

Where no two siblings can collide, at any level, the counted bound is the answer and no search is needed.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from rainbow.matching.demand import pools_of

if TYPE_CHECKING:
    from rainbow.jobspec import Resource
    from rainbow.matching.rooted import Rooted


def cannot_collide(resources: tuple[Resource, ...], rooted: Rooted) -> bool:
    """Tell whether the counted bound of a request decides it on any cluster with this root."""
    every = [r for top in resources for r in top.walk()]
    levels = [resources, *(r.children for r in every)]
    return all(_is_plain(r, rooted) for r in every if not r.is_slot) and all(
        not _collide(one, other, rooted) for level in levels for one, other in combinations(level, 2)
    )


def _is_plain(r: Resource, rooted: Rooted) -> bool:
    """Tell whether the vertices of a request's type are of one form: none in another, all whole or all divisible."""
    if r.type in rooted.nested:
        return False
    if r.children:
        return True
    mixed = r.type in rooted.compound and r.type in rooted.leaves
    return r.exclusive or not (mixed or len(list(pools_of(r, rooted.pools))) > 1)


def _collide(one: Resource, other: Resource, rooted: Rooted) -> bool:
    return not (_takes(one, rooted).isdisjoint(_names(other)) and _takes(other, rooted).isdisjoint(_names(one)))


def _names(r: Resource) -> set[str]:
    return {part.type for part in r.walk() if not part.is_slot}


def _takes(r: Resource, rooted: Rooted) -> set[str]:
    """The types a request takes: its own, and everything in what it takes whole."""
    taken: set[str] = set()
    for part in r.walk():
        if not part.is_slot:
            taken.add(part.type)
        if part.exclusive or (not part.children and part.type in rooted.compound):
            taken |= rooted.inside.get(part.type, frozenset())
    return taken
