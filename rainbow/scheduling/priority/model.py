"""The words of the priority policy.

ask        what a job says for this policy (asks.py)
item       one gang that waits: what one decision is about
spot       a worker in a queue: where a slot may lie; without queues there is one of no name
need       line of the resource diagram, type and amount that one slot takes
grant      how many slots of each of an item's slot groups lie on which spot, from when to when
category   items that ask for the same: judged once a run
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rainbow.matching import Take
from rainbow.scheduling.policy import GangView, JobView, Placement, SlotsView
from rainbow.scheduling.priority.asks import Asks


class Need(NamedTuple):
    """What one slot takes of one line of the diagram; `holder` is whom it is held of: a worker, "" or nobody."""

    line: str
    kind: str
    amount: int
    holder: str | None = None


class Spot(NamedTuple):
    """A worker in a queue."""

    worker: str
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """A parallel environment: how slots are spread, and how many may be in use together (0: any number)."""

    name: str = ""
    rule: str | int = "fill_up"
    slots: int = 0
    urgency_slots: str | int = "min"


@dataclass(slots=True, eq=False)
class Item:
    """One waiting gang with everything that decides about it."""

    job: JobView
    gang: GangView
    place: int  # among all items, in order of submission
    asks: Asks
    groups: tuple[SlotsView, ...]  # empty: only the matcher can place it
    counts: tuple[int, ...]  # admissible counts of the one group that has a range, ascending
    environments: tuple[Environment, ...]
    duration: float
    kinds: frozenset[str]
    reserve: bool
    category: Hashable
    user: str = ""
    terms: Mapping[str, float] = field(default_factory=dict)
    priority: float = 0.0

    @property
    def owners(self) -> dict[str, str]:
        """Whose it is."""
        return owners(self.job.id, self.user, self.asks)


def owners(job: str, user: str, asks: Asks) -> dict[str, str]:
    """Name a job's owners by kind."""
    return {"user": user, "project": asks.project, "department": asks.department, "job": job}


@dataclass(frozen=True, slots=True)
class Grant:
    """Space for an item over [start, end)."""

    start: float
    end: float
    count: int  # slots in all
    slots: tuple[tuple[str, Placement], ...]  # (label, what it holds), the master's first
    booking: Placement  # what it takes of every line
    environment: Environment
    spots: tuple[tuple[Spot, int], ...] = ()  # and how many slots lie there
    violations: int = 0

    def take(self) -> Take:
        """Return the same as the matcher would say it; which vertices of a worker is left to its agent."""
        return Take(self.slots, {})
