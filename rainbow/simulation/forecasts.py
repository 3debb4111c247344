"""`eta.*` under a virtual clock: the server's forecasts, rooms and bookings, renewed where something happens.

Lengths are learned from what has ended, as a server learns them. What is left out: bands and corrections by how
forecasts turned out, and the speed of other clusters, which a server compares by runs of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from statistics import median

import numpy as np

from rainbow.forecast import Bounds, Key, Known, Length, VirtualCluster, forecast, left, length_of
from rainbow.forecast.lengths import RUNS
from rainbow.forecast.outlook import Arriving, Outlook, Told, ask_of
from rainbow.scheduling import GangView, JobView, RunView
from rainbow.simulation.arrival import Arrival

STALE = 60.0  # seconds after which a cluster where nothing happens is forecast again, as a server does
AFTER = 1e-5  # seconds by which a forecast is made after what was booked before: it has all of it
BOUNDS = Bounds()


class Learned:
    """How long jobs run on one cluster, by what has ended there."""

    def __init__(self, cluster: str, of_job: Mapping[str, Arrival]) -> None:
        self.cluster, self.of_job = cluster, of_job
        self.recent: dict[Key, list[float]] = {}
        self.known = Known(self.recent)

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
        self.outlook.put(name, Told(now + AFTER, made.room, made, length=median(runs) if runs else inf))
        self.changed.discard(name)
        self._at[name] = now
