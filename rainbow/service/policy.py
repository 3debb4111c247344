"""A cluster's policy and workers, for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING, Any

from rainbow.matching import worker_capacity
from rainbow.scheduling import diagram, gantt, policies
from rainbow.scheduling.policy import Order
from rainbow.service.access import Caller, own_cluster
from rainbow.service.freezing import freeze
from rainbow.service.registering import check_policy
from rainbow.service.stepping import plan_only
from rainbow.store import clusters, workers

if TYPE_CHECKING:
    from rainbow.service.service import Service


def show(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Show a cluster's policy, settings, figures of the moment, and the fault of its last step if it failed."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    decided = plan_only(service, name)
    figures = dict(decided.figures) if decided else {}
    fault = service.faults.get(record.id)
    return {"policy": record.policy, "settings": dict(record.settings), "figures": figures, "fault": fault}


def put(service: Service, who: Caller, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Set a cluster's policy ({"policy": name, "settings": {}}); effective at the next step."""
    with service.store.write() as connection:
        record = own_cluster(connection, who, name)
        asked = {"name": body.get("policy", record.policy), "settings": body.get("settings", {})}
        policy, settings = check_policy(asked, record.policy)
        clusters.set_policy(connection, record.id, policy, settings)
    service.tell()
    return {"policy": policy, "settings": settings}


def plan(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Say what the next step would do."""
    with service.store.read() as connection:
        own_cluster(connection, who, name)
    decided = plan_only(service, name)
    if decided is None:
        return {"orders": [], "waits": [], "figures": {}}
    orders = [{"order": type(order).__name__.lower(), **_told(order)} for order in decided.orders]
    return {"orders": orders, "waits": [asdict(wait) for wait in decided.waits], "figures": dict(decided.figures)}


def _told(order: Order) -> dict[str, Any]:
    """Return an order's fields; an end that never comes is null, as JSON has no other word for it."""
    return {key: None if value == inf else value for key, value in asdict(order).items()}


def timeline(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Show the resource diagram after the next step: lines with their steps, as text, and as an SVG."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    frozen = freeze(service, service.entry(name), idle=True)
    if frozen is None:
        return {"lines": [], "text": "", "svg": ""}
    made = diagram(frozen.view, policies.get(record.policy).plan(frozen.view))
    lines = [
        {
            "worker": worker,
            "type": kind,
            "capacity": made.capacity.get(worker, {}).get(kind, 0),
            "steps": [[time if time < inf else None, level] for time, level in line],
        }
        for (worker, kind), line in made.entries()
    ]
    return {"lines": lines, "text": made.text(), "svg": gantt.draw(made, frozen.view.now)}


def workers_of(service: Service, who: Caller, name: str) -> list[dict[str, Any]]:
    """List a cluster's workers in natural order: state, since when, capacity."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        states = workers.of_cluster(connection, record.id)
    capacity = worker_capacity(service.entry(name).cluster)
    return [
        {"name": worker, "state": states[worker].state, "since": states[worker].since, "capacity": capacity[worker]}
        for worker in capacity
        if worker in states
    ]
