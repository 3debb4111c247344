"""Match, select and schedule together: the jobs of LCG-2005 over its 170 sites under a virtual clock.

`python -m benchmarks.grid FOLDER` replays the trace of the folder three times and prints a table: every job at the
site where it ran, a site drawn at random for each, and the site with the shortest queue for its size. Each job is
matched with all clusters, one of them is selected by the states of that moment, and that cluster's priority policy
plans at once; it plans again when a job ends while others wait.

The trace does not say how large a site is, only that jobs started when they were submitted. A site is taken to have
half as many processors as ever ran jobs at once there, so that there is something to wait for.
"""

from __future__ import annotations

import gzip
import heapq
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rainbow
from rainbow.graph import Cluster
from rainbow.scheduling import JobView, Priority, RunView, Start, View, WorkerView
from rainbow.state_machine import WorkerState
from tests.support.policies.dispatching import Job, divide, job_view, no_matcher, run_view

SHORTEST = [
    {"priority": 1, "steps": [{"filter": "queue_length == 0 and running < processors"}, {"select": "random"}]},
    {
        "priority": 2,
        "steps": [{"calc": "wait=queue_length/processors"}, {"sort_ascending": "wait"}, {"select": "first"}],
    },
]
SELECTIONS: Mapping[str, Mapping[str, Any] | None] = {
    "as it was": None,
    "random": {"selector": "random"},
    "shortest queue": {"selector": "constraint", "options": {"priorities": SHORTEST}},
}
SETTINGS = {"discipline": "easy"}
BOUND = 10.0  # seconds: shorter jobs count as this long
WORKER = "machine"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job of the trace and the site where it ran."""

    job: Job
    site: str


@dataclass
class Site:
    """One cluster: what waits and runs there."""

    name: str
    processors: int
    waiting: dict[str, JobView] = field(default_factory=dict)
    runs: dict[str, RunView] = field(default_factory=dict)

    def plan(self, now: float) -> list[Start]:
        """Start what its policy starts now."""
        whole, remaining = {"core": self.processors}, {"core": self.processors - len(self.runs)}
        worker = WorkerView(WORKER, "k", whole, remaining, WorkerState.READY)
        view = View(
            *(now, SETTINGS, [worker], list(self.waiting.values()), list(self.runs.values())),
            *(no_matcher, lambda _: frozenset("k"), divide),
        )
        return [order for order in Priority().plan(view).orders if isinstance(order, Start)]

    @property
    def state(self) -> dict[str, int]:
        """What selection may know of it."""
        return {"queue_length": len(self.waiting), "running": len(self.runs), "processors": self.processors}


def read_grid(path: Path) -> list[Arrival]:
    """Return the trace's jobs by submission; every one wants one processor."""
    results = []
    for line in gzip.decompress(path.read_bytes()).decode("latin-1").splitlines():
        if line.strip() and not line.startswith(";"):
            said = line.split()
            number, submit, run, site = int(said[0]), float(said[1]), float(said[3]), said[15]
            if run > 0:
                results.append((submit, number, run, site))
    return [Arrival(Job(f"{n:07}", submit, 1, run, run), f"site{site}") for submit, n, run, site in sorted(results)]


def sizes(arrivals: Sequence[Arrival]) -> dict[str, int]:
    """Return {site: half of the most jobs that ever ran there at once}."""
    changes: dict[str, list[tuple[float, int]]] = {}
    for one in arrivals:
        changes.setdefault(one.site, []).extend([(one.job.submit, 1), (one.job.submit + one.job.runtime, -1)])
    results = {}
    for site, steps in changes.items():
        level = most = 0
        for _, step in sorted(steps):
            level += step
            most = max(most, level)
        results[site] = (most + 1) // 2
    return results


def cluster_of(name: str, processors: int) -> Cluster:
    """A cluster of one pool of processors, written as a template."""
    vertices = {"c": {"type": "cluster"}, "n": {"type": "node"}, "k": {"type": "core", "count": processors}}
    edges = [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}]
    document = {"graph": {"nodes": {key: {"metadata": data} for key, data in vertices.items()}, "edges": edges}}
    return rainbow.read_cluster(document, name=name)


class Grid:
    """All sites under one clock."""

    def __init__(self, processors: Mapping[str, int], how: Mapping[str, Any] | None) -> None:
        self.sites = {name: Site(name, size) for name, size in processors.items()}
        self.clusters = [cluster_of(name, size) for name, size in processors.items()]
        self.states = {name: site.state for name, site in self.sites.items()}
        self.request = rainbow.parse_jobspec({"resources": {"one": {"type": "core"}}})
        self.how = how
        self.ends: list[tuple[float, str, str]] = []
        self.jobs: dict[str, Job] = {}
        self.starts: dict[str, float] = {}
        self.plans = 0

    def run(self, arrivals: Sequence[Arrival]) -> None:
        """Let every job arrive, run and end."""
        for one in arrivals:
            self._until(one.job.submit)
            self.jobs[one.job.id] = one.job
            site = self.sites[one.site if self.how is None else self._chosen(one.job)]
            site.waiting[one.job.id] = job_view(one.job)
            self._plan(site, one.job.submit)
        self._until(float("inf"))

    def _chosen(self, job: Job) -> str:
        verdicts = rainbow.match(self.request, self.clusters)
        choice = rainbow.select(self.request, verdicts, self.states, seed=job.id, **(self.how or {}))
        assert choice.cluster is not None
        return choice.cluster

    def _until(self, now: float) -> None:
        """Let everything end that ends by now."""
        while self.ends and self.ends[0][0] <= now:
            time_, name, job = heapq.heappop(self.ends)
            site = self.sites[name]
            del site.runs[job]
            self._plan(site, time_)

    def _plan(self, site: Site, now: float) -> None:
        if site.waiting:
            self.plans += 1
        for order in site.plan(now) if site.waiting else ():
            job = self.jobs[order.task]
            del site.waiting[job.id]
            site.runs[job.id] = run_view(job, order.placement, now)
            self.starts[job.id] = now
            heapq.heappush(self.ends, (now + job.runtime, site.name, job.id))
        self.states[site.name] = site.state


def rows(every: Sequence[Arrival], most: int) -> Iterator[str]:
    """Yield the table's lines for the first so many jobs; sizes are those of all."""
    processors, arrivals = sizes(every), every[:most]
    yield f"{len(arrivals):,} jobs, {len(processors)} sites, {sum(processors.values()):,} processors"
    titles = ("selection", "mean wait (s)", "longest wait (h)", "bounded slowdown", "jobs that waited", "plans")
    yield f"| {' | '.join(titles)} | replayed in (s) |"
    yield "|---|---|---|---|---|---|---|"
    for name, how in SELECTIONS.items():
        begin = time.process_time()
        grid = Grid(processors, how)
        grid.run(arrivals)
        waits = {one.job.id: grid.starts[one.job.id] - one.job.submit for one in arrivals}
        slow = [max(1.0, (waits[o.job.id] + o.job.runtime) / max(o.job.runtime, BOUND)) for o in arrivals]
        waited = sum(wait > 0 for wait in waits.values()) / len(waits)
        mean, longest = sum(waits.values()) / len(waits), max(waits.values()) / 3600
        spent = time.process_time() - begin
        figures = f"{mean:,.0f} | {longest:,.1f} | {sum(slow) / len(slow):,.1f} | {waited:.1%} | {grid.plans:,}"
        yield f"| {name} | {figures} | {spent:.0f} |"


def main(arguments: list[str]) -> int:
    """Print the table; 2 for wrong usage."""
    if not arguments or not Path(arguments[0]).is_dir():
        print("usage: python -m benchmarks.grid FOLDER [JOBS]", file=sys.stderr)
        return 2
    arrivals = read_grid(Path(arguments[0]) / "LCG-2005.swf.gz")
    most = int(arguments[1]) if len(arguments) > 1 else len(arrivals)
    for line in rows(arrivals, most):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
