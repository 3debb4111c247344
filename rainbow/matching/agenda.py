"""What is still to be met, and what was decided on the way there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rainbow.matching.demand import Demand
    from rainbow.matching.layout import Layout, Pool


class Agenda(NamedTuple):
    """What is still to be met. Its demands look between positions `first` and `last`.

    What is left of a demand does not count: it never takes what was chosen for the demand's other units.
    """

    demand: Demand
    rest: Any  # an Agenda, or () for nothing
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Promised:
    """An amount owed by the leaves below a demand's scope, in base units."""

    demand: Demand
    pool: Pool
    amount: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """A vertex chosen for a demand, whole or to stand on."""

    demand: Demand
    position: int
    whole: bool


def before(demand: Demand, rest: Any, layout: Layout) -> Agenda:
    """Put a demand on an agenda."""
    scope, end = demand.scope, layout.last[demand.scope]
    if not rest:
        return Agenda(demand, (), scope, end)
    return Agenda(demand, rest, min(scope, rest.first), max(end, rest.last))


def leaving(left: Demand, rest: Any, layout: Layout) -> Any:
    """Put what is left of a demand on an agenda."""
    if not left.units:
        return rest
    return Agenda(left, rest, *((rest.first, rest.last) if rest else (len(layout), 0)))


def contended(demand: Demand, rest: Any, layout: Layout) -> bool:
    """Tell whether others still look where a demand looks."""
    return bool(rest) and rest.first < layout.last[demand.scope] and demand.scope < rest.last
