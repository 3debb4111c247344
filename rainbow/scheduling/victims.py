"""Which tasks a rebalance stops: the newest of the classes over their targets, and only if another starts instead.

unit    the running tasks of one gang, which stop together
need    workers a class is entitled to, has tasks for, and found nowhere idle
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rainbow.scheduling.policy import GangView, RunView, Stop, View
from rainbow.scheduling.queues import Queue

WHY = "RebalanceRequested"


@dataclass(frozen=True, slots=True)
class Unit:
    """What stops together: its tasks, and the workers that frees."""

    started: float
    tasks: tuple[str, ...]
    workers: frozenset[str]


def units(runs: list[RunView]) -> list[Unit]:
    """Group runs into units, the one started last first; equal starts by task."""
    gangs: dict[tuple[str, int], list[RunView]] = {}
    for run in runs:
        gangs.setdefault((run.job, run.gang), []).append(run)
    found = [_unit(gang) for gang in gangs.values()]
    return sorted(found, key=lambda unit: (-unit.started, unit.tasks))


def _unit(runs: list[RunView]) -> Unit:
    workers = frozenset(worker for run in runs for worker in run.placement if worker)
    return Unit(max(run.started for run in runs), tuple(sorted(run.task for run in runs)), workers)


def given_back(found: list[Unit], most: int) -> Iterator[Unit]:
    """Yield the newest units that free no more than `most` workers together."""
    for unit in found:
        if 0 < len(unit.workers) <= most:
            most -= len(unit.workers)
            yield unit


@dataclass
class Exchange:
    """Gives the workers of some units to gangs that are owed them."""

    view: View
    units: list[Unit]
    cost: Callable[[GangView], int]
    kinds: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Look kinds up once."""
        self.kinds = {worker.id: worker.kind for worker in self.view.workers}

    def stops(self, queues: Mapping[str, Queue], needs: Mapping[str, int]) -> Iterator[Stop]:
        """Yield the stops that let gangs start which are owed workers, the class that lacks most first."""
        for name in sorted(needs, key=lambda n: (-needs[n], n)):
            left = needs[name]
            for _, gang in queues[name].upcoming() if left else ():
                if not self.units or left <= 0:
                    break
                wanted = self.cost(gang)
                if 0 < wanted <= left and (chosen := self._room(gang, wanted)):
                    left -= wanted
                    yield from (Stop(task, WHY) for unit in chosen for task in unit.tasks)

    def _room(self, gang: GangView, wanted: int) -> list[Unit]:
        """Return the newest units whose workers can host the gang and no more; none if there are none."""
        hosts = self.view.hosts(gang.demand)
        chosen: list[Unit] = []
        for unit in self.units:
            if len(unit.workers) <= wanted and all(self.kinds.get(worker) in hosts for worker in unit.workers):
                chosen.append(unit)
                wanted -= len(unit.workers)
            if not wanted:
                break
        freed = sorted(worker for unit in chosen for worker in unit.workers)
        if wanted or self.view.place(gang.demand, freed) is None:
            return []
        self.units = [unit for unit in self.units if unit not in chosen]
        return chosen
