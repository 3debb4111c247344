"""Forecasts shown: of a job, of a jobspec that is not submitted, of a cluster, and how they turned out."""

from __future__ import annotations

from math import inf, log
from statistics import median
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict
from rainbow.forecast.lengths import COVER, FEWEST, quantiles
from rainbow.matching import verdict_to_json
from rainbow.service.core.access import own_cluster
from rainbow.service.core.service import NO_FORECASTS, Outlook
from rainbow.service.jobs.expectation import band_shown, whole
from rainbow.service.jobs.lifecycle import own_job
from rainbow.service.placement.facts import facts_for
from rainbow.service.placement.submit import prepare
from rainbow.service.scheduler.reasons import reason_of
from rainbow.store import statistics
from rainbow.text import rfc3339

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rainbow.forecast import Expected
    from rainbow.forecast.outlook import Arriving, ClusterForecast
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service
    from rainbow.service.placement.submission import Submission

MOST_JOBS = 1_000  # jobs of one page
TWICE = log(2)


def of_job(service: Service, who: Caller, job_id: str) -> dict[str, Any]:
    """Say when a job is expected to start and end."""
    with service.store.read() as connection:
        record = own_job(connection, who, job_id)
    wait = reason_of(service, record, who)
    with service.store.read() as connection:
        return {**whole(service, connection, record, wait), "number": record.number}


def of_jobspec(service: Service, who: Caller, submission: Submission) -> dict[str, Any]:
    """Say when a job would start and end on each cluster, the first to end first; submit nothing."""
    placement = prepare(service, who, submission)
    with service.store.read() as connection:
        made = facts_for(service, connection, placement.arrival(connection), placement.match, forecast=True).forecast
    rows = _rows(service, made) if made else []
    rows.sort(key=lambda one: (one["finish"] is None, one["finish"] or ""))
    refused = verdict_to_json(placement.reading.request, placement.match.refusals[:MOST_JOBS])["refusals"]
    return {"candidates": rows, "refusals": refused, "cover": COVER}


def _rows(service: Service, made: Arriving) -> list[dict[str, Any]]:
    rows = []
    for row, name in enumerate(made.ids.values()):
        start, finish = float(made.found.start[row]), float(made.found.finish[row])
        known = finish < inf
        low, high = float(made.found.low[row]), float(made.found.high[row])
        latest = made.outlook.of(service.catalogue[name].id, made.now) if name in service.catalogue else None
        shown = known and latest is not None and latest.record.shows(low, high, made.now)
        rows.append(
            {
                "cluster": name,
                "known": known and made.ask.whole,
                "wait": max(0.0, start - made.now) if known else None,
                "start": rfc3339(start),
                "finish": rfc3339(finish),
                "low": rfc3339(low) if shown else None,
                "high": rfc3339(high) if shown else None,
                "length": float(made.found.seconds[row]) if known else None,
                "age": float(made.found.age[row]) if known else None,
                "text": _why_not(service, name)
                if not known
                else ""
                if shown or latest is None
                else latest.record.text,
            }
        )
    return rows


def _why_not(service: Service, cluster: str) -> str:
    if service.settings.forecast_share <= 0:
        return NO_FORECASTS
    entry = service.catalogue.get(cluster)
    latest = service.state(Outlook).of(entry.id, service.clock()) if entry else None
    if latest is None:
        return "the cluster has no forecast yet"
    return latest.fault or "it does not fit what is expected to be free, or its length is unknown"


def of_cluster(service: Service, who: Caller, name: str, limit: int, after: str | None) -> dict[str, Any]:
    """Show a cluster's forecast, its jobs by expected start, page by page."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    now = service.clock()
    latest = service.state(Outlook).of(record.id, now)
    made = latest.forecast if latest else None
    ordered = sorted(made.jobs.values(), key=lambda one: (one.start, one.job)) if made else []
    places = {one.job: at for at, one in enumerate(ordered)}
    if after is not None and after not in places:
        raise Conflict("the job that `after` names is no longer in the forecast; begin again without it", after=after)
    begin = 0 if after is None else places[after] + 1
    page = ordered[begin : begin + limit]
    fault = latest.fault if latest else NO_FORECASTS if service.settings.forecast_share <= 0 else "there is none yet"
    return {
        "cluster": name,
        "at": rfc3339(latest.at) if latest else None,
        "age": round(max(0.0, now - latest.at), 3) if latest else None,
        "reached": rfc3339(made.reached) if made else None,
        "cut": made.cut if made else None,
        "earned": latest.record.is_earned if latest else False,
        "cost": round(latest.cost, 4) if latest else None,
        "fault": fault or None,
        "room": latest.room.as_json() if latest and latest.room else None,
        "jobs": [_line(one, latest) for one in page] if latest else [],
        "next": page[-1].job if begin + limit < len(ordered) else None,
    }


def _line(one: Expected, latest: ClusterForecast) -> dict[str, Any]:
    return {"id": one.job, **band_shown(one, latest), "how": one.how, "text": one.text}


def accuracy(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Say how a cluster's forecasts of starts, and its predictions of lengths, turned out."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        scores, missed, ratios = statistics.turned_out(connection, record.id)
    bands = ((one, *quantiles(ratios[:k], COVER)) for k, one in enumerate(ratios[FEWEST:], start=FEWEST))
    outside = [not low <= one <= high for one, low, high in bands]
    return {"cluster": name, "starts": _summed(scores, missed), "lengths": _summed(ratios, outside)}


def _summed(scores: Sequence[float], missed: Sequence[float]) -> dict[str, Any]:
    """Count how many lie within a factor of 2, and within their bands."""
    if not scores:
        return {"count": 0, "bias": None, "factor_2": None, "covered": None}
    return {
        "count": len(scores),
        "bias": round(median(scores), 4),
        "factor_2": round(sum(abs(one) <= TWICE for one in scores) / len(scores), 4),
        "covered": round(1 - sum(missed) / len(missed), 4) if len(missed) else None,
    }
