"""Amounts whose unit says less than it seems to: each is a warning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rainbow.jobspec.checking import shortened
from rainbow.jobspec.request import Resource
from rainbow.jobspec.units import KNOWN, is_known

MEMORY = "memory"
LONGEST = 60  # characters of a unit that are repeated


def about_units(variants: Iterable[Iterable[Resource]]) -> Iterator[str]:
    """Yield a warning for every unit that only measures itself, and for memory without any."""
    trees = {resource.number: resource for forest in variants for resource in forest}  # variants share theirs
    found = (warning for tree in trees.values() for part in tree.walk() if (warning := _about(part)))
    return shortened(dict.fromkeys(found))


def _about(part: Resource) -> str:
    if part.unit:
        return "" if is_known(part.unit) else f"unit {part.unit[:LONGEST]} is not known (known: {KNOWN})"
    return f"{MEMORY} without a unit is counted in each cluster's own units" if part.type == MEMORY else ""
