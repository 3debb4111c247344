"""What the workers of a cluster hold, kind by kind and one by one, and the bars of a window of time.

All who ask for the same cluster share what was read of it, until there is news of the cluster.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from rainbow.errors import NotFound
from rainbow.matching import stated_units, worker_capacity
from rainbow.scheduling.snapshot import amounts_by_worker
from rainbow.service.clusters.inventory import rows_by_state
from rainbow.service.core.access import Caller, own_cluster, visible_cluster
from rainbow.service.core.memory import ByCluster, picture
from rainbow.service.core.service import Outlook
from rainbow.state_machine import BOOKED, Task, TaskState, WorkerState
from rainbow.store import jobs, statistics, tasks, workers
from rainbow.store.workers import WorkerRecord

if TYPE_CHECKING:
    from rainbow.service.core.service import RegisteredCluster, Service
    from rainbow.store.clusters import ClusterRecord

SHARE = 0.1  # of a core that reading one cluster again and again may take
STALE = 15.0  # seconds after which it is, news or not
AWAY = {
    WorkerState.NEW: "N",
    WorkerState.LOST: "L",
    WorkerState.OFFLINE: "O",
    WorkerState.QUARANTINED: "Q",
    WorkerState.DRAINING: "D",
}
LEVELS = "0123456789A"  # how full a worker is, in tenths, upwards
SHOWN = ("core", "memory", "gpu")  # amounts that workers are colored by, if they have any
NOTHING: Counter[str] = Counter()
NAME = re.compile(r"(.*?)(0|[1-9]\d{0,8})")


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """What was read of a cluster, with the number of its last news and when that was."""

    version: int
    at: float
    cost: float  # seconds that it took
    clock: float
    states: Mapping[str, WorkerRecord]
    booked: Sequence[Task]
    used: Mapping[str, Counter[str]]
    made: dict[tuple[Any, ...], Any] = field(default_factory=dict)  # what was counted of it, for the next who asks

    def once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return what was made of this before, or make it."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]


@picture("occupancy", most="one for a cluster", true="read again after news, as often as a tenth of a core allows")
class ClusterReadings(ByCluster[ClusterReading]):
    """What was read last of each cluster."""


def _look(service: Service, who: Caller, name: str) -> tuple[ClusterRecord, RegisteredCluster, ClusterReading]:
    with service.store.read() as connection:
        record = visible_cluster(connection, who, name)
    return record, service.entry(record), _seen(service, record)


def _seen(service: Service, record: ClusterRecord) -> ClusterReading:
    looks, now, version = service.state(ClusterReadings), service.monotonic(), service.news.version(record.id)
    known = looks.get(record.id)
    if known and (now < known.at + known.cost / SHARE or (version == known.version and now < known.at + STALE)):
        return known
    with service.store.read() as connection:
        states = workers.of_cluster(connection, record.id)
        booked = tasks.of_cluster(connection, record.id, BOOKED)
    used, cost = amounts_by_worker(task.placement for task in booked), service.monotonic() - now
    looks[record.id] = result = ClusterReading(version, now, cost, service.clock(), states, booked, used)
    return result


# ── all of them, by kind ──


def occupancy(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Say how full each worker is, as one letter for each; workers of one kind together."""
    record, entry, seen = _look(service, who, name)
    kinds = seen.once(("kinds", entry.revision, entry.drained), lambda: _kinds(entry, seen))
    by_worker = record.settings.get("unit") == "worker"
    return {
        "cluster": name,
        "at": seen.clock,
        "whole": by_worker,
        "units": stated_units(entry.cluster),
        "kinds": kinds,
    }


def _kinds(entry: RegisteredCluster, seen: ClusterReading) -> list[dict[str, Any]]:
    capacity = worker_capacity(entry.cluster)
    groups: dict[tuple[Any, ...], list[str]] = {}
    for worker, whole in capacity.items():
        groups.setdefault(tuple(sorted(whole.items())), []).append(worker)
    return [_kind(entry, names, capacity, seen) for names in groups.values()]


def _kind(
    entry: RegisteredCluster, names: Sequence[str], capacity: Mapping[str, Mapping[str, int]], seen: ClusterReading
) -> dict[str, Any]:
    whole = capacity[names[0]]
    letters = [_away(entry, seen.states.get(name)) for name in names]
    held = [seen.used.get(name, NOTHING) for name in names]
    taken = [any(amount > 0 for amount in one.values()) for one in held]
    by = {kind: [one[kind] for one in held] for kind in SHOWN if whole.get(kind)}
    levels = {kind: _line(letters, (used / whole[kind] for used in amounts)) for kind, amounts in by.items()}
    used = {kind: sum(amounts) for kind, amounts in by.items()}
    there = [not letter or letter == "D" for letter in letters]
    return {
        "capacity": {kind: amount for kind, amount in whole.items() if amount and kind != entry.cluster.worker_type},
        "nodes": len(names),
        "idle": sum(not letter and not full for letter, full in zip(letters, taken, strict=True)),
        "taken": sum(taken),
        "away": len(names) - sum(there),
        "draining": letters.count("D"),
        "used": used,
        "all": {kind: whole[kind] * sum(there) for kind in by},
        "names": runs(names),
        "levels": {"taken": _line(letters, map(float, taken)), **levels},
    }


def _away(entry: RegisteredCluster, known: WorkerRecord | None) -> str:
    """Return the letter of a worker that takes nothing; empty of one that does."""
    state = known.state if known else WorkerState.NEW
    return AWAY.get(state, "D" if entry.drained else "")


def _line(letters: Sequence[str], parts: Iterable[float]) -> str:
    return "".join(letter or LEVELS[tenths(part)] for letter, part in zip(letters, parts, strict=True))


def tenths(part: float) -> int:
    """Return a share in steps of ten percent, upwards.

    >>> tenths(0.0), tenths(0.01), tenths(1.0)
    (0, 1, 10)
    """
    return min(10, max(0, -int(-part * 10 // 1)))


def runs(names: Sequence[str]) -> list[list[Any]]:
    """Write names in order as [prefix, first number, how many], or [name].

    >>> runs(["n1", "n2", "n3", "x", "n007"])
    [['n', 1, 3], ['x'], ['n007']]
    """
    result: list[list[Any]] = []
    for name in names:
        parts = NAME.fullmatch(name)
        last = result[-1] if result and len(result[-1]) > 1 else None
        if parts is None or parts[1][-1:].isdigit():
            result.append([name])
        elif last is not None and last[0] == parts[1] and last[1] + last[2] == int(parts[2]):
            last[2] += 1
        else:
            result.append([parts[1], int(parts[2]), 1])
    return result


def rows(service: Service, who: Caller, name: str) -> list[dict[str, Any]]:
    """Count a cluster's workers by state, with what is free of them."""
    _, entry, seen = _look(service, who, name)
    states = {worker: known.state for worker, known in seen.states.items()}
    result: list[dict[str, Any]] = seen.once(
        ("rows", entry.revision, entry.drained), lambda: list(rows_by_state(entry, states, seen.used))
    )
    return result


# ── one worker ──


def worker(service: Service, who: Caller, name: str, worker: str) -> dict[str, Any]:
    """Show one worker: its state, and the tasks that hold some of it, as far as the caller sees their jobs."""
    record, entry, seen = _look(service, who, name)
    whole, known = worker_capacity(entry.cluster).get(worker), seen.states.get(worker)
    if whole is None:
        raise NotFound(f"cluster {name[:100]} has no worker {worker[:100]}")
    held = [task for task in seen.booked if worker in task.placement]
    with service.store.read() as connection:
        owners = {job.id: job for job in jobs.some(connection, {task.job for task in held})}
    shown = [
        {
            "job": task.job,
            "name": owners[task.job].name,
            "requestor": owners[task.job].requestor,
            "task": task.name,
            "state": task.state,
            "amounts": dict(task.placement[worker]),
            "started_at": task.started_at or task.assigned_at,
        }
        for task in held
        if task.job in owners and who.sees_of(record.id, owners[task.job].requestor)
    ]
    return {
        "name": worker,
        "state": known.state if known else WorkerState.NEW,
        "since": known.since if known else None,
        "capacity": dict(whole),
        "used": dict(+seen.used.get(worker, Counter())),
        "units": stated_units(entry.cluster),
        "tasks": shown,
        "hidden": len(held) - len(shown),
    }


def preview(service: Service, who: Caller, name: str, names: Sequence[str]) -> dict[str, Any]:
    """Say what putting these workers away would leave: tasks that run there, and workers that remain ready."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    seen, named = _seen(service, record), set(names)
    if unknown := sorted(named - seen.states.keys()):
        raise NotFound(f"cluster {name[:100]} has no worker {unknown[0][:100]}")
    ready = {one for one, known in seen.states.items() if known.state is WorkerState.READY}
    held = [task for task in seen.booked if named & task.placement.keys()]
    return {
        "workers": sorted(named),
        "tasks": len(held),
        "jobs": sorted({task.job for task in held}),
        "ready": len(ready),
        "remain": len(ready - named),
    }


# ── a window of time ──

DONE, BAD, NOW = range(3)
MOST_BARS = 20_000
LENGTHS = (TaskState.FAILED, TaskState.TIMED_OUT, TaskState.CANCELED)


def bars(service: Service, who: Caller, name: str, begin: float, end: float, limit: int) -> dict[str, Any]:
    """Return what ran, runs and is planned in a window, as columns: one bar for each task and worker."""
    with service.store.read() as connection:
        record = visible_cluster(connection, who, name)
        times = statistics.in_window(connection, record.id, begin, end, limit + 1)
        owners = {job.id: job for job in jobs.some(connection, {task.job for task in times})}
    seen = {key: job for key, job in owners.items() if who.sees_of(record.id, job.requestor)}
    made = Bars(list(worker_capacity(service.entry(record).cluster)))
    for task in times[:limit]:
        if task.job in seen:
            kind = NOW if task.ended_at is None else BAD if task.state in LENGTHS else DONE
            job = seen[task.job]
            for worker in task.placement:
                made.add(job.id, job.name, job.requestor, worker, task.assigned_at, task.ended_at, kind)
    planned = _planned(service, who, record, begin, end, limit)
    return {
        "cluster": name,
        "at": service.clock(),
        **made.columns(limit),
        "planned": planned,
        "cut": len(times) > limit,
    }


class Bars:
    """Bars by column, those of one worker in one lane."""

    def __init__(self, order: Sequence[str]) -> None:
        self._order = {name: at for at, name in enumerate(order)}
        self._rows: list[tuple[str, str, str, str, float, float | None, int]] = []

    def add(self, *row: Any) -> None:
        """Add one bar: job, its name, its requestor, worker, start, end, kind."""
        self._rows.append(row)

    def columns(self, limit: int) -> dict[str, Any]:
        """Return the columns, the newest bars first if there are too many."""
        rows = sorted(self._rows, key=lambda row: -row[4])[:limit]
        lanes = sorted({row[3] for row in rows}, key=lambda one: self._order.get(one, inf))
        people = [one for one, _ in Counter(row[2] for row in rows).most_common()]
        known = {job: at for at, job in enumerate(dict.fromkeys(row[0] for row in rows))}
        names = {row[0]: row[1] for row in rows}
        lane_of, person_of = ({one: at for at, one in enumerate(listed)} for listed in (lanes, people))
        return {
            "lanes": lanes,
            "users": people,
            "jobs": [[job, names[job]] for job in known],
            "job": [known[row[0]] for row in rows],
            "lane": [lane_of[row[3]] for row in rows],
            "user": [person_of[row[2]] for row in rows],
            "start": [round(row[4]) for row in rows],
            "end": [None if row[5] is None else round(row[5]) for row in rows],
            "kind": [row[6] for row in rows],
            "more": len(self._rows) - len(rows),
        }


def _planned(
    service: Service, who: Caller, record: ClusterRecord, begin: float, end: float, limit: int
) -> list[dict[str, Any]]:
    """Return when waiting jobs are expected, with the band; of the caller's own, as everywhere."""
    answer = service.state(Outlook).of(record.id, service.clock())
    if answer is None or answer.forecast is None:
        return []
    ahead = [one for one in answer.forecast.jobs.values() if one.how != "running" and begin <= one.start < end]
    ahead = sorted(ahead, key=lambda one: one.start)[: min(limit, 200)]
    with service.store.read() as connection:
        owners = {job.id: job for job in jobs.some(connection, [one.job for one in ahead])}
    shown = {one.job for one in ahead if answer.record.shows(one.low, one.high, answer.at)}
    return [
        {
            "job": one.job,
            "name": owners[one.job].name,
            "requestor": owners[one.job].requestor,
            **{key: _finite(getattr(one, key)) for key in ("start", "end")},
            **{key: _finite(getattr(one, key)) if one.job in shown else None for key in ("low", "high")},
        }
        for one in ahead
        if one.job in owners and who.speaks_for(record.id, owners[one.job].requestor)
    ]


def _finite(value: float) -> float | None:
    return round(value) if value < inf else None
