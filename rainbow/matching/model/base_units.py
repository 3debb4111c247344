"""A request as a cluster counts it: numbered depth first, amounts in base units.

Amounts are added over all vertices and then compared. Counted in the unit that was asked for, each vertex would be
rounded by itself: two memories of 512 GB would be no terabyte. So the search counts in bytes, as the vertices do.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from rainbow.jobspec.quantities import base_unit, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rainbow.jobspec import Request, Resource
    from rainbow.matching.model.layout import Pools

Variants = tuple[tuple["Resource", ...], ...]


def variants_on(request: Request, pools: Pools) -> Variants:
    """Return the variants of a request in the base units of a cluster's pools; clusters of the same units share them.

    A request without a unit counts in the largest unit that leaves of its type have. Where leaves of a type measure
    several quantities, which cannot be added, it counts whole units of each.
    """
    result: Variants | None = request.memo.get(pools.scales)
    if result is None:
        result = tuple(in_base_units(resources, pools) for resources in request.variants)
        request.memo[pools.scales] = result
    return result


def in_base_units(resources: tuple[Resource, ...], pools: Pools) -> tuple[Resource, ...]:
    """Number the requests of one variant, and count amounts in base units."""
    places = count()
    return tuple(_converted(resource, pools, places) for resource in resources)


def _converted(r: Resource, pools: Pools, places: Iterator[int]) -> Resource:
    place = next(places)
    if r.is_slot or r.children:
        return replace(r, place=place, children=tuple(_converted(child, pools, places) for child in r.children))
    of_type = pools.by_type.get(r.type, [])
    request, factor = quantity(r.unit)
    if not r.unit and len(of_type) == 1:
        (_, request), factor = of_type[0]
    elif not any(pool[1] == request for pool, _ in of_type):
        return replace(r, place=place)
    if factor == 1:
        return replace(r, place=place)
    most = None if r.count.max is None else r.count.max * factor
    counted = replace(r.count, min=r.count.min * factor, max=most)
    return replace(r, place=place, count=counted, unit=base_unit(request), scale=factor)
