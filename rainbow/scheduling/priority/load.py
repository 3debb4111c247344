"""Load: what workers are ordered by, and what queues' thresholds are compared with.

A task just started does not show in measured load yet. So every slot adds its adjustment to the load of its worker,
fading to nothing over the decay time. Values named np_... are per processor, and so is what is added to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.scheduling.policy import RunView, View
from rainbow.scheduling.priority.formula import evaluate, read_formula


class Load:
    """The adjusted load values of every worker in one run."""

    def __init__(self, view: View, settings: Mapping[str, Any]) -> None:
        self.kind = settings["slot_type"]
        self.adjustments: Mapping[str, float] = settings["load_adjustments"]
        self.formula = read_formula(settings["load_formula"]) if settings["load_formula"] else ()
        self.processors = {worker.id: max(1, worker.capacity.get(self.kind, 1)) for worker in view.workers}
        self.values = {worker.id: dict(worker.load) for worker in view.workers}
        for run in view.runs if self.adjustments else ():
            self._correct(run, view.now, settings["load_adjustment_decay_time"])

    def _correct(self, run: RunView, now: float, decay: float) -> None:
        fresh = 1 - (now - run.started) / decay if decay else 0.0
        if fresh > 0:
            for worker, held in run.placement.items():
                self.add(worker, fresh * held.get(self.kind, 0))

    def add(self, worker: str, slots: float) -> None:
        """Add what some new slots will cost to a worker's load."""
        values = self.values.get(worker)
        if values is None:
            return
        for name, each in self.adjustments.items():
            share = each / self.processors[worker] if name.startswith("np_") else each
            values[name] = values.get(name, 0.0) + slots * share

    def of(self, worker: str) -> float:
        """Return the value workers are ordered by, the least first."""
        return evaluate(self.formula, self.values.get(worker, {}))
