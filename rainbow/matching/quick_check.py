"""The quick check: a cluster whose totals are too small is refused before any search.

Totals are sums over the whole graph by type, as fluxion's pruning filters keep them. They refuse most clusters at the
cost of one comparison for each type that a request names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rainbow.jobspec.quantities import base_unit, in_words, quantity
from rainbow.matching.model.verdict import Reason, Why
from rainbow.text import meant, some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rainbow.jobspec import Resource


UNCOUNTED = ("memory", "storage", "bandwidth", "power")  # nouns without a plural


def required_totals(resources: tuple[Resource, ...]) -> dict[tuple[str, str], int]:
    """Sum what a request needs by (type, unit); nested counts multiply, ranges count their least.

    >>> from rainbow.jobspec import Count, Resource
    >>> cores = Resource("core", Count(2))
    >>> required_totals((Resource("node", Count(2), children=(Resource("slot", children=(cores,)),)),))
    {('node', ''): 2, ('core', ''): 4}
    """
    sums: dict[tuple[str, str], int] = {}
    for resource, times in multiplied(resources):
        if not resource.is_slot:
            key = (resource.type, resource.unit)
            sums[key] = sums.get(key, 0) + times
    return sums


def multiplied(resources: tuple[Resource, ...]) -> Iterator[tuple[Resource, int]]:
    """Yield every request, depth first, with the number of copies that the counts above it ask for."""
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


def quick_check(resources: tuple[Resource, ...], types: Iterable[str], totals: Totals) -> Reason | None:
    """Return why the totals of a cluster that has `types` are too small, None if they are not."""
    for (kind, unit), units in required_totals(resources).items():
        if kind not in types:
            hint = meant(kind, types)
            text = f"the cluster has no resource of type {kind}{hint and f'; {hint}'}"
            return Reason(Why.TYPE_MISSING, text, kind, units, 0)
        count = totals.total(kind, unit)
        if count is not None and count < units:
            measured, factor = quantity(unit)
            base = base_unit(measured)
            has = in_words(totals.total(kind, base) or 0, base)
            is_amount = unit or kind in UNCOUNTED
            query = f"{in_words(units * factor, base)} of {kind}" if is_amount else some(units, kind)
            text = f"requested {query} in total, the cluster has {has}"
            return Reason(Why.TOTAL_TOO_SMALL, text, kind, units, count)
    return None
