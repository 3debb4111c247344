"""Waiting gangs as items, in order of submission."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf
from typing import Any

from rainbow.cache import Same
from rainbow.scheduling.interface import View
from rainbow.scheduling.priority.config.settings import TUNED
from rainbow.scheduling.priority.model import NOTHING, ONE_WORKER, Environment, Item, JobRequest, read_asks
from rainbow.scheduling.snapshot import GangView, JobView, ReservationView, SlotsView

ALONE = Environment(rule=ONE_WORKER)  # a job that names no parallel environment and wants one slot
SPREAD = Environment()
MOST_NAMES = 100_000  # names that are kept from plan to plan


def items(view: View, settings: Mapping[str, Any]) -> list[Item]:
    """Return every waiting gang, in order of submission."""
    result, known = noted(view, settings), environments(settings)
    reserved = {reservation.id: reservation for reservation in view.reservations}
    made: list[Item] = []
    before, result.of_job = result.of_job, {}
    for job in view.jobs:
        own = before.get(job.id)
        if own is None or own[0].job is not job:
            own = [*_items(view, settings, job, known, reserved, result.names)]
            if not own or own[0].asks.reservation or own[0].asks.fault:
                made += own
                continue
        result.of_job[job.id] = own
        made += own
    for place, item in enumerate(made):
        item.place = place
    if not settings["categories"]:
        for item in made:
            item.category = item.place
    return made


@dataclass(slots=True)
class Noted:
    """The items of the plan before: a quiet plan of the same cluster uses those again whose job has not changed."""

    settings: Mapping[str, Any]
    hosts: object
    names: Categories
    of_job: dict[str, list[Item]] = field(default_factory=dict)


def noted(view: View, settings: Mapping[str, Any]) -> Noted:
    """Return what is noted with the census of a quiet view; of another view there is nothing yet."""
    before: Noted | None = view.census.notes.get(Noted) if view.quiet and view.census is not None else None
    same = before and before.settings is view.settings and before.hosts == view.hosts
    if before and same and len(before.names.numbers) < MOST_NAMES:
        return before
    result = Noted(view.settings, view.hosts, Categories(bool(settings["queues"] or settings["quotas"])))
    if view.quiet and view.census is not None:
        view.census.notes[Noted] = result
    return result


def items_of(view: View, settings: Mapping[str, Any], job: JobView, names: Categories) -> Iterator[Item]:
    """Yield the items of one job; their places are given later."""
    reserved = {reservation.id: reservation for reservation in view.reservations}
    return _items(view, settings, job, environments(settings), reserved, names)


def environments(settings: Mapping[str, Any]) -> dict[str, Environment]:
    """Return the parallel environments by name."""
    return {name: Environment(name, **options) for name, options in settings["parallel_environments"].items()}


def _items(
    view: View,
    settings: Mapping[str, Any],
    job: JobView,
    known: Mapping[str, Environment],
    reserved: Mapping[str, ReservationView],
    names: Categories,
) -> Iterator[Item]:
    """Yield the items of a job; their places are given later."""
    asks = _possible(view, job, read_asks(job), known)
    matching = _environments(asks, known)
    last: Item | None = None
    for gang in job.gangs:
        if last and gang.slots and gang.slots is last.gang.slots and gang.expected == last.gang.expected:
            item = _again(last, gang)  # what is told completely by the same amounts asks for the same
        else:
            item = _item(view, settings, job, gang, asks)
            item.environments = matching or ((ALONE if item.counts == (1,) else SPREAD),)
            item.duration = _duration(gang, settings, reserved.get(asks.reservation), view.now)
            item.category, item.family = names.category(item), names.family(item)
        last = item
        yield item


def _again(last: Item, gang: GangView) -> Item:
    """Return the item of a gang that asks for the same as the one before it."""
    return Item(
        last.job,
        gang,
        0,
        last.asks,
        last.groups,
        last.counts,
        last.environments,
        last.duration,
        last.kinds,
        last.reserve,
        last.category,
        last.user,
        last.family,
    )


def _item(view: View, settings: Mapping[str, Any], job: JobView, gang: GangView, asks: JobRequest) -> Item:
    everyone = settings["discipline"] != TUNED or settings["reserve"] == "all"
    counts, kinds = _counts(gang.slots), view.hosts(gang.demand)
    return Item(job, gang, 0, asks, gang.slots, counts, (), inf, kinds, everyone or asks.reserve, 0, job.requestor)


def _environments(asks: JobRequest, environments: Mapping[str, Environment]) -> tuple[Environment, ...]:
    if not asks.pe:
        return ()
    return tuple(environments[name] for name in sorted(environments) if fnmatchcase(name, asks.pe))


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


def _possible(view: View, job: JobView, asks: JobRequest, environments: Mapping[str, Environment]) -> JobRequest:
    """Return what a job asks, or the fault that it names something there is not."""
    if asks.pe and not _environments(asks, environments):
        return JobRequest(fault=f"unknown parallel environment {asks.pe!r}")
    if asks.reservation and all(reserved.id != asks.reservation for reserved in view.reservations):
        return JobRequest(fault=f"advance reservation {asks.reservation!r} not found")
    if asks.reservation and any(
        reserved.id == asks.reservation and not admits(reserved, job) for reserved in view.reservations
    ):
        return JobRequest(fault=f"advance reservation {asks.reservation!r} cannot be used by {job.requestor}")
    return asks


def admits(reserved: ReservationView, job: JobView) -> bool:
    """Return whether a job may run in an advance reservation."""
    return reserved.requestors is None or job.requestor in reserved.requestors


class Categories:
    """Numbers categories: two items of one number fit at the same times and places."""

    def __init__(self, by_user: bool) -> None:
        self.by_user = by_user  # whether anything could tell users apart
        self.numbers: dict[Hashable, int] = {}
        self.shapes: dict[Same, Hashable] = {}

    def category(self, item: Item) -> int:
        """Return the number of an item's category."""
        return self.numbers.setdefault(self.key(item), len(self.numbers))

    def family(self, item: Item) -> int | None:
        """Return the number of what an item asks for but for how much and how long; None: more decides than amounts.

        What does not fit does not fit either for longer, nor with more slots.
        """
        group = item.groups[0] if len(item.groups) == 1 and len(item.counts) == len(item.environments) == 1 else None
        if group is None or group.outside or item.asks.reservation or isinstance(item.environments[0].rule, int):
            return None
        amounts = tuple(sorted(group.amounts.items()))
        key = ("family", amounts, group.apart, item.environments[0].rule, item.kinds)
        return self.numbers.setdefault(key, len(self.numbers))

    def key(self, item: Item) -> Hashable:
        """Name everything of an item that decides where and when it fits."""
        shape: Hashable = item.gang.question
        if item.groups:
            key = Same(item.groups)
            shape = self.shapes.get(key) or self.shapes.setdefault(key, _shape(item.groups))
        user = item.user if self.by_user else ""
        return (shape, item.counts, item.duration, item.kinds, item.environments, _asked(item.asks), user)


def _shape(groups: tuple[SlotsView, ...]) -> Hashable:
    return tuple(
        (g.label, tuple(sorted(g.amounts.items())), tuple(sorted(g.outside.items())), g.least, g.apart)
        for g in groups
    )


def _asked(asks: JobRequest) -> Hashable:
    if asks is NOTHING:
        return None
    names = (asks.queues, asks.master_queues, asks.pe, asks.project, asks.reservation, asks.fault)
    return (*names, asks.soft_queues, tuple(sorted(asks.soft.items())))
