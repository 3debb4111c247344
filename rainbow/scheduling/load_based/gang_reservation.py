"""What a round reserves for a gang that cannot start yet, and when the gang can.

end       when a task must have ended by its limit; never for one without a limit
soonest   the workers that a gang can have first, those that are free before those whose tasks end
at        when all of them are free at the latest; what ends before may use them meanwhile
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from rainbow.scheduling.cluster_index import Census
from rainbow.scheduling.snapshot import GangView, JobView, Placement, RunView

Amounts = Mapping[str, int]


@dataclass(slots=True)
class Reserved:
    """Workers, or parts of them, that a round holds back for one gang; `units` of the policy's unit in all."""

    job: JobView
    gang: GangView
    owner: str = ""  # the class it is counted for
    parts: dict[str, Amounts] = field(default_factory=dict)  # by worker; whole workers: of nothing in particular
    outside: Amounts = field(default_factory=dict)  # cluster-wide resources
    units: int = 0
    at: float = inf


class Ends:
    """When what runs must have ended: by worker, and of what is cluster-wide."""

    def __init__(self, census: Census, now: float) -> None:
        self.now = now
        self._by_worker: dict[str, list[tuple[float, Amounts]]] = {}
        for run in census.runs.values():
            self.add(run.placement, _end(run, now))

    def add(self, placement: Placement, end: float) -> None:
        """Note a task that starts in this round."""
        for worker, amounts in placement.items():
            self._by_worker.setdefault(worker, []).append((end, amounts))

    def idle_at(self, worker: str) -> float:
        """Return when nothing runs on a worker any more."""
        return max((end for end, _ in self._by_worker.get(worker, ())), default=self.now)

    def room_at(self, worker: str, free: Amounts, wanted: Amounts) -> float:
        """Return when a worker ("": the cluster outside of all) has so much free."""
        lacking = {kind: amount - free.get(kind, 0) for kind, amount in wanted.items()}
        lacking = {kind: amount for kind, amount in lacking.items() if amount > 0}
        for end, amounts in sorted(self._by_worker.get(worker, ()), key=lambda one: one[0]) if lacking else ():
            lacking = {kind: amount - amounts.get(kind, 0) for kind, amount in lacking.items()}
            lacking = {kind: amount for kind, amount in lacking.items() if amount > 0}
            if not lacking:
                return end
        return inf if lacking else self.now


def _end(run: RunView, now: float) -> float:
    """Return when a task must have ended; one that is being stopped, or is overdue, may end at any moment."""
    return now if run.stopping else max(run.until, now) if run.until else inf


def next_end(runs: Iterable[RunView], now: float) -> float:
    """Return when the first of some tasks must have ended."""
    return min((_end(run, now) for run in runs), default=inf)
