"""Where a round's gangs go: what is idle, what a gang costs, and why one cannot be placed.

    unit   what percents count: here whole workers, each serving one gang at a time; sharing.py counts amounts

The matcher is asked about few workers first: were it shown every idle one for every start, a round would cost
starts times workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from rainbow.scheduling import away
from rainbow.scheduling.census import Census
from rainbow.scheduling.english import some
from rainbow.scheduling.idle import Idle
from rainbow.scheduling.policy import GangView, JobView, Placement, Start, View, Wait

if TYPE_CHECKING:
    from rainbow.matching import Take
    from rainbow.scheduling.victims import Unit


class Placing:
    """The workers and consumables of one round, and the starts that took some."""

    unit = "worker"

    def __init__(self, view: View, census: Census) -> None:
        self.view = view
        self.census = census
        self.orders: list[Start] = []
        self.ready = census.ready
        self.consumables = dict(view.consumables)
        self._costs: dict[str, int] = {}
        self._prepare()

    def _prepare(self) -> None:
        self._idle = Idle(self.census.idle)

    def _one_of(self, kind: str) -> str | None:
        """Name a ready worker of a kind."""
        ranked = self.census.kinds.get(kind)
        return ranked.items()[0][1] if ranked else None

    @property
    def total(self) -> int:
        """How many units all ready workers have."""
        return self.ready

    @property
    def left(self) -> int:
        """How many units are idle."""
        return len(self._idle)

    def held(self, placements: Iterable[Placement]) -> int:
        """Count the units that are held by tasks of these placements."""
        return len({worker for placement in placements for worker in placement if worker})

    def held_by(self, requestors: Collection[str]) -> int:
        """Count the units that tasks of these requestors hold."""
        held = sum(len(self.census.held[requestor].workers) for requestor in requestors)
        shared = (sum(one in requestors for one in self.census.holders(worker)) for worker in self.census.mixed)
        return held - sum(max(0, times - 1) for times in shared)

    # ── start ──

    def cost(self, gang: GangView) -> int:
        """How many units a gang takes if all that is ready were idle; 0 if even that cannot host it."""
        if gang.demand not in self._costs:
            self._costs[gang.demand] = self._cost(gang)
        return self._costs[gang.demand]

    def _cost(self, gang: GangView) -> int:
        for kind in sorted(self.view.hosts(gang.demand)):
            one = self._one_of(kind)
            if one is not None and self.view.place(gang.demand, [one]):
                return 1
        take = self.view.place(gang.demand, self.census.everyone()) if self.ready else None
        return len(workers_of(take.placed)) if take else 0

    def start(self, gang: GangView, most: int) -> int:
        """Start a gang on what is idle if it fits there; return how many units it took, none if it did not start."""
        take = self._find(gang, most)
        if take is None or not self._consume(take.placed):
            return 0
        placements = self.view.divide(gang.demand, take)
        self.orders.extend(Start(task, placed) for task, placed in zip(gang.tasks, placements, strict=True))
        return self._book(gang, take)

    def _book(self, gang: GangView, take: Take) -> int:
        self._idle.take(workers_of(take.placed))
        return self.cost(gang)

    def _find(self, gang: GangView, most: int) -> Take | None:
        if self.cost(gang) > most:
            return None
        few = self._idle.first(self.view.hosts(gang.demand), self.cost(gang))
        if not few:
            return None
        return self.view.place(gang.demand, few) or self.view.place(gang.demand, list(self._idle))

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

    def keep(self, gang: GangView, most: int) -> int:
        """Keep idle units for a gang that lacks some; none if only the cluster's consumables are lacking."""
        if self._find(gang, self.cost(gang)):
            return 0
        kept = self._idle.first(self.view.hosts(gang.demand), most)
        self._idle.take(kept)
        return len(kept)

    # ── stop ──

    def victims(self, gang: GangView, units: list[Unit]) -> list[Unit]:
        """Return the newest units whose workers can host the gang and no more; none if there are none."""
        hosts, wanted = self.view.hosts(gang.demand), self.cost(gang)
        chosen: list[Unit] = []
        for unit in units:
            if unit.size <= wanted and all(self._kind_of(worker) in hosts for worker in unit.workers):
                chosen.append(unit)
                wanted -= unit.size
            if not wanted:
                break
        freed = sorted(worker for unit in chosen for worker in unit.workers)
        return [] if wanted or self.view.place(gang.demand, freed) is None else chosen

    def _kind_of(self, worker: str) -> str:
        return self.census.workers[worker].kind if worker in self.census.workers else ""

    # ── for people ──

    def unhosted(self, job: JobView) -> Wait:
        """Say that no ready worker could ever host what a job waits to start."""
        others = away.told(self.census)
        text = f"none of the {some(self.ready, 'ready worker')} can host it{others and f'; {others}'}"
        return Wait(job.id, "no-ready-host", text, {"ready": self.ready, **away.facts(self.census)})

    def busy(self, job: JobView, gang: GangView, name: str, kept: int) -> Wait:
        """Say that a gang waits for units that are busy."""
        wanted = self.cost(gang)
        free, left = some(wanted, f"free {self.unit}"), some(kept, "is", "are")
        text = f"needs {free} at once and what it wants of the cluster; {left} kept"
        return Wait(job.id, f"{self.unit}s-busy", text, {"class": name, "wanted": wanted, "kept": kept})


def workers_of(placed: Any) -> set[str]:
    """Return the distinct workers of a take's slots; what lies outside every worker is none."""
    return {worker for _, held in placed for worker in held if worker}
