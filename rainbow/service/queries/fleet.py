"""All clusters at a glance: how each is, what waits there, which needs its operator first, and the last 24 hours.

Each cluster's counts are kept in memory with the number of its last news; a question reads those again that have had
news since. All who ask share them, so that a hundred viewers cost what one costs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from rainbow.errors import RainbowError
from rainbow.service.agents.liveness import ClosedConnection, departed
from rainbow.service.clusters.inventory import cluster_state
from rainbow.service.core.access import Caller, visible_cluster
from rainbow.service.core.memory import picture, place
from rainbow.service.core.pubsub import ALL
from rainbow.service.core.threads import Threads
from rainbow.service.scheduler.reasons import reasons_of
from rainbow.state_machine import WorkerState
from rainbow.store import events, jobs, pages, statistics, workers
from rainbow.store.statistics import Live
from rainbow.text import natural, rfc3339, some

if TYPE_CHECKING:
    from rainbow.service.core.service import RegisteredCluster, Service

SHARE = 0.1  # of a core that counting again and again may take
STALE = 15.0  # seconds after which all are read again: another process may have changed them
EVERY, POINTS = 120.0, 720  # seconds between two points of a series, and how many are kept
FIGURES = ("waiting", "running", "nodes", "started")  # jobs, jobs, nodes that jobs hold, jobs since the point before
BROKEN = {WorkerState.LOST, WorkerState.QUARANTINED}
log = structlog.get_logger("rainbow.fleet")


@dataclass(frozen=True, slots=True)
class ClusterCounts:
    """What one cluster has: workers by state, and its jobs that have not ended."""

    workers: Mapping[WorkerState, int] = field(default_factory=dict)
    live: Live = field(default_factory=Live)


@picture("tally", most="counts of every cluster", true="counted again after news, all after some seconds")
class Tally:
    """The counts of every cluster, by id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, ClusterCounts] = {}
        self._seen: dict[str, int] = {}
        self._all, self._next, self._whole = -1, 0.0, 0.0

    def read(self, service: Service) -> Mapping[str, ClusterCounts]:
        """Return the counts as they are now, or were just now if counting takes long."""
        with self._lock:
            now, version = service.monotonic(), service.news.version(ALL)
            if self._known and now < self._next:
                return self._known
            if version != self._all or now > self._whole + STALE:
                self._read(service, now)
            self._all, self._next = version, now + (service.monotonic() - now) / SHARE
            return self._known

    def _read(self, service: Service, now: float) -> None:
        ids = {entry.id for entry in service.catalogue.values()}
        seen = {one: service.news.version(one) for one in ids}
        whole = now > self._whole + STALE or not self._known
        changed = ids if whole else {one for one in ids if seen[one] != self._seen.get(one)}
        with service.store.read() as connection:
            there = workers.counts(connection, changed)
            live = statistics.live(connection, changed)
        stored = {one: counts for one, counts in self._known.items() if one in ids}
        self._known = stored | {one: ClusterCounts(there.get(one, {}), live.get(one, Live())) for one in changed}
        self._seen, self._whole = seen, now if whole else self._whole


def summary(service: Service, who: Caller, top: int = 40) -> dict[str, Any]:
    """Count what the caller's clusters have; name the `top` that need their operator first, and why."""
    counts = service.state(Tally).read(service)
    entries = [entry for entry in service.catalogue.values() if who.sees(entry.id)]
    gone = departed(service)
    rows = [_row(service, entry, counts.get(entry.id, ClusterCounts()), gone.get(entry.id, {})) for entry in entries]
    first = sorted((row for row in rows if row["rank"] < NOTHING), key=_urgency)
    unplaced = _unplaced(service, who)
    return {
        "at": service.clock(),
        "clusters": len(rows),
        "states": _tallied(row["state"] for row in rows),
        "workers": {"all": sum(row["workers"] for row in rows), "ready": sum(row["ready"] for row in rows)},
        "jobs": {"running": _sum(rows, "running"), "waiting": _sum(rows, "waiting"), "unplaced": unplaced},
        "oldest": min((row["oldest"] for row in rows if row["oldest"] is not None), default=None),
        "tiles": [_tile(row) for row in sorted(rows, key=lambda row: natural(row["name"]))],
        "first": _explained(service, who, first[:top]),
        "more": max(0, len(first) - top),
    }


FAULT, SILENT, WAITS, AWAY, NOTHING = range(5)  # why a cluster needs somebody, the worst first


def _row(
    service: Service, entry: RegisteredCluster, counts: ClusterCounts, gone: Mapping[str, ClosedConnection]
) -> dict[str, Any]:
    state, fault, live = cluster_state(entry, counts.workers), service.faults.get(entry.id, ""), counts.live
    all_of_them, ready = entry.cluster.worker_count, counts.workers.get(WorkerState.READY, 0)
    away = {str(one): counts.workers[one] for one in sorted(BROKEN) if counts.workers.get(one)}
    waits = live.waiting > 0
    row = {
        "name": entry.cluster.name,
        "id": entry.id,
        "state": state,
        "workers": all_of_them,
        "ready": ready,
        "busy": min(1.0, live.nodes / all_of_them) if all_of_them else 0.0,
        "running": live.running,
        "waiting": live.waiting,
        "oldest": live.oldest,
        "away": away,
        "fault": fault,
        "gone": gone if state != "unattended" else {},
    }
    silent = (state == "unattended" and (waits or live.running)) or bool(row["gone"])
    return {**row, "rank": FAULT if fault else SILENT if silent else WAITS if waits else AWAY if away else NOTHING}


def _urgency(row: Mapping[str, Any]) -> tuple[Any, ...]:
    oldest = row["oldest"] if row["oldest"] is not None else float("inf")
    return row["rank"], oldest, -row["waiting"], natural(row["name"])


def _tile(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("name", "state", "busy", "waiting", "running", "ready", "workers", "fault")}


def _tallied(words: Iterable[str]) -> dict[str, int]:
    result: dict[str, int] = {}
    for word in words:
        result[word] = result.get(word, 0) + 1
    return result


def _sum(rows: Sequence[Mapping[str, Any]], key: str) -> int:
    return sum(row[key] for row in rows)


def _unplaced(service: Service, who: Caller) -> int:
    if not who.admin:
        return 0
    with service.store.read() as connection:
        return jobs.count_unplaced(connection)


def _explained(service: Service, who: Caller, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to each cluster why it is named, and its oldest waiting job with its reason."""
    waiting = [row["id"] for row in rows if row["waiting"]]
    with service.store.read() as connection:
        oldest = jobs.oldest_waiting(connection, waiting)
    waits = reasons_of(service, list(oldest.values()), who)
    result = []
    for row in rows:
        job = oldest.get(row["id"])
        wait = waits.get(job.id, {}) if job else {}
        answer = {key: value for key, value in row.items() if key not in ("id", "rank", "gone")}
        named = {"job": job.id, "job_name": job.name, "requestor": job.requestor} if job else {}
        result.append({**answer, "oldest_job": named or None, "why": _why(row, wait)})
    return result


def _why(row: Mapping[str, Any], wait: Mapping[str, Any]) -> str:
    if row["fault"]:
        return f"the last scheduling cycle failed: {row['fault']}"
    if row["state"] == "unattended":
        remaining = some(row["waiting"] + row["running"], "job")
        return f"0 agents are connected; {remaining} cannot start or end; start one with rainbow agent"
    if row["gone"]:
        return _gone(row["gone"])
    if wait:
        return str(wait.get("text", ""))
    return ", ".join(f"{some(many, 'worker')} {word.lower()}" for word, many in row["away"].items())


def _gone(agents: Mapping[str, ClosedConnection]) -> str:
    name, one = max(agents.items(), key=lambda each: each[1].ago)
    others = f" and {some(len(agents) - 1, 'other agent')}" if len(agents) > 1 else ""
    return (
        f"agent {name}{others} closed the connection {one.ago:.0f} s ago; "
        f"the workers are lost in {one.left:.0f} s unless it comes back"
    )


def written(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Write a summary's times as RFC 3339."""
    first = [{**one, "oldest": one["oldest"] and rfc3339(one["oldest"])} for one in answer["first"]]
    return {
        **answer,
        "at": rfc3339(answer["at"]),
        "oldest": answer["oldest"] and rfc3339(answer["oldest"]),
        "first": first,
    }


def job_counts(service: Service, who: Caller, by: str) -> dict[str, int]:
    """Count the jobs that exist for the caller and have not ended, by state, cluster, requestor or reason."""
    with service.store.read() as connection:
        return pages.count_live_by(connection, who.visible, who.own, by)


# ── the last 24 hours ──


@place("series", most="24 hours of points for a cluster", of="figures that were taken every two minutes")
class Series:
    """FIGURES of each cluster and of all, EVERY two minutes: in memory, since this process began."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots = np.full(POINTS, -1, np.int64)  # the number of the two minutes that each point is of
        self._known: dict[str, np.ndarray[Any, Any]] = {ALL: _unknown()}
        self._number = -1  # of the last event that was looked at

    def take(self, service: Service) -> None:
        """Note the figures of now."""
        counts = service.state(Tally).read(service)
        upto = service.store.event_horizon().number
        with service.store.read() as connection:
            number = events.last(connection, upto)
            started = events.count_starts(connection, self._number, number) if self._number >= 0 else {}
        slot = int(service.clock() // EVERY)
        with self._lock:
            self._known = {one: self._known[one] if one in self._known else _unknown() for one in (ALL, *counts)}
            for one, cluster in counts.items():
                live = cluster.live
                self._known[one][slot % POINTS] = live.waiting, live.running, live.nodes, started.get(one, 0)
            self._known[ALL][slot % POINTS] = np.sum(
                [self._known[one][slot % POINTS] for one in counts] or [[0] * 4], 0
            )
            self._slots[slot % POINTS], self._number = slot, number

    def of(self, ids: Collection[str], now: float) -> tuple[float, dict[str, list[int | None]]]:
        """Return when the first point was, and the sums over these clusters by figure; None: nothing is known."""
        last = int(now // EVERY)
        requirement = np.arange(last - POINTS + 1, last + 1)
        with self._lock:
            rows = [self._known[one][requirement % POINTS] for one in ids if one in self._known]
            is_known = self._slots[requirement % POINTS] == requirement
        first = int(is_known.argmax()) if is_known.any() else POINTS
        sums = np.nansum(rows or [np.zeros((POINTS, len(FIGURES)))], axis=0)
        answers = [
            [int(one) if known else None for one, known in zip(column, is_known, strict=True)] for column in sums.T
        ]
        return float(requirement[0] + first) * EVERY, {
            name: row[first:] for name, row in zip(FIGURES, answers, strict=True)
        }


def _unknown() -> np.ndarray[Any, Any]:
    return np.full((POINTS, len(FIGURES)), np.nan, np.float32)


def series(service: Service, who: Caller, name: str | None = None) -> dict[str, Any]:
    """Return the last 24 hours of a cluster, or of all that the caller sees together."""
    if name is not None:
        with service.store.read() as connection:
            ids = [visible_cluster(connection, who, name).id]
    else:
        ids = [ALL] if who.admin else [one.id for one in service.catalogue.values() if who.sees(one.id)]
    begin, figures = service.state(Series).of(ids, service.clock())
    return {"cluster": name, "from": begin, "every": EVERY, **figures}


def follow(service: Service) -> None:
    """Note the figures every two minutes, in a thread of its own, until the service ends."""
    service.state(Threads).make("series", partial(_follow, service)).start()


def _follow(service: Service) -> None:
    while not service.ending:
        try:
            service.state(Series).take(service)
        except RainbowError as fault:  # the store is away: it may come back
            log.warning("series-not-noted", fault=str(fault))
        time.sleep(EVERY - service.clock() % EVERY)
