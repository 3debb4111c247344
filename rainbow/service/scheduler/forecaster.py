"""The thread that forecasts clusters, one at a time, in a small part of a core.

    dirty    something was told of the cluster since its last forecast: these come first
    pace     after each plan it sleeps so long that it uses `scheduler.forecast_share` of a core
    score    how a job's first forecast turned out, once it has started: bands are made of the last 100

A cluster is forecast again after 1 s at the earliest, and after 20 times what its forecast cost. Nothing is done
inside a step or a submit: the cluster is copied while its mirror is held, and planned on the copy.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, inf
from statistics import median
from typing import TYPE_CHECKING, Any

from rainbow.errors import RainbowError, Unavailable
from rainbow.forecast import Bounds, Expected, Forecast, Key, Length, RunHistory, forecast, left, length_of, score
from rainbow.forecast.outlook import ClusterForecast
from rainbow.scheduling import GangView, JobView, RunView, View, policies, traits_of
from rainbow.scheduling.rules.running_limits import owner_of
from rainbow.service.core.counters import count, gauge, observe
from rainbow.service.core.service import Outlook, log
from rainbow.service.core.threads import Threads
from rainbow.service.live_state.matcher_cache import MatcherCache
from rainbow.service.live_state.mirror import Mirrors, mirrored
from rainbow.service.placement.arrival import runs_elsewhere
from rainbow.service.placement.replacement import is_due
from rainbow.service.scheduler.model_fits import fit_if_due
from rainbow.service.scheduler.view import Frozen, take_snapshot
from rainbow.state_machine import index_of
from rainbow.store import clusters, statistics, workers

if TYPE_CHECKING:
    from rainbow.jobspec import Request, Resource
    from rainbow.scheduling.qos import Rules
    from rainbow.service.core.service import RegisteredCluster, Service
    from rainbow.service.live_state.mirror import Mirror

BOUNDS = Bounds()
MOST = 2.0  # seconds of the processor for plans ahead, of one forecast
SHORTEST = 1.0  # seconds between two forecasts of a cluster
TIMES = 20  # what a forecast cost, until the next of its cluster
SLICE = 1.0  # seconds after which a turn looks again whose turn it is
STALE = 60.0  # seconds after which a cluster where nothing happens is forecast again
LEAST = 0.001  # of a core, for what is under way when forecasts are turned off
PAUSE = 0.25  # seconds between two looks for dirty clusters
GRAIN = 0.002  # seconds of the processor that are not slept for
STORED = 10.0  # seconds between two times that a room is stored for other processes
WRITTEN = 1_000  # forecasts of jobs in one transaction
MOVED = 0.05  # part of its wait, and a minute, by which a start must have moved to be written again


class Ending(Exception):  # no error: the server ends
    """The forecast is not finished."""


@dataclass
class Pace:
    """Sleeps off what was used; False once a forecast has used as much as it may."""

    share: float
    ending: threading.Event
    used: float = 0.0

    def __post_init__(self) -> None:
        self._since = time.thread_time()

    def __call__(self) -> bool:
        """Sleep if there is reason to; return whether to plan on."""
        spent = time.thread_time() - self._since
        if spent >= GRAIN:
            self.used += spent
            if self.ending.wait(spent * (1 / self.share - 1)):
                raise Ending
            self._since = time.thread_time()
        return self.used < MOST


@dataclass(frozen=True, slots=True)
class Copy:
    """A cluster as it was when its mirror was held: its view, and what its lengths are looked up by."""

    view: View
    policy: str
    keys: Mapping[tuple[str, int], Key]  # of what waits: by job and number of the gang
    runs: Mapping[str, tuple[Key, float, float]]  # of what runs: by task, when it started, its limit
    cores: Mapping[tuple[str, int], int]  # of what waits
    live: frozenset[str]
    limit: float
    again: Sequence[JobView] = ()  # with what runs of them and may have to wait again
    rules: Rules | None = None


class Learned:
    """Lengths by what a cluster has run."""

    def __init__(self, copy: Copy, known: RunHistory) -> None:
        self._copy, self._known = copy, known
        self._lengths: dict[tuple[Key, float], Length] = {}

    def of(self, job: JobView, gang: GangView) -> Length:
        """Predict a gang that waits."""
        key, limit = self._copy.keys[job.id, gang.number], gang.expected or self._copy.limit
        result = self._lengths.get((key, limit))
        if result is None:
            result = self._lengths[key, limit] = length_of(self._known, key, limit)
        return result

    def left(self, run: RunView, now: float) -> float:
        """Predict how many more seconds a task runs."""
        key, started, limit = self._copy.runs[run.task]
        return left(self._known, key, max(0.0, now - started), limit)


class Forecaster:
    """Forecasts the clusters of a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.outlook = service.state(Outlook)
        self._ending = threading.Event()
        self._due: dict[str, float] = {}
        self._heard: dict[str, int] = {}
        self._placings: dict[str, tuple[int, MatcherCache]] = {}
        self._written: dict[str, dict[str, float]] = {}  # by cluster: when each job's stored forecast says it starts
        self._stored: dict[str, float] = {}
        self._faults: dict[str, str] = {}
        self._thread = service.state(Threads).make("forecaster", self._run)
        gauge("rainbow_forecast_age_seconds", self._ages)

    def start(self) -> None:
        """Begin to forecast."""
        self._thread.start()

    def stop(self) -> None:
        """End after the plan at hand."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)

    def _ages(self) -> dict[str, float]:
        now, names = self.service.clock(), {entry.id: name for name, entry in self.service.catalogue.items()}
        answer = self.outlook.every()
        return {names[one]: max(0.0, now - of.at) for one, of in answer.items() if one in names and of.forecast}

    def _run(self) -> None:
        while not self._ending.wait(PAUSE):
            try:
                if self.service.turns.scheduling():
                    self.turn()
            except Ending:
                return
            except RainbowError as fault:  # the store is away: it may come back
                log.warning("forecast-delayed", fault=str(fault))
            except Exception as fault:  # a forecast is no reason to end the process, nor to say it all the time
                self._tell("", f"{type(fault).__name__}: {fault}")

    # ── whose turn it is ──

    def turn(self) -> None:
        """Forecast the clusters that are due, dirty ones first."""
        fit_if_due(self.service)
        catalogue, now = self.service.catalogue, self.service.monotonic()
        share = self.service.settings.forecast_share  # it may be exchanged at any moment
        entries = {entry.id: entry for entry in catalogue.values()} if share > 0 else {}
        self.outlook.drop(entries.__contains__)
        for known in (self._due, self._heard, self._placings, self._written, self._stored, self._faults):
            for gone in [one for one in known if one and one not in entries]:
                del known[gone]
        dirty = {one for one in entries if self._heard.get(one) != self.service.news.version(one)}
        due = [one for one in entries if now >= self._due.get(one, 0.0) + (0.0 if one in dirty else STALE)]
        if not due:
            return
        away = self._away(due)
        for one in sorted(due, key=lambda one: (one not in dirty, self._due.get(one, 0.0))):
            self._heard[one] = self.service.news.version(one)
            cost = 0.0 if one in away else self._forecast(entries[one])
            if one in away:
                self.outlook.put(one, ClusterForecast(self.service.clock(), None, fault="no worker is ready"))
            self._due[one] = self.service.monotonic() + max(SHORTEST, TIMES * cost)
            if self.service.monotonic() - now > SLICE:
                return  # others may have become dirty since: these come first

    def _away(self, ids: Sequence[str]) -> set[str]:
        with self.service.store.read() as connection:
            result = workers.unattended(connection, set(ids))
        return {one for one, policy in result.items() if traits_of(policy).needs_workers}

    def _forecast(self, entry: RegisteredCluster) -> float:
        """Forecast one cluster; return what it cost."""
        pace = Pace(max(LEAST, self.service.settings.forecast_share), self._ending)
        try:
            answer = self.look_ahead(entry, pace)
            self._faults.pop(entry.id, None)
        except (Ending, Unavailable):
            raise
        except Exception as fault:  # a policy is anybody's code; of one that does not come back the mirror is taken
            what = f"{type(fault).__name__}: {fault}"
            self._tell(entry.id, what, cluster=entry.cluster.name)
            answer = ClusterForecast(self.service.clock(), None, fault=f"the forecast failed: {what}")
        pace()
        self.outlook.put(entry.id, replace(answer, cost=pace.used))
        observe("rainbow_forecast_seconds", "failed" if answer.fault else "made", pace.used)
        if (mirror := self.service.state(Mirrors).get(entry.id)) and is_due(self.service, entry.id, mirror.limits):
            self.service.tell(entry.id)  # its step moves what would end sooner elsewhere
        return pace.used

    def _tell(self, cluster_id: str, fault: str, **more: str) -> None:
        if self._faults.get(cluster_id) != fault:
            self._faults[cluster_id] = fault
            log.error("forecast-failed", fault=fault, **more)

    # ── one cluster ──

    def look_ahead(self, entry: RegisteredCluster, pace: Pace) -> ClusterForecast:
        """Return a cluster's forecast, and keep what it says of jobs."""
        copy = self._copy(entry)
        if copy is None:
            return ClusterForecast(self.service.clock(), None, fault="the cluster is gone")
        now, waits = copy.view.now, {job.id for job in copy.view.jobs if job.gangs and not job.running}
        with self.service.store.read() as connection:
            keys = {*copy.keys.values(), *(key for key, _, _ in copy.runs.values()), Key(entry.id)}
            recent = statistics.recent(connection, entry.id, keys)
            recent |= runs_elsewhere(self.service, connection, copy.keys.values(), recent)
            scores, missed, ratios = statistics.turned_out(connection, entry.id)
            first = statistics.unscored(connection, entry.id)
            began = statistics.starts(connection, first.keys() - waits)
            cluster = clusters.get(connection, entry.id)
        fresh = {job: _scored(first[job], at) for job, at in began.items()}
        answer = {job: (first[job]["at"], first[job]["planned"]) for job in sorted(first.keys() & waits)}
        late = {job: one for job, one in answer.items() if one[1] < now}
        outside = [
            float(not first[job]["low"] <= at <= first[job]["high"])
            for job, at in began.items()
            if _is_drawn(first[job])
        ]
        past = [
            1.0 for job in answer if first[job]["high"] < now and _is_drawn(first[job])
        ]  # certain before the start
        missed = [*missed, *outside, *past]
        lengths = Learned(copy, RunHistory(recent, ratios))
        scores = [*scores, *fresh.values()]
        policy, again = policies.get(copy.policy), copy.again
        made = forecast(copy.view, policy, lengths, scores, BOUNDS, pace, again, late, missed, copy.rules)
        for job, at in began.items():
            _count(first[job], at, fresh[job])
        own = recent.get(Key(entry.id))
        work = {job.id: _core_hours(job, lengths, copy.cores) for job in copy.view.jobs if job.gangs}
        said = ClusterForecast(
            now,
            made.room,
            made,
            "",
            0.0,
            work,
            median(own) if own else inf,
            copy.limit,
            scores,
            missed,
            ratios,
            registered=cluster.created_at if cluster else now,
        )
        gone = first.keys() - copy.live - began.keys()
        self._keep(entry.id, said, made, waits, set(first), fresh, outside, gone)
        return said

    def _copy(self, entry: RegisteredCluster) -> Copy | None:
        with mirrored(self.service, entry) as mirror:
            seen = take_snapshot(self.service, mirror)
            return self._copied(entry, mirror, seen) if seen else None

    def _copied(self, entry: RegisteredCluster, mirror: Mirror, seen: Frozen) -> Copy:
        view, placing = seen.view, self._placing(entry)
        jobs = list(_first_gangs(view.jobs, BOUNDS.jobs))
        waiting = [(job, gang) for job in jobs for gang in job.gangs]
        placing.gangs = {gang.demand: mirror.placing.gangs[gang.demand] for _, gang in waiting}
        hosts = {gang.demand: view.hosts(gang.demand) for _, gang in waiting}
        again = list(_requeued(mirror, placing, view, seen.rules))
        hosts |= {gang.demand: placing.hosts(gang.demand) for job in again for gang in job.gangs}
        waiting += [(job, gang) for job in again for gang in job.gangs]
        limit = 60.0 * mirror.limits["task_minutes"]
        own = replace(
            view,
            workers=tuple(view.workers),
            jobs=tuple(jobs),
            runs=tuple(view.runs),
            place=placing.place,
            divide=placing.divide,
            hosts=lambda demand: hosts[demand],
            census=None,
            free=None,
            quiet=True,
        )
        keys = {(job.id, gang.number): _key(mirror, job, gang) for job, gang in waiting}
        runs = {run.task: _run(mirror, run, limit) for run in own.runs}
        cores = {(job.id, gang.number): _cores(placing.gangs[gang.demand][0].request) for job, gang in waiting}
        return Copy(own, seen.record.policy, keys, runs, cores, frozenset(mirror.jobs), limit, again, seen.rules)

    def _placing(self, entry: RegisteredCluster) -> MatcherCache:
        """Return this thread's own memory of the matcher's answers."""
        revision, placing = self._placings.get(entry.id, (-1, None))
        if placing is None or revision != entry.revision:
            placing = MatcherCache(entry.cluster, self.service.settings.backend)
            self._placings[entry.id] = entry.revision, placing
        placing.begin()
        return placing

    def _keep(
        self,
        cluster_id: str,
        answer: ClusterForecast,
        made: Forecast,
        waits: set[str],
        known: set[str],
        scores: Mapping[str, float],
        outside: Sequence[float],
        gone: set[str],
    ) -> None:
        """Store what outlives this process: forecasts of jobs that moved, scores, now and then the room."""
        written = self._written.setdefault(cluster_id, {})
        for job in [job for job in written if job not in waits]:
            del written[job]
        moved = [one for job in waits if (one := made.jobs.get(job)) and _has_moved(one, written.get(job), made.at)]
        moved = moved[:WRITTEN]
        now = self.service.monotonic()
        due = now >= self._stored.get(cluster_id, -inf) + STORED
        if not (moved or scores or gone or due):
            return
        with self.service.store.write() as connection:
            said = {one.job: _said(one, answer) for one in moved}
            statistics.put_etas(connection, cluster_id, said, known)
            statistics.add_scores(connection, cluster_id, scores, outside)
            statistics.forget_etas(connection, gone)
            if due:
                length = None if answer.length == inf else answer.length
                content = {"room": made.room.as_json(), "length": length, "limit": answer.limit}
                statistics.put(connection, cluster_id, made.at, content)
        if due:
            self._stored[cluster_id] = now
        written |= {one.job: one.start for one in moved}


def _first_gangs(jobs: Sequence[JobView], most: int) -> Iterator[JobView]:
    """Yield jobs, with the first of all their gangs, that are as many as a forecast looks at."""
    for job in jobs:
        gangs = tuple(job.gangs[:most])
        yield replace(job, gangs=gangs, waiting=sum(len(gang.tasks) for gang in gangs))
        most -= len(gangs)
        if most <= 0:
            return


def _requeued(mirror: Mirror, placing: MatcherCache, view: View, rules: Rules | None) -> Iterator[JobView]:
    """Yield the jobs of which something runs that maintenance or preemption requeues, with those gangs."""
    emptied = {worker for one in view.reservations if one.at_begin == "requeue" for worker in one.placement}
    may_stop = {name for job in view.jobs for name in rules.of(job.qos).preempts} if rules else set()
    lends = bool(rules and rules.parents)
    results: dict[str, set[int]] = {}
    for run in view.runs if emptied or may_stop or lends else ():
        preempted = rules is not None and rules.of(run.qos).name in may_stop
        if preempted or not emptied.isdisjoint(run.placement) or (rules and lends and rules.guarantee(owner_of(run))):
            results.setdefault(run.job, set()).add(run.gang)
    for job, numbers in results.items():
        gangs = (mirror.jobs[job].again(number, placing) for number in sorted(numbers))
        yield mirror.jobs[job].with_gangs([gang for gang in gangs if gang])


def _key(mirror: Mirror, job: JobView, gang: GangView) -> Key:
    live = mirror.jobs[job.id]
    task = live.read.tasks[index_of(gang.tasks[0])]
    slots = sum(part.least for part in gang.slots) or 1
    return Key(mirror.entry.id, job.requestor, live.record.name, task.name, slots)


def _run(mirror: Mirror, run: RunView, limit: float) -> tuple[Key, float, float]:
    task, live = mirror.booked[run.task], mirror.jobs[run.job]
    key = Key(mirror.entry.id, run.requestor, live.record.name, task.name, task.slots)
    started = task.started_at if task.started_at is not None else run.started
    return key, started + task.paused, live.read.request.duration or limit


def _core_hours(job: JobView, lengths: Learned, cores: Mapping[tuple[str, int], int]) -> float:
    total = 0.0
    for gang in job.gangs:
        seconds = lengths.of(job, gang).mean
        total += cores[job.id, gang.number] * seconds / 3_600 if seconds < inf else 0.0
    return total


def _cores(request: Request) -> int:
    """Count the cores a gang asks for."""
    return sum(_cores_in(tree) for tree in request.resources)


def _cores_in(tree: Resource) -> int:
    own = int(tree.type == "core") + sum(map(_cores_in, tree.children))
    return tree.count.min * own


def _is_drawn(first: Mapping[str, Any]) -> bool:
    """Return whether a forecast's band is no guess: of guesses more or fewer starts lie inside, for good."""
    return bool(first.get("typical", True))


def _scored(first: Mapping[str, Any], at: float) -> float:
    return score(at - first["at"], first["planned"] - first["at"])


def _count(first: Mapping[str, Any], at: float, scored: float) -> None:
    """Count how a forecast turned out."""
    where = "before" if at < first["low"] else "after" if at > first["high"] else "inside"
    count("rainbow_forecast_covered", where)
    observe("rainbow_forecast_ratio", "", exp(scored))


def _has_moved(one: Expected, before: float | None, now: float) -> bool:
    if not now < one.start < inf:
        return False
    return before is None or abs(one.start - before) > MOVED * (one.start - now) + 60.0


def _said(one: Expected, of: ClusterForecast) -> dict[str, Any]:
    end = None if one.end == inf else one.end
    shown = of.record.shows(one.low, one.high, of.at)
    typical = of.forecast is not None and of.forecast.typical
    times = {"start": one.start, "end": end, "low": one.low, "high": one.high, "planned": one.planned}
    return {"at": of.at, **times, "how": one.how, "typical": typical, "shown": shown}
