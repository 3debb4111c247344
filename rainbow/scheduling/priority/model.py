"""Items, queue instances, environments, and what a job asks of this policy in attributes.system.

    queue, master_queue   name or list of names, * and ? allowed      reserve       true: keep space for it
    pe                    a parallel environment, * and ? allowed     reservation   an advance reservation's id
    project, department   whom it is charged to                       deadline      seconds since the epoch
    soft                  {queue: ..., resources: {type: amount}}     job_share     weight among its owner's jobs
    tasks_at_once         how many of its tasks may run together    priority      POSIX priority, -1023 to 1024

An entry of the wrong form is reported to the job's owner and keeps the job waiting; it never harms another job.

Terms of the policy:

ask        what a job says for this policy (model.py)
item       one gang that waits: what one decision is about
spot       a worker in a queue: where a slot may lie; without queues there is one of no name
need       line of the resource diagram, type and amount that one slot takes
grant      how many slots of each of an item's slot groups lie on which spot, from when to when
category   items that ask for the same: judged once a run
family     categories that differ in how many slots and for how long
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rainbow.matching import Take
from rainbow.scheduling.snapshot import GangView, JobView, Placement, RunView, SlotsView

FILL_UP, ROUND_ROBIN, ONE_WORKER = "fill_up", "round_robin", "pe_slots"
NAMES = (FILL_UP, ROUND_ROBIN, ONE_WORKER)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job's entries, read. `fault` says what is wrong with them, "" if nothing is."""

    queues: tuple[str, ...] = ()
    master_queues: tuple[str, ...] = ()
    pe: str = ""
    project: str = ""
    department: str = ""
    reserve: bool = False
    reservation: str = ""
    deadline: float = 0.0
    job_share: float = 0.0
    tasks_at_once: int = 0
    priority: float = 0.0
    soft_queues: tuple[str, ...] = ()
    soft: Mapping[str, int] = field(default_factory=dict)
    fault: str = ""


NOTHING = JobRequest()
ENTRIES = frozenset(
    {
        *("queue", "master_queue", "pe", "project", "department", "reserve", "reservation", "deadline", "job_share"),
        *("tasks_at_once", "priority", "soft"),
    }
)


def read_asks(of: JobView | RunView) -> JobRequest:
    """Read a job's entries."""
    options = of.attributes
    if not options or ENTRIES.isdisjoint(options):
        return NOTHING
    try:
        soft = _mapping(options, "soft")
        return JobRequest(
            queues=_names(options, "queue"),
            master_queues=_names(options, "master_queue"),
            pe=_text(options, "pe"),
            project=_text(options, "project"),
            department=_text(options, "department"),
            reserve=_flag(options, "reserve"),
            reservation=_text(options, "reservation"),
            deadline=_number(options, "deadline"),
            job_share=_number(options, "job_share"),
            tasks_at_once=int(_number(options, "tasks_at_once")),
            priority=_number(options, "priority", -(2**53)),
            soft_queues=_names(soft, "queue"),
            soft=_amounts(soft, "resources"),
        )
    except Malformed as fault:
        return JobRequest(fault=str(fault))


class Malformed(ValueError):
    """An entry is not of the documented form."""


def _text(options: Mapping[str, Any], key: str) -> str:
    value = options.get(key, "")
    if not isinstance(value, str):
        raise Malformed(f"{key} is a text")
    return value


def _names(options: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = options.get(key, ())
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, (list, tuple)) or not all(isinstance(name, str) for name in listed):
        raise Malformed(f"{key} is a name or a list of names")
    return tuple(name for name in listed if name)


def _flag(options: Mapping[str, Any], key: str) -> bool:
    value = options.get(key, False)
    if not isinstance(value, bool):
        raise Malformed(f"{key} must be true or false")
    return value


def _number(options: Mapping[str, Any], key: str, least: float = 0.0) -> float:
    value = options.get(key, 0)
    whole = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not whole or not math.isfinite(value) or not least <= value <= 2**53:
        raise Malformed(f"{key} is a number from {least:g} up")
    return float(value)


def _mapping(options: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = options.get(key, {})
    if not isinstance(value, Mapping):
        raise Malformed(f"{key} is a mapping")
    return value


def _amounts(options: Mapping[str, Any], key: str) -> dict[str, int]:
    return {str(kind): math.ceil(_number(_mapping(options, key), kind)) for kind in _mapping(options, key)}


class Need(NamedTuple):
    """What one slot takes of one line of the diagram; `holder` is whom it is held of: a worker, "" or nobody."""

    line: str
    kind: str
    amount: int
    holder: str | None = None


class QueueInstance(NamedTuple):
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
    asks: JobRequest
    groups: tuple[SlotsView, ...]  # empty: only the matcher can place it
    counts: tuple[int, ...]  # admissible counts of the one group that has a range, ascending
    environments: tuple[Environment, ...]
    duration: float
    kinds: frozenset[str]
    reserve: bool
    category: Hashable
    user: str = ""
    family: int | None = None  # items that ask for more or less of the same, see Names.family
    terms: Mapping[str, float] = field(default_factory=dict)
    priority: float = 0.0
    rank: tuple[float, ...] = ()  # with the setting `order`: what decides before its priority
    unordered: str = ""  # why the setting `order` has no value for it

    @property
    def owners(self) -> dict[str, str]:
        """Owner of the reservation."""
        return owners(self.job.id, self.user, self.asks)


def owners(job: str, user: str, asks: JobRequest) -> dict[str, str]:
    """Name a job's owners by kind."""
    return {"user": user, "project": asks.project, "department": asks.department, "job": job}


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """Space for an item over [start, end); `after`: tasks without a known end, the start is when they have ended."""

    start: float
    end: float
    count: int  # slots in all
    slots: tuple[tuple[str, Placement], ...]  # of what starts now: (label, what it holds), the master's first
    booking: Placement  # what it takes of every line
    environment: Environment
    spots: tuple[tuple[QueueInstance, int], ...] = ()  # and how many slots lie there
    violations: int = 0
    after: tuple[str, ...] = ()
    located: tuple[Any, ...] = ()  # by task, where it starts now and not amounts alone say it

    def take(self) -> Take:
        """Return the same as the matcher would say it; which vertices of a worker is left to its agent."""
        return Take(self.slots, {})


WAYS = ("bisection", "low", "high")
