"""The world of a simulation: clusters compiled for matching, who plans on them, and how one is selected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from rainbow.forecast import Bounds, Key, Length, RunHistory, VirtualCluster, forecast, left, length_of
from rainbow.forecast.lengths import RUNS
from rainbow.forecast.outlook import Arriving, ClusterForecast, Outlook, ask_of
from rainbow.graph import Cluster, read_cluster
from rainbow.jobspec import Request, parse_jobspec
from rainbow.matching import (
    DEFAULT_BACKEND,
    backends,
    consumables,
    eligible_worker_classes,
    match,
    measures,
    settled,
    worker_capacity,
    worker_kinds,
)
from rainbow.scheduling import (
    Gang,
    GangView,
    JobView,
    Policy,
    RunView,
    SlotsView,
    View,
    WorkerView,
    gangs,
    placements,
    policies,
)
from rainbow.scheduling.gangs import slots_on
from rainbow.scheduling.qos import Rules
from rainbow.simulation.arrival import Arrival
from rainbow.state_machine import WorkerState, task_id

if TYPE_CHECKING:
    from rainbow.matching import Take, Verdict
    from rainbow.scheduling.snapshot import Placement


@dataclass(frozen=True, slots=True)
class Governed:
    """A policy by name, and its settings."""

    policy: str = "priority"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def checked(self) -> tuple[Policy, Mapping[str, Any]]:
        """Return the policy, and its settings with every default; PolicyError names the first fault."""
        chosen = policies.get(self.policy)
        return chosen, chosen.check(self.settings)


@dataclass(frozen=True, slots=True)
class World:
    """Clusters, what governs each (by name; "": all others), and how one of those that match is selected.

    `rules`: the limits and rights to preempt that hold on each, by name, as they are stored.
    `recorded`: a job goes to the cluster where it ran, if it is one of these.
    """

    clusters: Sequence[Cluster]
    governed: Mapping[str, Governed] = field(default_factory=lambda: {"": Governed()})
    selector: str = "random"
    options: Mapping[str, Any] = field(default_factory=dict)
    recorded: bool = False
    rules: Mapping[str, Rules] = field(default_factory=dict)

    def of(self, cluster: str) -> Governed:
        """Return what governs a cluster."""
        return self.governed.get(cluster) or self.governed.get("") or Governed()


def machine(cores: int, name: str = "machine") -> Cluster:
    """Return a cluster of one node with some cores: a machine as traces know it."""
    vertices = {"c": {"type": "cluster"}, "n": {"type": "node"}, "k": {"type": "core", "count": cores}}
    edges = [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}]
    document = {"graph": {"nodes": {key: {"metadata": data} for key, data in vertices.items()}, "edges": edges}}
    return read_cluster(document, name=name)


class Requests:
    """The requests of jobs: each jobspec is parsed once, equal requests are matched once."""

    def __init__(self, clusters: Sequence[Cluster]) -> None:
        self.clusters = clusters
        self._of_slots: dict[int, Request] = {}
        self._fitting: dict[bytes, dict[str, Verdict]] = {}

    def of(self, arrival: Arrival) -> Request:
        """Return what a job asks for."""
        if arrival.jobspec is not None:
            return parse_jobspec(arrival.jobspec)
        if arrival.slots not in self._of_slots:
            self._of_slots[arrival.slots] = parse_jobspec(_cores(arrival.slots))
        return self._of_slots[arrival.slots]

    def fitting(self, request: Request) -> Mapping[str, Verdict]:
        """Return the clusters that match, as if they were empty, by name."""
        if request.key not in self._fitting:
            result = match(request, self.clusters)
            self._fitting[request.key] = {one.cluster: one for one in result if one.matched}
        return self._fitting[request.key]


def _cores(slots: int) -> dict[str, Any]:
    slot = {"type": "slot", "count": slots, "label": "task", "with": [{"type": "core", "count": 1}]}
    task = {"command": ["job"], "slot": "task", "count": {"total": 1}}
    return {"version": 1, "resources": [slot], "tasks": [task], "attributes": {"system": {"duration": 0}}}


class Compiled:
    """One cluster: its workers, and the matcher's answers about it, each question asked once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.capacity = worker_capacity(cluster)
        self.cores = sum(amounts.get("core", 0) for amounts in self.capacity.values())
        self._gangs: dict[str, Gang] = {}
        self._demands: dict[Hashable, str] = {}
        self._parts: dict[int, list[tuple[Gang, str]]] = {}
        self._slots: dict[str, tuple[SlotsView, ...]] = {}
        self._hosts: dict[str, frozenset[str]] = {}
        self._takes: dict[tuple[str, frozenset[str]], Take | None] = {}

    def view(self, now: float, settings: Mapping[str, Any]) -> View:
        """Return the empty cluster."""
        kinds = worker_kinds(self.cluster)
        workers = [
            WorkerView(name, kinds[name], amounts, amounts, WorkerState.READY)
            for name, amounts in self.capacity.items()
        ]
        units = {kind: measure.factor for kind, measure in measures(self.cluster).items() if measure.factor != 1}
        answers = (self._place, self._hosting, self._divide)
        return View(now, settings, workers, (), (), *answers, consumables=consumables(self.cluster), units=units)

    def job(self, arrival: Arrival, request: Request) -> JobView:
        """Return a job as this cluster's policy sees it."""
        if request.number not in self._parts:
            self._parts[request.number] = [(gang, self._demand(gang)) for gang in gangs(request)]
        limit = arrival.limit or request.duration
        waiting = tuple(self._gang(arrival.id, gang, demand, limit) for gang, demand in self._parts[request.number])
        tasks = sum(len(gang.tasks) for gang in waiting)
        system = request.attributes.get("system")
        attributes = system if isinstance(system, Mapping) else {}
        owner = (arrival.id, arrival.requestor, arrival.submit)
        return JobView(
            *owner,
            waiting,
            0,
            arrival.priority,
            attributes,
            tasks,
            request.job_class,
            account=arrival.account,
            qos=arrival.qos,
        )

    def _demand(self, gang: Gang) -> str:
        """Name what a gang asks for: equal ones share a name, and the answers."""
        key = (gang.request.key, tuple(task.labels for task in gang.tasks))
        if key not in self._demands:
            gang = replace(gang, request=settled(gang.request, self.cluster))
            demand = self._demands[key] = str(len(self._demands))
            self._gangs[demand] = gang
            self._slots[demand] = slots_on(self.cluster, gang.request)
        return self._demands[key]

    def _gang(self, job: str, gang: Gang, demand: str, limit: float) -> GangView:
        tasks = tuple(task_id(job, task.index) for task in gang.tasks)
        request = self._gangs[demand].request
        return GangView(job, gang.number, tasks, demand, limit, self._slots[demand], request.number)

    def _place(self, demand: str, workers: Sequence[str]) -> Take | None:
        key = (demand, frozenset(workers))
        if key not in self._takes:
            backend = backends.get(DEFAULT_BACKEND)
            self._takes[key] = backend.take(self._gangs[demand].request, self.cluster, key[1])
        return self._takes[key]

    def _hosting(self, demand: str) -> frozenset[str]:
        if demand not in self._hosts:
            self._hosts[demand] = eligible_worker_classes(self._gangs[demand].request, self.cluster)
        return self._hosts[demand]

    def _divide(self, demand: str, take: Take) -> Sequence[Placement]:
        return placements(self._gangs[demand], take)


# ── eta.* ──
# Lengths are learned from what has ended, as at a server. Left out: bands and corrections by how forecasts turned
# out, and the speeds of other clusters, which a server compares by runs of the same name.

STALE = 60.0  # seconds after which a cluster where nothing happens is forecast again, as a server does
AFTER = 1e-5  # seconds by which a forecast is made after what was booked before: it has all of it
BOUNDS = Bounds()


class Learned:
    """How long jobs run on one cluster, by what has ended there."""

    def __init__(self, cluster: str, of_job: Mapping[str, Arrival]) -> None:
        self.cluster, self.of_job = cluster, of_job
        self.recent: dict[Key, list[float]] = {}
        self.known = RunHistory(self.recent)

    def key(self, job: str, slots: int = 0) -> Key:
        """Return what runs like a job are remembered by."""
        return Key(self.cluster, self.of_job[job].requestor, self.of_job[job].job_class or "job", "", slots)

    def ended(self, job: str, seconds: float) -> None:
        """Take over how long a job has run."""
        for key, _ in self.key(job, self.of_job[job].slots).levels():
            self.recent[key] = [*self.recent.get(key, ()), seconds][-RUNS:]

    def length(self, job: str, limit: float) -> Length:
        """Predict how long a job runs."""
        return length_of(self.known, self.key(job, self.of_job[job].slots), limit)

    def of(self, job: JobView, gang: GangView) -> Length:
        """Predict a gang that waits."""
        return self.length(job.id, gang.expected)

    def left(self, run: RunView, now: float) -> float:
        """Predict how many more seconds a task runs."""
        limit = run.until - run.started if run.until else 0.0
        return left(self.known, self.key(run.job, self.of_job[run.job].slots), max(0.0, now - run.started), limit)


class Forecasts:
    """The last forecast of each cluster, and what has been booked since."""

    def __init__(self, clusters: Mapping[str, VirtualCluster], of_job: Mapping[str, Arrival]) -> None:
        self.clusters = clusters
        self.outlook = Outlook()
        self.learned = {name: Learned(name, of_job) for name in clusters}
        self.changed = set(clusters)
        self._at = dict.fromkeys(clusters, -inf)

    def ended(self, cluster: str, jobs: Collection[str]) -> None:
        """Learn from what has ended at a cluster."""
        for job in jobs:
            span = self.clusters[cluster].spans[job]
            self.learned[cluster].ended(job, span.end - span.start)

    def arriving(
        self,
        arrival: Arrival,
        job_on: Callable[[str], JobView],
        names: Sequence[str],
        read: Sequence[str],
        now: float,
    ) -> Arriving:
        """Say when a job would start and end on each of some clusters."""
        for name in names:
            if name in self.changed or not 0 <= now - self._at[name] < STALE:
                self._look_ahead(name, now)
        gangs = job_on(names[0]).gangs
        gang = max(gangs, key=lambda one: len(one.slots))
        ask, ids = ask_of(gang.slots, len(gangs), {"nodes": len(gang.tasks)}), {name: name for name in names}
        predicted = [self.learned[name].length(arrival.id, gang.expected).seconds for name in names]
        made = self.outlook.ask(ids, ask, np.array(predicted), now)
        return Arriving(self.outlook, ask, ids, made, now, read)

    def _look_ahead(self, name: str, now: float) -> None:
        cluster, learned = self.clusters[name], self.learned[name]
        cluster.now = now
        made = forecast(cluster.view(), cluster.policy, learned, (), BOUNDS, rules=cluster.rules)
        runs = learned.recent.get(Key(name))
        self.outlook.put(name, ClusterForecast(now + AFTER, made.room, made, length=median(runs) if runs else inf))
        self.changed.discard(name)
        self._at[name] = now
