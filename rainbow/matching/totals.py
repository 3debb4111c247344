"""The quick check: what a request needs in all against what a cluster has in all, before any search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rainbow.matching.verdict import Reason, Why

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from rainbow.jobspec import Resource


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
