"""The lines of one run: what is booked on them from the start, and which of them an item's slots need."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from math import inf
from typing import Any

from rainbow.jobs import WorkerState
from rainbow.scheduling.policy import Placement, RunView, SlotsView, View
from rainbow.scheduling.priority.model import Environment, Item, Need, Spot
from rainbow.scheduling.priority.room import Wanted
from rainbow.scheduling.priority.settings import GRID_ENGINE
from rainbow.scheduling.timeline import Timeline

CLUSTER = ""


class Lines:
    """The resource diagram of one run and the needs of slots on it."""

    def __init__(self, view: View, settings: Mapping[str, Any], environments: Iterable[Environment] = ()) -> None:
        self.view = view
        self.settings = settings
        self.timeline = Timeline(_capacity(view, environments))
        self.spots = [Spot(worker.id) for worker in view.workers if worker.state is WorkerState.READY]
        self.kind = {worker.id: worker.kind for worker in view.workers}
        self._wanted: dict[Hashable, Wanted] = {}
        self._reachable: dict[Hashable, list[Spot]] = {}
        for run in view.runs:
            self.timeline.add(self._booking(run), run.started, self.until(run))

    def until(self, run: RunView) -> float:
        """When a running task is taken to end: one that is over its time ends within the next interval."""
        if not run.until:
            return inf
        soon = self.view.now + float(self.settings["schedule_interval"])
        if self.settings["compat"] == GRID_ENGINE:
            return max(run.until, soon)
        return run.until if run.until > self.view.now else soon

    def _booking(self, run: RunView) -> Placement:
        return run.placement

    # ── what an item may use ──

    def reachable(self, item: Item) -> list[Spot]:
        """Return the spots that may ever hold a slot of an item, in the order they are tried."""
        key = (item.kinds, item.asks.queues)
        if key not in self._reachable:
            self._reachable[key] = [spot for spot in self.spots if self.kind[spot.worker] in item.kinds]
        return self._reachable[key]

    def wanted(self, item: Item, group: SlotsView, spot: Spot, environment: Environment) -> Wanted:
        """Return what a slot takes at a spot."""
        key = (item.category, group.label, spot, environment.name)
        if key not in self._wanted:
            self._wanted[key] = self._needs(item, group, spot, environment)
        return self._wanted[key]

    def _needs(self, item: Item, group: SlotsView, spot: Spot, environment: Environment) -> Wanted:
        needs: dict[str, list[Need]] = {"slot": [], "worker": [], "job": []}
        for line, amounts in ((spot.worker, group.amounts), (CLUSTER, group.outside)):
            for kind, amount in amounts.items():
                if amount:
                    needs[self._per(kind)].append(Need(line, kind, amount, line))
        if environment.slots:
            needs["slot"].append(Need(f"pe {environment.name}", "slots", 1))
        return Wanted(tuple(needs["slot"]), tuple(needs["worker"]), tuple(needs["job"]))

    def _per(self, kind: str) -> str:
        return str(self.settings["consumables"].get(kind, {}).get("per", "slot"))


def _capacity(view: View, environments: Iterable[Environment]) -> dict[str, dict[str, int]]:
    """Return the capacity of every line: of a worker no more than what is free and what its tasks hold."""
    capacity = {worker.id: dict(worker.free) for worker in view.workers}
    capacity[CLUSTER] = dict(view.consumables)
    for run in view.runs:
        for line, amounts in run.placement.items():
            held = capacity.setdefault(line, {})
            for kind, amount in amounts.items():
                held[kind] = held.get(kind, 0) + amount
    capacity.update({f"pe {env.name}": {"slots": env.slots} for env in environments if env.slots})
    return capacity
