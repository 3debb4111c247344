"""Queues (partitions): the workers they are on, who may use them, and their state.

tag    what a spot may be used for by a job: nothing, its slave tasks, its master task, all
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from fnmatch import fnmatchcase
from typing import Any

from rainbow.scheduling.priority.config.calendar import Calendar, read_calendar
from rainbow.scheduling.priority.model import Environment, Item, QueueInstance
from rainbow.scheduling.snapshot import WorkerView


class Tag(IntFlag):
    """What a spot may be used for."""

    NONE = 0
    SLAVE = 1
    MASTER = 2
    ALL = 3


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue, its settings read."""

    name: str
    given: Mapping[str, Any]
    calendar: Calendar

    def on(self, worker: str) -> bool:
        """Return whether it has an instance on a worker."""
        return _any(self.given["workers"], worker)

    def admits(self, item: Item, environment: Environment) -> bool:
        """Return whether an item's owner and parallel environment may use it."""
        options, asks = self.given, item.asks
        parallel = not environment.name or not options["pe_list"] or _any(options["pe_list"], environment.name)
        named = not options["users"] or item.user in options["users"]
        charged = not options["projects"] or asks.project in options["projects"]
        barred = item.user in options["not_users"] or asks.project in options["not_projects"]
        return parallel and named and charged and not barred

    def alarmed(self, values: Mapping[str, float], thresholds: str = "load_thresholds") -> bool:
        """Return whether a load value has reached its threshold; a value not measured never has."""
        return any(name in values and values[name] >= least for name, least in self.given[thresholds].items())


def read_queues(settings: Mapping[str, Any]) -> dict[str, Queue]:
    """Return the queues by name."""
    return {
        name: Queue(name, options, read_calendar(options["calendar"]["year"], options["calendar"]["week"]))
        for name, options in settings["queues"].items()
    }


def instances(queues: Mapping[str, Queue], workers: Iterable[WorkerView]) -> list[QueueInstance]:
    """Return every queue on every worker it is on; without queues, every worker once."""
    if not queues:
        return [QueueInstance(worker.id) for worker in workers]
    return [
        QueueInstance(w.id, q.name) for w in workers for q in queues.values() if q.given["enabled"] and q.on(w.id)
    ]


def tag(item: Item, environment: Environment, spot: QueueInstance, queues: Mapping[str, Queue]) -> Tag:
    """Say what a spot may be used for by an item, whatever is free there."""
    if not queues:
        return Tag.ALL
    if not queues[spot.queue].admits(item, environment):
        return Tag.NONE
    asks = item.asks
    slave = not asks.queues or named(asks.queues, spot)
    master = named(asks.master_queues, spot) if asks.master_queues else slave
    return (Tag.SLAVE if slave else Tag.NONE) | (Tag.MASTER if master else Tag.NONE)


def named(patterns: Sequence[str], spot: QueueInstance) -> bool:
    """Return whether one of some patterns, "queue" or "queue@worker", names a spot."""
    return any(
        fnmatchcase(spot.queue, queue) and (not worker or fnmatchcase(spot.worker, worker))
        for queue, _, worker in (pattern.partition("@") for pattern in patterns)
    )


def _any(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
