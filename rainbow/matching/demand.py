"""What is still to be met while searching: a Demand is n units of one request below one place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rainbow.jobspec.units import quantity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rainbow.jobspec import Resource
    from rainbow.matching.layout import Pool, Pools


class Owner(NamedTuple):
    """Slots number first..first+copies-1 of `label` at `host`; label "" is the job outside of every slot."""

    label: str
    host: int
    first: int
    copies: int

    def part(self, start: int, count: int, wanted: int) -> Owner:
        """Narrow to the slot that owns unit `start` when `wanted` units are one slot's."""
        if self.copies == 1:
            return self
        return self._replace(first=self.first + start // wanted, copies=max(1, count // wanted))


@dataclass(frozen=True, slots=True)
class Demand:
    """`units` of `request` at positions `first` and after below `scope`, `done` of them placed already."""

    request: Resource
    units: int
    scope: int
    first: int
    owner: Owner
    outside: bool = False  # only what lies outside every worker may serve
    done: int = 0
    cursor: int = 0  # candidates before it are decided
    closed: frozenset[Any] = frozenset()  # groups of equal candidates that are decided

    @property
    def each(self) -> int:
        """Units one slot (or the job) wants."""
        return max(1, self.request.count.min)

    def rank(self, compound: Collection[str]) -> tuple[int, int, int]:
        """Sort key, most demanding first: nested, then whole (`compound` types contain others), then by units."""
        return (-depth(self.request), 0 if takes_whole(self.request, compound) else 1, -self.units)

    def less(self, units: int, cursor: int, closed: Any = None) -> Demand:
        """Return what is left after `units` are placed and a group of candidates is closed."""
        groups = self.closed if closed is None else self.closed | {closed}
        return replace(self, units=self.units - units, done=self.done + units, cursor=cursor, closed=groups)


def takes_whole(request: Resource, compound: Collection[str]) -> bool:
    """Tell whether a request, or one in its slot, takes vertices with all they contain."""
    if request.is_slot:
        return any(takes_whole(child, compound) for child in request.children)
    return request.exclusive or (not request.children and request.type in compound)


class Forms(Protocol):
    """What the vertices of a cluster are like, by type."""

    @property
    def compound(self) -> Collection[str]:
        """The types of which some vertex contains others."""

    @property
    def pools(self) -> Pools:
        """Every pool there is, with the largest unit its leaves are counted in."""

    def sizes_of(self, type_: str) -> frozenset[tuple[int, str, bool]]:
        """Return (size, unit, whether it contains nothing) of the vertices of a type."""


def may_take_whole(request: Resource, compound: Collection[str]) -> bool:
    """Return whether a request without children takes vertices with all they contain."""
    return not (request.is_slot or request.children) and (request.exclusive or request.type in compound)


def for_one_slot(request: Resource, forms: Forms) -> int | None:
    """Return the units of a request that one slot takes, a multiple of what each vertex gives it.

    A vertex that is taken whole serves one slot, so that a slot that wants 3 cores takes 2 vertices of 2 cores. None
    where vertices give a slot unequal amounts: then only a search can say which ones it takes.
    """
    wanted = request.count.min
    if not may_take_whole(request, forms.compound):
        return wanted
    sizes = forms.sizes_of(request.type)
    given = {min(each, wanted) for each in (units_of(request, *size, forms) for size in sizes) if each} or {1}
    may_divide = not request.exclusive and any(is_leaf for _, _, is_leaf in sizes)
    if len(given) > 1 or (may_divide and given != {1}):
        return None
    step = given.pop()
    return -(-wanted // step) * step


def units_of(request: Resource, size: int, unit: str, is_leaf: bool, forms: Forms) -> int:
    """Return how many units of a request a whole vertex has; 0 where its unit cannot be compared."""
    measured, factor = quantity(unit)
    if request.unit:
        wanted, each = quantity(request.unit)
        return size * factor // each if wanted == measured else 0
    return size * factor // (forms.pools.get((request.type, measured), factor) if is_leaf else factor)


def depth(request: Resource) -> int:
    """How deep a request nests; slots are no level."""
    deepest: dict[int, int] = {}
    for node in reversed(list(request.walk())):
        below = max((deepest[child.number] for child in node.children), default=0)
        deepest[node.number] = below + (0 if node.is_slot else 1)
    return deepest[request.number]


def pools_of(request: Resource, pools: Pools) -> Iterator[tuple[Pool, int]]:
    """Yield each of `pools` that can serve a request, with base units per unit asked for.

    A unit asked for must be of the pool's quantity; without one, amounts are in the vertices' own unit.
    """
    wanted, factor = quantity(request.unit)
    for pool, largest in pools.by_type.get(request.type, ()):
        if not request.unit or pool[1] == wanted:
            yield pool, factor if request.unit else largest
