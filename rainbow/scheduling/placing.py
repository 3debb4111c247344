"""Where a round's gangs go: what is idle, what a gang costs, and why one cannot be placed.

The matcher is asked about few workers first: were it shown every idle one for every start, a round would cost
starts times workers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rainbow.jobs import WorkerState
from rainbow.scheduling.idle import Idle
from rainbow.scheduling.policy import GangView, JobView, Start, View, Wait

if TYPE_CHECKING:
    from rainbow.matching import Take


class Placing:
    """The workers and consumables of one round, and the starts that took some."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.orders: list[Start] = []
        ready = [worker for worker in view.workers if worker.state is WorkerState.READY]
        self.ready = len(ready)
        self.idle = Idle(worker for worker in ready if not worker.tasks)
        self._ready = ready
        self._one_of_kind = {worker.kind: worker.id for worker in reversed(ready)}
        self.consumables = dict(view.consumables)
        self._costs: dict[str, int] = {}

    def cost(self, gang: GangView) -> int:
        """How many workers a gang takes if all that are ready were idle; 0 if even they cannot host it."""
        if gang.demand not in self._costs:
            self._costs[gang.demand] = self._cost(gang)
        return self._costs[gang.demand]

    def _cost(self, gang: GangView) -> int:
        for kind in sorted(self.view.hosts(gang.demand)):
            if kind in self._one_of_kind and self.view.place(gang.demand, [self._one_of_kind[kind]]):
                return 1
        take = self.view.place(gang.demand, [worker.id for worker in self._ready]) if self.ready else None
        return len(workers_of(take.placed)) if take else 0

    def start(self, gang: GangView) -> bool:
        """Start a gang on idle workers if it fits there."""
        take = self._find(gang)
        if take is None or not self._consume(take.placed):
            return False
        placements = self.view.divide(gang.demand, take)
        self.orders.extend(Start(task, placed) for task, placed in zip(gang.tasks, placements, strict=True))
        self.idle.take(workers_of(take.placed))
        return True

    def _find(self, gang: GangView) -> Take | None:
        few = self.idle.first(self.view.hosts(gang.demand), self.cost(gang))
        if not few:
            return None
        return self.view.place(gang.demand, few) or self.view.place(gang.demand, list(self.idle))

    def _consume(self, placed: Any) -> bool:
        """Take what a gang wants of the cluster's consumables, all or nothing."""
        outside = [held[""] for _, held in placed if "" in held]
        wanted: Counter[str] = Counter()
        for amounts in outside:
            wanted.update(amounts)
        if any(amount > self.consumables.get(kind, 0) for kind, amount in wanted.items()):
            return False
        self.consumables.update({kind: self.consumables[kind] - amount for kind, amount in wanted.items()})
        return True

    def keep(self, gang: GangView, most: int) -> list[str]:
        """Keep idle workers for a gang that lacks some; none if only the cluster's consumables are lacking."""
        kept = [] if self._find(gang) else self.idle.first(self.view.hosts(gang.demand), most)
        self.idle.take(kept)
        return kept

    # ── for people ──

    def unhosted(self, job: JobView) -> Wait:
        """Say that no ready worker could ever host what a job waits to start."""
        if not self.ready:
            return Wait(job.id, "no-worker-ready", "no worker is ready: its cluster's agent has not been seen")
        text = f"none of the {self.ready} ready workers can host it; others are offline, lost or draining"
        return Wait(job.id, "no-ready-host", text, {"ready": self.ready})

    def busy(self, job: JobView, gang: GangView, name: str, kept: int) -> Wait:
        """Say that a gang waits for workers that are busy."""
        wanted = self.cost(gang)
        text = f"needs {wanted} free workers at once and what it wants of the cluster; {kept} are kept"
        return Wait(job.id, "workers-busy", text, {"class": name, "wanted": wanted, "kept": kept})


def workers_of(placed: Any) -> set[str]:
    """Return the distinct workers of a take's slots; what lies outside every worker is none."""
    return {worker for _, held in placed for worker in held if worker}
