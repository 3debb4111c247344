"""When a job is expected or promised to start: with a band and an age, or with what it depends on, never bare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from rainbow.forecast.lengths import COVER
from rainbow.forecast.outlook import ClusterForecast
from rainbow.service.core.counters import count
from rainbow.service.core.service import NO_FORECASTS, Outlook
from rainbow.state_machine import JobState
from rainbow.store import events, reservations, statistics
from rainbow.store.engine import once_stored
from rainbow.text import rfc3339

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.forecast import Expected
    from rainbow.scheduling import Broken
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service
    from rainbow.store.jobs import JobRecord

TIMES = ("start", "end", "low", "high")


def expectation(
    service: Service, who: Caller, record: JobRecord, wait: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Return in short when a job of the caller's own is expected; None where nothing more than `wait` is known."""
    if record.state not in (JobState.WAITING, JobState.RUNNING) or not is_own(who, record):
        return None
    now = service.clock()
    latest = service.state(Outlook).of(record.cluster_id, now)
    one = latest.expected(record.id) if latest else None
    if latest is None or one is None or one.how == "unknown" or _is_held_up(one, record, wait):
        return None
    return _document(one, latest, now)


def _is_held_up(one: Expected, record: JobRecord, wait: Mapping[str, Any] | None) -> bool:
    """Return whether a job has its space and does not run: no agent has started it, or it is suspended."""
    runs = record.state is JobState.RUNNING and (wait or {}).get("reason") != "suspended"
    return one.how == "running" and not runs


def is_own(who: Caller, record: JobRecord) -> bool:
    """Return whether a caller may know when a job is expected: its owner, its cluster's, the administrator."""
    at = record.cluster_id
    return who.admin or (bool(at) and who.sees(at) and who.speaks_for(at, record.requestor))


def tell_broken(connection: sa.Connection, cluster_id: str, cluster: str, brokens: Iterable[Broken]) -> None:
    """Tell of promises that were not kept, as events and as counts."""
    for one in brokens:
        new = None if one.new is None else rfc3339(one.new)
        facts = {"job": one.job, "cluster": cluster, "old": rfc3339(one.old), "new": new, "why": one.why}
        events.add(connection, one.at, cluster_id, "promise-broken", **facts, text=one.text)
        once_stored(partial(count, "rainbow_promises_broken", one.why))


def take_back(connection: sa.Connection, cluster_id: str, cluster: str, broken: Broken, *, job: str = "") -> None:
    """Break what was promised to a job, or by a cluster; `broken` says why."""
    promises = reservations.take_promises(connection, cluster_id=cluster_id, job=job)
    said = [replace(broken, job=one.job, gang=one.gang, old=one.start) for one in promises]
    tell_broken(connection, cluster_id, cluster, said)


def whole(
    service: Service, connection: sa.Connection, record: JobRecord, wait: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return when a job is expected, why that is unknown, and what it was told at first; `wait`: why it waits."""
    now = service.clock()
    latest = service.state(Outlook).of(record.cluster_id, now) if record.cluster_id else None
    is_active = record.state in (JobState.WAITING, JobState.RUNNING)  # the last forecast still knows who has ended
    one = latest.expected(record.id) if latest and is_active else None
    stored = statistics.eta_of(connection, record.id)
    waits = (wait or {}).get("facts", {}) if record.state is JobState.WAITING else {}
    results = {"id": record.id, "cluster": record.cluster or None, "state": str(record.state)}
    results |= {"promised": waits.get("promised"), "broken": waits.get("broken")}
    first = _kept(stored[0], now) if stored else None
    if one is not None and _is_held_up(one, record, wait):
        return {**results, **_unknown(str((wait or {}).get("text") or "no agent has started it")), "first": first}
    if one is not None and latest is not None:
        return {**results, **_document(one, latest, now), **_behind(one, latest), "first": first}
    if stored and record.state is JobState.WAITING and stored[1]["at"] <= now:
        return {**results, **_kept(stored[1], now), "ahead": None, "first": first}
    return {**results, **_unknown(_why_unknown(service, record, latest, wait)), "first": first}


def _document(one: Expected, latest: ClusterForecast, now: float) -> dict[str, Any]:
    times = band_shown(one, latest)
    earned = one.how == "running" or times["low"] is not None
    why = "" if earned or one.how == "unknown" else latest.record.text or "no band: too wide to say anything"
    age = round(max(0.0, now - latest.at), 3)
    return {**_written(times, one.how, one.text or why, rfc3339(latest.at), age), "earned": earned}


def band_shown(one: Expected, latest: ClusterForecast) -> dict[str, str | None]:
    """Return the times of a job as they are shown: its band where the cluster's forecasts have earned one."""
    times = {key: rfc3339(getattr(one, key)) for key in TIMES}
    shown = one.how == "running" or latest.record.shows(one.low, one.high, latest.at)
    return times if shown else {**times, "low": None, "high": None}


def _kept(said: Mapping[str, Any], now: float) -> dict[str, Any]:
    shown = bool(said.get("shown"))
    times = {key: None if said[key] is None else rfc3339(said[key]) for key in TIMES}
    times |= {} if shown else dict.fromkeys(("low", "high"))
    age = round(max(0.0, now - said["at"]), 3)
    return {**_written(times, said["how"], "", rfc3339(said["at"]), age), "earned": shown}


def _unknown(text: str) -> dict[str, Any]:
    nobody = _written(dict.fromkeys(TIMES), "unknown", text, None, None)
    return {**nobody, "earned": False, "ahead": None}


def _written(
    times: Mapping[str, str | None], how: str, text: str, at: str | None, age: float | None
) -> dict[str, Any]:
    return {**times, "cover": COVER, "how": how, "text": text, "at": at, "age": age}


def _behind(one: Expected, latest: ClusterForecast) -> dict[str, Any]:
    """Count what is expected to start before a job, without naming it."""
    if latest.forecast is None or one.how in ("running", "unknown"):
        return {"ahead": None}
    jobs = latest.forecast.jobs
    before = [job for job in latest.work if job != one.job and jobs[job].start < one.start] if one.start < inf else []
    hours = round(sum(latest.work[job] for job in before), 2)
    return {"ahead": {"jobs": len(before), "core_hours": hours}}


def _why_unknown(
    service: Service, record: JobRecord, latest: ClusterForecast | None, wait: Mapping[str, Any] | None
) -> str:
    if not record.cluster_id:
        return "no cluster has taken the job yet"
    if record.state not in (JobState.WAITING, JobState.RUNNING):
        return f"the job has ended: {record.state}"
    if latest is None:
        off = service.settings.forecast_share <= 0
        return NO_FORECASTS if off else "the cluster has no forecast yet; ask again in some seconds"
    if latest.fault:
        return latest.fault
    if record.submitted_at > latest.at:
        return "it came after the last forecast; ask again in some seconds"
    return str((wait or {}).get("text") or "nothing of it may start yet")
