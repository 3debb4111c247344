"""Load formulas ("$np_load_avg*2+0.1"), and the load values that they read.

A formula is a sum of terms. A term is a number, or a name with "$" before it or not, or a name times a number; terms
are joined by + and -.

Workers are ordered by load, and queues' thresholds are compared with it. A task just started does not show in
measured load yet. So every slot adds its adjustment to the load of its worker, fading to nothing over the decay time.
Values named np_... are per processor, and so is what is added to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rainbow.cache import cached_property
from rainbow.scheduling.interface import View
from rainbow.scheduling.snapshot import RunView

_TERM = re.compile(r"([+-]?)(?:(\d+(?:\.\d+)?)|\$?([A-Za-z_][\w.]*)(?:\*(-?\d+(?:\.\d+)?))?)", re.ASCII)
Formula = tuple[tuple[str, float], ...]  # (name, factor); the name "" stands for 1


class FormulaFault(ValueError):
    """The text is not a formula."""


def read_formula(text: str) -> Formula:
    """Read a formula.

    >>> read_formula("$num_proc*0.5+1")
    (('num_proc', 0.5), ('', 1.0))
    """
    terms: list[tuple[str, float]] = []
    at, text = 0, text.replace(" ", "")
    while at < len(text):
        result = _TERM.match(text, at)
        if not result or (terms and not result[1]):
            raise FormulaFault(f"cannot read {text[at:]!r}")
        sign = -1.0 if result[1] == "-" else 1.0
        name = result[3] or ""
        terms.append((name, sign * float((result[4] or 1) if name else result[2])))
        at = result.end()
    if not terms:
        raise FormulaFault("a formula is not empty")
    return tuple(terms)


def evaluate(formula: Formula, values: Mapping[str, float]) -> float:
    """Return the sum; a value that is not known counts as 0."""
    return sum(factor * (values.get(name, 0.0) if name else 1.0) for name, factor in formula)


class WorkerLoads:
    """The adjusted load values of every worker in one run."""

    def __init__(self, view: View, settings: Mapping[str, Any]) -> None:
        self.kind = settings["slot_type"]
        self.adjustments: Mapping[str, float] = settings["load_adjustments"]
        self.formula = read_formula(settings["load_formula"]) if settings["load_formula"] else ()
        self.workers = view.workers
        self.values = {worker.id: dict(worker.load) for worker in view.workers}
        self.is_even = not self.adjustments and not any(self.values.values())  # no worker is before another
        for run in view.runs if self.adjustments else ():
            self._correct(run, view.now, settings["load_adjustment_decay_time"])

    def _correct(self, run: RunView, now: float, decay: float) -> None:
        fresh = 1 - (now - run.started) / decay if decay else 0.0
        if fresh > 0:
            for worker, held in run.placement.items():
                self.add(worker, fresh * held.get(self.kind, 0))

    @cached_property
    def processors(self) -> dict[str, int]:
        """Return how many processors each worker has."""
        return {worker.id: max(1, worker.capacity.get(self.kind, 1)) for worker in self.workers}

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
