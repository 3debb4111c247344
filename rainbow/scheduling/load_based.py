"""The load-based policy: classes share the workers by percent, and lend what they do not use.

    1 count    workers each class holds and waits for
    2 grant    entitlements, then loans (shares.py)
    3 pick     round robin: the next gang of the job that runs least
    4 place    the matcher says where; a gang that lacks workers keeps what its class is granted
    5 again    what a class could not use is granted to the others

A worker serves one gang at a time; a gang costs as many workers as its slots pack into.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rainbow.jobs import WorkerState
from rainbow.scheduling.apportion import targets
from rainbow.scheduling.classes import Classes, check_settings, read_classes
from rainbow.scheduling.policy import GangView, JobView, Plan, Start, View, Wait
from rainbow.scheduling.shares import ClassCount, starts


class LoadBased:
    """Plans by class load percents."""

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with every default filled in; PolicyError names the first fault."""
        return check_settings(settings)

    def plan(self, view: View) -> Plan:
        """Start what the classes are entitled to, then what can be lent."""
        round_ = Round(view, read_classes(check_settings(view.settings)))
        while round_.grant_and_place():
            pass
        return Plan(tuple(round_.orders), tuple(round_.waits()), round_.figures(), view.memory)


@dataclass
class Queue:
    """The waiting jobs of one class and how far this round has come with each."""

    jobs: list[JobView]
    next_gang: dict[str, int] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)
    stuck: dict[str, Wait] = field(default_factory=dict)  # why a job goes no further this round

    def head(self) -> tuple[JobView, GangView] | None:
        """Return the next gang of the job that runs least; ties by submission, then id."""
        open_ = [job for job in self.jobs if job.id not in self.stuck and self._next(job) < len(job.gangs)]
        if not open_:
            return None
        job = min(open_, key=lambda j: (j.running + self.started.get(j.id, 0), -j.priority, j.submitted, j.id))
        return job, job.gangs[self._next(job)]

    def advance(self, job: JobView) -> None:
        """Go on to the job's next gang."""
        gang = job.gangs[self._next(job)]
        self.next_gang[job.id] = self._next(job) + 1
        self.started[job.id] = self.started.get(job.id, 0) + len(gang.tasks)

    def left(self, job: JobView) -> tuple[GangView, ...]:
        """Return the gangs of a job that still wait."""
        return job.gangs[self._next(job) :]

    def _next(self, job: JobView) -> int:
        return self.next_gang.get(job.id, 0)


class Round:
    """One planning round: what is idle, what is kept, what was decided."""

    def __init__(self, view: View, classes: Classes) -> None:
        self.view = view
        self.classes = classes
        self.orders: list[Start] = []
        self.ready = [w.id for w in view.workers if w.state is WorkerState.READY]
        self.idle = [w.id for w in view.workers if w.state is WorkerState.READY and not w.tasks]
        self.queues = {
            name: Queue([j for j in view.jobs if classes.of(j.requestor) == name]) for name in classes.percents
        }
        self.held = self._held()
        self.blocked: set[str] = set()  # classes whose head keeps what it is granted
        self.consumables = dict(view.consumables)
        self._costs: dict[str, int] = {}

    def _held(self) -> dict[str, int]:
        """Count the workers each class's tasks hold."""
        workers: dict[str, set[str]] = {name: set() for name in self.classes.percents}
        for run in self.view.runs:
            workers[self.classes.of(run.requestor)].update(run.placement)
        return {name: len(held) for name, held in workers.items()}

    def grant_and_place(self) -> bool:
        """Grant idle workers to classes and start what fits; return whether anything started."""
        started = len(self.orders)
        counts = [
            ClassCount(name, percent, self.held[name], 0 if name in self.blocked else self._waiting(name))
            for name, percent in self.classes.percents.items()
        ]
        granted = starts(len(self.idle), len(self.ready), counts)
        for name in sorted(granted, key=lambda n: (-self.classes.percents[n], n)):
            self._start_class(name, granted[name])
        return len(self.orders) > started

    def _waiting(self, name: str) -> int:
        queue = self.queues[name]
        return sum(self.cost(g) for job in queue.jobs if job.id not in queue.stuck for g in queue.left(job))

    def cost(self, gang: GangView) -> int:
        """How many workers a gang takes if all that are ready were idle; 0 if even they cannot host it."""
        if gang.demand not in self._costs:
            take = self.view.place(gang.demand, self.ready) if self.ready else None
            self._costs[gang.demand] = len(workers_of(take.placed)) if take else 0
        return self._costs[gang.demand]

    def _start_class(self, name: str, granted: int) -> None:
        queue = self.queues[name]
        while (head := queue.head()) is not None:
            job, gang = head
            cost = self.cost(gang)
            if cost == 0:
                queue.stuck[job.id] = self._unhosted(job)
                continue
            if not granted:
                return
            if cost > granted or not self._place(gang):
                self._keep(name, job, gang, granted)
                return
            granted -= cost
            self.held[name] += cost
            queue.advance(job)

    def _place(self, gang: GangView) -> bool:
        take = self.view.place(gang.demand, self.idle)
        if take is None or not self._consume(take.placed):
            return False
        placements = self.view.divide(gang.demand, take)
        self.orders.extend(Start(task, placed) for task, placed in zip(gang.tasks, placements, strict=True))
        taken = workers_of(take.placed)
        self.idle = [worker for worker in self.idle if worker not in taken]
        return True

    def _consume(self, placed: Any) -> bool:
        """Take what a gang wants of the cluster's consumables, all or nothing."""
        wanted: Counter[str] = Counter()
        for _, held in placed:
            wanted.update(held.get("", {}))
        if any(amount > self.consumables.get(kind, 0) for kind, amount in wanted.items()):
            return False
        self.consumables.update({kind: self.consumables[kind] - amount for kind, amount in wanted.items()})
        return True

    def _keep(self, name: str, job: JobView, gang: GangView, granted: int) -> None:
        """Keep idle workers that can host the head's gang, up to the grant; without any, lend the grant."""
        kinds = self.view.hosts(gang.demand)
        kind = {worker.id: worker.kind for worker in self.view.workers}
        kept = [worker for worker in self.idle if kind[worker] in kinds][: min(granted, self.cost(gang))]
        self.idle = [worker for worker in self.idle if worker not in kept]
        self.held[name] += len(kept)
        self.blocked.add(name)
        facts = {"class": name, "wanted": self.cost(gang), "kept": len(kept)}
        text = f"needs {self.cost(gang)} free workers at once and what it wants of the cluster; {len(kept)} are kept"
        self.queues[name].stuck[job.id] = Wait(job.id, "workers-busy", text, facts)

    # ── for people ──

    def _unhosted(self, job: JobView) -> Wait:
        if not self.ready:
            return Wait(job.id, "no-worker-ready", "no worker is ready: its cluster's agent has not been seen")
        text = f"none of the {len(self.ready)} ready workers can host it; others are offline, lost or draining"
        return Wait(job.id, "no-ready-host", text, {"ready": len(self.ready)})

    def waits(self) -> list[Wait]:
        """Say of every job with something waiting why it waits."""
        return [wait for name, queue in self.queues.items() for wait in self._waits_of(name, queue)]

    def _waits_of(self, name: str, queue: Queue) -> Iterator[Wait]:
        target, ahead = self._targets()[name], 0
        for job in sorted(queue.jobs, key=lambda j: (j.submitted, j.id)):
            if queue.left(job):
                yield queue.stuck.get(job.id) or self._share_used(name, job, target, ahead)
                ahead += 1

    def _share_used(self, name: str, job: JobView, target: int, ahead: int) -> Wait:
        facts = {"class": name, "held": self.held[name], "target": target, "idle": len(self.idle), "ahead": ahead}
        text = (
            f"class {name} holds {self.held[name]} of its {target} workers, {len(self.idle)} idle; {ahead} jobs ahead"
        )
        return Wait(job.id, "share-used", text, facts)

    def _targets(self) -> dict[str, int]:
        return targets(len(self.ready), self.classes.percents)

    def figures(self) -> dict[str, Any]:
        """Percent, target, workers held, loaned and waited for, by class."""
        target = self._targets()
        return {
            name: {
                "percent": round(percent, 3),
                "target": target[name],
                "held": self.held[name],
                "loaned": max(0, self.held[name] - target[name]),
                "waiting": sum(len(g.tasks) for job in self.queues[name].jobs for g in self.queues[name].left(job)),
            }
            for name, percent in self.classes.percents.items()
        }


def workers_of(placed: Any) -> set[str]:
    """Return the distinct workers of a take's slots; what lies outside every worker is none."""
    return {worker for _, held in placed for worker in held if worker}
