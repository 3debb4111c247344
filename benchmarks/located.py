"""Plans on shared nodes: what a start costs whose vertices are chosen, and what a held task takes of memory."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from benchmarks.clusters import with_memory
from benchmarks.timing import heading, once, row, timed
from rainbow.jobspec import Request, parse_jobspec
from rainbow.matching import Occupancy, faults_of
from rainbow.scheduling import GangView, JobView, LoadBased, RunView, View, WorkerView, gangs
from rainbow.scheduling.interface import cluster_index_of
from rainbow.service.live_state.matcher_cache import FreeSpace, MatcherCache
from rainbow.state_machine import WorkerState


def asking(count: int, memory: int) -> Request:
    """Return what a task of so many cores and so much memory asks for."""
    inside = [{"type": "core", "count": count}, {"type": "memory", "count": memory}]
    task = {"command": ["true"], "slot": "work", "count": {"per_slot": 1}}
    slot = {"type": "slot", "count": 1, "label": "work", "with": inside}
    return parse_jobspec({"version": 1, "resources": [slot], "tasks": [task], "attributes": {}})


SHAPES = [asking(cores, memory) for cores in (1, 2, 4) for memory in (2, 5)]


def locating() -> None:
    """Print what plans cost, and what 3 tasks a worker hold of memory, states included."""
    heading("load_based unit: core, ms", "workers", "running", "starts", "first", "again", "us a start")
    for workers, running, starts in ((1_000, 6_000, 10), (1_000, 3_000, 996), (100, 0, 996)):
        used = Used(workers, running)
        first, again = used.planned(starts), used.planned(starts)
        row(workers, running, starts, first, again, again * 1e3 / starts)
    heading(
        "the same with a first job that waits for a whole worker, ms", "workers", "running", "waiting", "ms", "times"
    )
    for workers, running, waiting in ((1_000, 3_000, 5_000), (1_000, 9_000, 5_000)):
        used = Used(workers, running)
        used.planned(waiting, None)
        without, beside = (median(used.planned(waiting, None, head=head) for _ in range(5)) for head in (False, True))
        row(workers, running, waiting, beside, beside / without)
    certificates()
    heading("memory of what is held", "tasks", "bytes a task")
    for workers in (100, 1_000):
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        used = Used(workers, 3 * workers)
        used.forget_counts()
        row(3 * workers, (tracemalloc.get_traced_memory()[0] - before) / (3 * workers))
        tracemalloc.stop()


def certificates() -> None:
    """Print what the check of a start costs: by rows, by what floats on its workers, and by the cluster's size."""
    heading("check of a certificate", "workers", "rows", "floats", "us", "us a row")
    for workers, slots, floats in ((300, 1, 0), (300, 4, 0), (300, 64, 0), (3_000, 64, 0), (300, 4, 4)):
        cluster, request = with_memory(workers), parse_jobspec(_asked(slots))
        take = Occupancy(cluster).take(request)
        assert take is not None
        certificate = take.take.certificate()
        owed = {worker: {"core": 1} for worker in list(take.take.by_worker)[:floats]}
        check = partial(faults_of, request, cluster, certificate, {}, owed)
        assert check() == []
        spent = timed(check)
        row(workers, len(certificate.rows), len(owed), spent, spent / len(certificate.rows))


def _asked(slots: int) -> dict[str, Any]:
    inside = [{"type": "core", "count": 2}, {"type": "memory", "count": 2}]
    task = {"command": ["true"], "slot": "work", "count": {"per_slot": 1}}
    slot = {"type": "slot", "count": slots, "label": "work", "with": inside}
    return {"version": 1, "resources": [slot], "tasks": [task], "attributes": {}}


WHOLE = parse_jobspec({"version": 1, "resources": {"w": {"type": "node"}}, "tasks": [{"command": ["true"]}]})


class Used:
    """A cluster of mixed tasks of cores and memory."""

    def __init__(self, workers: int, running: int) -> None:
        self.chance = random.Random(1)
        self.cluster = with_memory(workers)
        self.placing = MatcherCache(self.cluster, "index")
        self.occupancy = Occupancy(self.cluster)
        self.runs = [run for k in range(running) if (run := self._run(k))]

    def forget_counts(self) -> None:
        """Leave only what holds vertices."""
        del self.runs, self.placing

    def _run(self, k: int) -> RunView | None:
        holding = self.occupancy.take(self.chance.choice(SHAPES))
        if holding is None:
            return None
        placed = holding.slots() if holding.slots else holding.take
        self.occupancy.hold(f"r{k}", tuple(self.occupancy.release(holding.number)))
        held = {w: dict(n) for _, h in placed.placed for w, n in h.items()}
        return RunView(f"r{k}", f"r{k}", f"u{k % 9}", 0, held, 0, until=60.0 * self.chance.randint(1, 999))

    def planned(self, waiting: int, starts: int | None = 0, *, head: bool = False) -> float:
        """Return how many milliseconds a plan takes that starts so many: 0: all that wait, None: any number."""
        view = self._view(waiting)
        if head:
            view = replace(view, jobs=[self._job("head", WHOLE), *view.jobs])
        view = replace(view, census=cluster_index_of(view))
        view.census.everyone()  # the host keeps a census, sorted, from step to step
        view.census.ends.items()
        made: list[int] = []
        spent = once(lambda: made.append(len(LoadBased().plan(view).orders)))
        assert starts is None or made == [starts or waiting], made
        return spent / 1e3

    def _view(self, starts: int) -> View:
        free = FreeSpace(self.placing, self.occupancy)
        kinds, whole = self.placing.kinds, self.placing.capacity
        tasks = Counter(name for run in self.runs for name in run.placement)
        workers = [
            WorkerView(name, kinds[name], whole[name], self.occupancy.free(name), WorkerState.READY, 0.0, tasks[name])
            for name in whole
        ]
        jobs = [self._job(f"j{k}", SHAPES[k % len(SHAPES)]) for k in range(starts)]
        settings = LoadBased().check({"unit": "core"})
        answers = (self.placing.place, self.placing.hosts, self.placing.divide)
        return View(1.0, settings, workers, jobs, self.runs, *answers, units=self.placing.units, free=free)

    def _job(self, name: str, request: Request) -> JobView:
        [gang] = gangs(request)
        ids = [f"{name}-{task.index}" for task in gang.tasks]
        demand = self.placing.demand(name, gang, ids)
        view = GangView(name, 0, tuple(ids), demand, 60.0, self.placing.slots(request), request.number)
        return JobView(name, "ann", 0.0, (view,), waiting=len(ids))
