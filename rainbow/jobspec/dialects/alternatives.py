"""Fluxion's alternatives: `xor_slot` and `or_slot` as ordinary slots, one forest for each way to choose.

xor_slot   of its siblings of this type exactly one is taken, with all its slots
or_slot    all its siblings of this type have one count: so many slots are taken, each of any of them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, islice, product
from math import comb

from rainbow.errors import JobspecError, LimitError
from rainbow.jobspec.request import SLOT, Count, Resource

XOR, OR = "xor_slot", "or_slot"
MOST_VARIANTS = 64
Forest = tuple[Resource, ...]


def alternatives(siblings: Forest, pointer: str) -> tuple[Forest, ...]:
    """Return the forests of which any one will do, the first choice of everything first.

    Raises JobspecError where siblings of or_slot differ in their counts, LimitError for more than 64 ways.

    >>> small, large = (Resource(XOR, children=(Resource("core", Count(n, n)),)) for n in (4, 8))
    >>> [forest[0].children[0].count.min for forest in alternatives((small, large), "/resources")]
    [4, 8]
    """
    if not any(part.type in (XOR, OR) for sibling in siblings for part in sibling.walk()):
        return (siblings,)
    fixed = [_ways(r, pointer) for r in siblings if r.type not in (XOR, OR)]
    exclusive = [way for r in siblings if r.type == XOR for way in _ways(r, pointer)]
    mixed = _mixed([r for r in siblings if r.type == OR], pointer)
    return _bounded(
        (
            tuple(part for parts in picked for part in parts)
            for picked in product(*fixed, *([exclusive] if exclusive else []), *([mixed] if mixed else []))
        ),
        pointer,
    )


def _ways(r: Resource, pointer: str) -> list[Forest]:
    """Return a resource once for each way to choose below it."""
    type_ = SLOT if r.type in (XOR, OR) else r.type
    return [(replace(r, type=type_, children=inside),) for inside in alternatives(r.children, pointer)]


def _mixed(slots: Sequence[Resource], pointer: str) -> list[Forest]:
    """Return the ways to make up so many slots of some kinds."""
    if not slots:
        return []
    if any(slot.count != slots[0].count for slot in slots):
        raise JobspecError(f"{OR}s beside each other must have one count: so many slots in all", pointer=pointer)
    kinds = [way[0] for slot in slots for way in _ways(slot, pointer)]
    if len(kinds) == 1:
        return [(kinds[0],)]
    many = slots[0].count.min
    if max(many, len(kinds)) > MOST_VARIANTS or comb(many + len(kinds) - 1, many) > MOST_VARIANTS:
        raise _too_many(pointer)
    picks = combinations_with_replacement(range(len(kinds)), many)
    return [tuple(replace(kinds[k], count=Count(n, n)) for k, n in Counter(pick).items()) for pick in picks]


def _bounded(forests: Iterable[Forest], pointer: str) -> tuple[Forest, ...]:
    found = tuple(islice(forests, MOST_VARIANTS + 1))
    if len(found) > MOST_VARIANTS:
        raise _too_many(pointer)
    return found


def _too_many(pointer: str) -> LimitError:
    text = f"more than {MOST_VARIANTS} ways to choose among alternatives"
    return LimitError(text, pointer=pointer, limit="variants")
