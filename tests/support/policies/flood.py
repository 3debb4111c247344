"""One cluster under a moved clock, on which others submit without end; the product's planner plans."""

from __future__ import annotations

import random
from math import inf
from typing import Any

from rainbow.forecast import VirtualCluster
from rainbow.graph import read_cluster
from rainbow.jobspec import parse_jobspec
from rainbow.scheduling import Start, check_plan, policies
from rainbow.simulation import Arrival
from rainbow.simulation.simulate import Recorded
from rainbow.simulation.world import Compiled


def cluster_of(nodes: int, cores: int):
    """Return a cluster of equal nodes."""
    types = {"c": "cluster", "n": "node", "k": "core"}
    counts = {"n": {"count": nodes}, "k": {"count": cores}}
    vertices = {key: {"metadata": {"type": kind, **counts.get(key, {})}} for key, kind in types.items()}
    edges = [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}]
    return read_cluster({"graph": {"nodes": vertices, "edges": edges}}, name="oak")


def jobspec(kind: str = "core", count: int = 1, tasks: int = 1, priority: int = 0) -> dict[str, Any]:
    """Return a job of so many slots, as one gang, or with several tasks of one slot each, apart from each other."""
    system = {"priority": priority} if priority else {}
    resources = {f"r{k}": {"type": kind, "count": count} for k in range(tasks)}
    return {
        "version": 1,
        "resources": resources,
        "tasks": [{"command": ["true"], "resources": name} for name in resources],
        "attributes": {"system": system},
    }


class Flood:
    """Jobs of others that always wait, until a job starts or the time is over. `passed`: others that started."""

    def __init__(self, policy: str, settings: dict[str, Any], nodes: int, cores: int, seed: int = 0) -> None:
        self.compiled, self.lengths = Compiled(cluster_of(nodes, cores)), Recorded()
        chosen = policies.get(policy)
        view = self.compiled.view(0.0, chosen.check(settings))
        self.virtual = VirtualCluster(view, chosen, self.lengths)
        self.chance, self.number, self.passed = random.Random(seed), 0, 0
        self.started: dict[str, float] = {}  # by task

    def submit(self, spec: dict[str, Any], user: str, run: float, limit: float = 0.0, **more: Any) -> str:
        """Let a job arrive now; return its name."""
        self.number += 1
        name = f"j{self.number:05}"
        arrival = Arrival(name, self.virtual.now, 1, run, limit, requestor=user, jobspec=spec, **more)
        self.lengths.of_job[name] = arrival
        self.virtual.submit(self.compiled.job(arrival, parse_jobspec(spec)))
        return name

    def plan(self) -> None:
        """Plan once and carry that out."""
        view = self.virtual.view()
        plan = self.virtual.next_plan(view)
        check_plan(view, plan)
        self.started |= {order.task: self.virtual.now for order in plan.orders if isinstance(order, Start)}
        self.virtual.carry_out(plan)

    @property
    def waiting(self) -> int:
        """Count the jobs that wait."""
        return sum(1 for job in self.virtual.jobs.values() if job.gangs)

    def fill(self, always, waiting: int) -> None:
        """Let others submit until so many of them wait."""
        while self.waiting < waiting:
            always(self)
            self.plan()

    def until(self, tasks: set[str], end: float, always, waiting: int) -> float:
        """Return when all of some tasks have started, infinite if they have not by `end`; `always` submits a job."""
        while self.virtual.now <= end:
            while self.waiting < waiting + 1:
                always(self)
            self.plan()
            if tasks <= self.started.keys():
                return max(self.started[task] for task in tasks)
            following = self.virtual.next_time()
            self.virtual.advance(min(end + 1, following if following is not None else inf, self.virtual.now + 600.0))
        return inf
