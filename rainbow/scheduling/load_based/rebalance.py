"""Rebalancing: when tasks are stopped to bring the classes back to their targets, and which.

spread     largest share a class lacks plus largest share a class has too much, in percent points
excess     since when the spread has been over the threshold
victims    of a class over its target, the tasks that were started last

Only the newest tasks of classes over their targets are stopped, and only if another starts instead.

unit    the running tasks of one gang, which stop together
need    workers a class is entitled to, has tasks for, and found nowhere idle
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rainbow.scheduling.interface import Stop
from rainbow.scheduling.load_based.class_queues import Queue
from rainbow.scheduling.load_based.whole_workers import Unit, WholeWorkers
from rainbow.scheduling.snapshot import Placement, RunView

WHY = "RebalanceRequested"


def units(runs: list[RunView], held: Callable[[list[Placement]], int]) -> list[Unit]:
    """Group runs into units, the one started last first; equal starts by task."""
    gangs: dict[tuple[str, int], list[RunView]] = {}
    for run in runs:
        gangs.setdefault((run.job, run.gang), []).append(run)
    results = [_unit(gang, held([run.placement for run in gang])) for gang in gangs.values()]
    return sorted(results, key=lambda unit: (-unit.started, unit.tasks))


def _unit(runs: list[RunView], size: int) -> Unit:
    workers = frozenset(worker for run in runs for worker in run.placement if worker)
    return Unit(max(run.started for run in runs), tuple(sorted(run.task for run in runs)), workers, size)


def given_back(results: list[Unit], most: int) -> Iterator[Unit]:
    """Yield the newest units that free no more than `most` together."""
    for unit in results:
        if 0 < unit.size <= most:
            most -= unit.size
            yield unit


@dataclass
class Exchange:
    """Gives what some units hold to gangs that are owed it."""

    placing: WholeWorkers
    units: list[Unit]

    def stops(self, queues: Mapping[str, Queue], needs: Mapping[str, int]) -> Iterator[Stop]:
        """Yield the stops that let gangs start which are owed something, the class that lacks most first."""
        for name in sorted(needs, key=lambda n: (-needs[n], n)):
            remaining = needs[name]
            for _, gang in queues[name].upcoming() if remaining else ():
                if not self.units or remaining <= 0:
                    break
                requirement = self.placing.cost(gang)
                if 0 < requirement <= remaining and (chosen := self.placing.victims(gang, self.units)):
                    self.units = [unit for unit in self.units if unit not in chosen]
                    remaining -= requirement
                    yield from (Stop(task, WHY) for unit in chosen for task in unit.tasks)
