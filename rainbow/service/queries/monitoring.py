"""Plan, timeline and figures of a cluster; metrics of the service."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from heapq import nsmallest
from math import inf
from typing import TYPE_CHECKING, Any

from rainbow.errors import PolicyError, TryLater, Unavailable
from rainbow.plugins import PluginFault, UnknownPlugin
from rainbow.scheduling import diagram, plan_diagram
from rainbow.scheduling.interface import Order
from rainbow.service.clusters.scheduling_settings import settings_document
from rainbow.service.core.access import Caller, own_cluster
from rainbow.service.core.counters import Row, family
from rainbow.service.scheduler.loop import step_safely
from rainbow.service.scheduler.plan_in_force import PlansInForce
from rainbow.service.scheduler.step import plan_only
from rainbow.store import clusters, jobs, statistics

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

    from rainbow.service.core.service import Service


def show(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Show a cluster's policy, settings, limits, figures of the moment, and the fault of its last step, if any."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        answer = settings_document(service, connection, record)
    fault = service.faults.get(record.id)
    try:
        decided = plan_only(service, record)
    except Unavailable:  # without a database there are no figures, and none is not the answer to how many
        raise
    except TryLater:  # its step does not come back: the fault says where it is
        decided, fault = None, service.faults.get(record.id)
    except (PolicyError, PluginFault, UnknownPlugin) as unusable:  # or settings that a version of before took
        decided, fault = None, fault or str(unusable)
    return {**answer, "figures": dict(decided[1].figures) if decided else {}, "fault": fault}


def step_now(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Take one step by hand; say whether anything was ordered, and why it failed if it did."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    ordered = step_safely(service, name)
    return {"ordered": ordered, "fault": service.faults.get(record.id)}


def plan(service: Service, who: Caller, name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Say what the next step would do, with other jobs, settings and workers if they are given."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    decided = plan_only(service, record, options)
    if decided is None:
        return {"orders": [], "waits": [], "figures": {}}
    made = decided[1]
    orders = [{"order": type(order).__name__.lower(), **_fields(order)} for order in made.orders]
    return {"orders": orders, "waits": [asdict(wait) for wait in made.waits], "figures": dict(made.figures)}


def _fields(order: Order) -> dict[str, Any]:
    """Return an order's fields; an end that never comes is null, as JSON has no other word for it."""
    return {key: None if value == inf else value for key, value in asdict(order).items()}


def timeline(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Show the resource diagram after the next step: lines with their steps, as text, and as an SVG."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    decided = plan_only(service, record)
    if decided is None:
        return {"lines": [], "text": "", "svg": ""}
    made = diagram(*decided)
    lines = [
        {
            "worker": worker,
            "type": kind,
            "capacity": made.capacity.get(worker, {}).get(kind, 0),
            "steps": [[time if time < inf else None, level] for time, level in line],
        }
        for (worker, kind), line in made.entries()
    ]
    return {"lines": lines, "text": made.text(decided[0].now), "svg": plan_diagram.draw(made, decided[0].now)}


def gauges(service: Service) -> dict[str, list[Row]]:
    """Return {metric: [(labels, value)]}, clusters by name."""
    with service.store.read() as connection:
        names = {cluster_id: name for name, (cluster_id, _) in clusters.revisions(connection).items()}
        result = statistics.counted(connection)
        waiting = jobs.count_unplaced(connection)
    answer: dict[str, list[Row]] = {"rainbow_clusters": [((), float(len(names)))]}
    answer["rainbow_jobs_unplaced"] = [((), float(waiting))]
    for metric, counts in result.items():
        rows = [((names[key], label), float(n)) for (key, label), n in counts.items() if key in names]
        answer[metric] = sorted(rows)
    return answer


OF_CLASS = {
    "target": "Units a class is entitled to.",
    "running": "Tasks of a class that hold something.",
    "held": "Units the tasks of a class hold.",
    "waiting": "Tasks of a class that wait.",
    "loaned": "Units a class is borrowing (held beyond its entitlement).",
    "unused": "Units a class is entitled to and does not hold.",
}
OF_CLUSTER = {
    "spread": "Imbalance of shares (delta entitlement spread) in percent points.",
    "units": "Units of all ready workers.",
    "idle": "Units that are free.",
}
OF_HOST = {
    "tasks_waiting": "Tasks that wait.",
    "tasks_booked": "Tasks that hold something.",
    "tasks_long_running": "Tasks that have been running for more than 4 hours.",
    "step_failed": "1 if the last scheduling cycle failed, 0 otherwise.",
}
OF_ALL = {f"class_{key}": text for key, text in OF_CLASS.items()} | OF_CLUSTER | OF_HOST


def metrics(service: Service) -> Iterator[GaugeMetricFamily]:
    """Yield the figures of every cluster: of its last step, or of a plan if something has happened there since.

    At most MOST_PLANS plans are made, those first whose figures are oldest.
    """
    with service.store.read() as connection:
        queues = statistics.queues(connection)
        long = statistics.long_running(connection, service.clock())
    _plan_again(service)
    known, result = service.state(PlansInForce), defaultdict[str, list[Row]](list)
    for name, entry in sorted(service.catalogue.items()):
        result["tasks_waiting"].append(((name,), queues.get((entry.id, "waiting"), 0)))
        result["tasks_booked"].append(((name,), queues.get((entry.id, "running"), 0)))
        result["tasks_long_running"].append(((name,), long.get(entry.id, 0)))
        result["step_failed"].append(((name,), float(entry.id in service.faults)))
        last = known.get(entry.id)
        for metric, row in _of_policy(last.plan.figures if last else {}, name):
            result[metric].append(row)
    for metric, text in OF_ALL.items():
        if metric in result:
            labels = ("cluster", "class") if metric.startswith("class_") else ("cluster",)
            yield family(f"rainbow_{metric}", text, labels, result[metric])


MOST_PLANS = 20  # made for one scrape, a millisecond or two each
KEPT_SECONDS = 60.0  # as long figures stand if nothing happens


def _plan_again(service: Service) -> None:
    known, now, news = service.state(PlansInForce), service.monotonic(), service.news
    stale = [
        (last.made if last else 0.0, name)
        for name, entry in service.catalogue.items()
        if not (last := known.get(entry.id))
        or last.version != news.version(entry.id)
        or now - last.made > KEPT_SECONDS
    ]
    for _, name in nsmallest(MOST_PLANS, stale):
        with suppress(Exception):  # a policy is anybody's code; that it failed is told by step_failed
            with service.store.read() as connection:
                record = clusters.get(connection, service.catalogue[name].id)
            if record:
                plan_only(service, record)


def _of_policy(figures: Mapping[str, Any], cluster: str) -> Iterator[tuple[str, Row]]:
    for key in OF_CLUSTER:
        if isinstance(figures.get(key), (int, float)):
            yield key, ((cluster,), figures[key])
    classes = figures.get("classes", {})
    for one, row in classes.items() if isinstance(classes, Mapping) else ():
        yield from ((f"class_{key}", ((cluster, one), row[key])) for key in OF_CLASS if key in row)
