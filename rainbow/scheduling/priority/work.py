"""What waits, as items."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from fnmatch import fnmatchcase
from math import inf
from typing import Any

from rainbow.scheduling.policy import GangView, ReservationView, SlotsView, View
from rainbow.scheduling.priority.allocation import ONE_WORKER
from rainbow.scheduling.priority.asks import NOTHING, Asks, read_asks
from rainbow.scheduling.priority.model import Environment, Item
from rainbow.scheduling.priority.settings import TUNED

ALONE = Environment(rule=ONE_WORKER)  # a job that names no parallel environment and wants one slot
SPREAD = Environment()


def items(view: View, settings: Mapping[str, Any]) -> list[Item]:
    """Return every waiting gang, in order of submission."""
    return list(_items(view, settings, environments(settings)))


def environments(settings: Mapping[str, Any]) -> dict[str, Environment]:
    """Return the parallel environments by name."""
    return {name: Environment(name, **given) for name, given in settings["parallel_environments"].items()}


def _items(view: View, settings: Mapping[str, Any], known: Mapping[str, Environment]) -> Iterator[Item]:
    everyone = settings["discipline"] != TUNED or settings["reserve"] == "all"
    kept = {reservation.id: reservation for reservation in view.reservations}
    by_user, shapes = bool(settings["queues"] or settings["quotas"]), dict[int, Hashable]()
    place = 0
    for job in view.jobs:
        asks = read_asks(job)
        matching = _environments(asks, known)
        counts_of: dict[int, tuple[int, ...]] = {}
        for gang in job.gangs:
            if id(gang.slots) not in counts_of:
                counts_of[id(gang.slots)] = _counts(gang.slots)
            counts = counts_of[id(gang.slots)]
            item = Item(
                job,
                gang,
                place,
                asks,
                gang.slots,
                counts,
                matching or ((ALONE if counts == (1,) else SPREAD),),
                _duration(gang, settings, kept.get(asks.reservation), view.now),
                view.hosts(gang.demand),
                everyone or asks.reserve,
                place,
                job.requestor,
            )
            item.asks = _possible(view, item, known)
            if settings["categories"]:
                item.category = category(item, by_user, shapes)
            place += 1
            yield item


def _environments(asks: Asks, environments: Mapping[str, Environment]) -> tuple[Environment, ...]:
    return tuple(environments[name] for name in sorted(environments) if asks.pe and fnmatchcase(name, asks.pe))


def _counts(groups: tuple[SlotsView, ...]) -> tuple[int, ...]:
    """Return the admissible counts of a gang's only group; of several groups each has its least."""
    if len(groups) != 1:
        return (sum(group.least for group in groups),)
    group = groups[0]
    return tuple(sorted(group.counts)) or tuple(range(group.least, max(group.least, group.most) + 1))


def _duration(gang: GangView, settings: Mapping[str, Any], inside: ReservationView | None, now: float) -> float:
    """How long an item is taken to run; one without a limit in an advance reservation runs until its end."""
    duration = gang.expected or settings["default_duration"] or inf
    if inside and duration == inf:
        return float(max(0.0, inside.end - max(now, inside.start)))
    return float(duration) + float(settings["duration_offset"])


def _possible(view: View, item: Item, environments: Mapping[str, Environment]) -> Asks:
    """Return what an item asks, with the fault that it names something there is not."""
    asks = item.asks
    if asks is NOTHING:
        return asks
    if asks.pe and not any(fnmatchcase(name, asks.pe) for name in environments):
        return Asks(fault=f"there is no parallel environment {asks.pe!r}")
    if asks.reservation and all(kept.id != asks.reservation for kept in view.reservations):
        return Asks(fault=f"there is no advance reservation {asks.reservation!r}")
    return asks


def category(item: Item, by_user: bool, shapes: dict[int, Hashable]) -> Hashable:
    """Name everything of an item that decides where and when it fits; `shapes` keeps those of groups seen."""
    shape: Hashable = item.gang.demand
    if item.groups:
        shape = shapes.get(id(item.groups)) or shapes.setdefault(id(item.groups), _shape(item.groups))
    user = item.user if by_user else ""
    return (shape, item.counts, item.duration, item.kinds, item.environments, _asked(item.asks), user)


def _shape(groups: tuple[SlotsView, ...]) -> Hashable:
    return tuple(
        (g.label, tuple(sorted(g.amounts.items())), tuple(sorted(g.outside.items())), g.least, g.apart)
        for g in groups
    )


def _asked(asks: Asks) -> Hashable:
    if asks is NOTHING:
        return None
    names = (asks.queues, asks.master_queues, asks.pe, asks.project, asks.reservation, asks.fault)
    return (*names, asks.soft_queues, tuple(sorted(asks.soft.items())))
