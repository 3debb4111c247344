"""The policy `load_based`: classes share the workers by percent, and lend what they do not use.

    1 count      workers each class holds and waits for
    2 reserve    the gang that has waited longest in vain comes first, beyond its class's target (gang_reservation.py)
    3 grant      entitlements, then loans (task_counts.py)
    4 pick       round robin: the next gang of the job that runs least (class_queues.py)
    5 place      the matcher says where; a gang that lacks workers has what its class is granted reserved
    6 again      what a class could not use is granted to the others
    7 lend       what is reserved serves tasks that end before it is needed
    8 rebalance  if the classes have long been far from their targets, the newest loans are stopped (rebalance.py)

With `unit: worker` a worker serves one gang at a time, and a gang costs as many workers as its slots pack into; with
any other unit workers are shared, and a gang costs what it takes of that type (shared_workers.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rainbow.scheduling.interface import Plan, ReservedBlock, Traits, View, Wait, cluster_index_of
from rainbow.scheduling.load_based import round as reasons
from rainbow.scheduling.load_based.round import LoadBasedStep
from rainbow.scheduling.load_based.settings import CLASSIC, WORKER, begun, check_settings, classes_of, overlaps
from rainbow.scheduling.patience import for_ever


def figures(round_: LoadBasedStep) -> dict[str, Any]:
    """Return workers in all, the spread, since when it is too large, and by class the table's columns."""
    return {
        "workers": round_.placing.ready,
        "unit": round_.placing.unit,
        "units": round_.placing.total,
        "idle": round_.placing.left,
        "spread": round(round_.spread, 3) if round_.placing.ready else 0.0,
        "over_since": round_.excess,
        "classes": {name: _row(round_, name, round_.target[name]) for name in round_.classes.percents},
    }


def _row(round_: LoadBasedStep, name: str, target: int) -> dict[str, Any]:
    reserved = sum(one.units for one in round_.reserved if one.owner == name)
    held = round_.held[name] + reserved
    return {
        "percent": round(round_.classes.percents[name], 3),
        "target": target,
        "running": round_.running[name],
        "held": held,
        "reserved": reserved,
        "loaned": max(0, held - target),
        "unused": max(0, target - held),
        "waiting": round_.queues[name].tasks,
    }


def waits(round_: LoadBasedStep) -> Iterator[Wait]:
    """Say of the jobs that came to their turn and could not start why that is."""
    for queue in round_.queues.values():
        yield from queue.stuck.values()


def kept(round_: LoadBasedStep) -> Iterator[ReservedBlock]:
    """Yield what is reserved of what is idle."""
    for one in round_.reserved:
        if one.units:
            yield ReservedBlock(one.job.id, {round_.placing.unit: one.units}, len(one.parts), one.at)


class LoadBased:
    """Plans by class load percents."""

    traits = Traits(by_events=True, by_census=True, needs_workers=True, admission=True)

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with every default filled in; PolicyError names the first fault."""
        return check_settings(settings)

    def begin(
        self, settings: Mapping[str, Any], before: Mapping[str, Any], workers: Collection[Mapping[str, int]]
    ) -> Mapping[str, Any]:
        """Return settings with the unit that suits these workers, unless they say one or had one before."""
        return begun(settings, before, workers)

    def names(self, settings: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
        """Return the classes there are."""
        return {"class": classes_of(settings).percents}

    def takes_whole_workers(self, settings: Mapping[str, Any]) -> bool:
        """Return whether a worker serves one gang at a time."""
        return classes_of(settings).unit == WORKER

    def warnings(
        self, settings: Mapping[str, Any], requestors: Collection[str], workers: Collection[str]
    ) -> Sequence[Mapping[str, Any]]:
        """Name the requestors that several classes claim, and say if jobs may wait indefinitely."""
        exact = settings["rounding"] != CLASSIC
        return [*overlaps(settings["requestors"], requestors), *(for_ever(settings["patience"]) if exact else ())]

    def plan(self, view: View) -> Plan:
        """Start what the classes are entitled to, then what can be lent; stop loans that have lasted too long."""
        census = cluster_index_of(view)
        view = view if view.census is census else replace(view, census=census)
        round_ = LoadBasedStep(view, census, classes_of(view.settings))
        round_.reserve_for_the_first()
        while round_.grant_and_place() and round_.counting.repeats:
            pass
        round_.lend()
        orders = (*round_.placing.orders, *round_.stops())
        if view.quiet:
            return Plan(orders, memory=round_.memory())
        answers = tuple(waits(round_)), figures(round_), round_.memory(), reasons.rest_of(round_)
        return Plan(orders, *answers, kept=tuple(kept(round_)))
