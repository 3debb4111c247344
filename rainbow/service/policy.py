"""A cluster's policy and workers, for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rainbow.matching import worker_capacity
from rainbow.service.access import Caller, own_cluster
from rainbow.service.registering import check_policy
from rainbow.service.stepping import plan_only
from rainbow.store import clusters, workers

if TYPE_CHECKING:
    from rainbow.service.service import Service


def show(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Show a cluster's policy, settings, figures of the moment, and the fault of its last step if it failed."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    decided = plan_only(service, record)
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
    service.tell(record.id)
    return {"policy": policy, "settings": settings}


def plan(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Say what the next step would do."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    decided = plan_only(service, record)
    if decided is None:
        return {"orders": [], "waits": [], "figures": {}}
    orders = [{"order": type(order).__name__.lower(), **asdict(order)} for order in decided.orders]
    return {"orders": orders, "waits": [asdict(wait) for wait in decided.waits], "figures": dict(decided.figures)}


def workers_of(service: Service, who: Caller, name: str) -> list[dict[str, Any]]:
    """List a cluster's workers in natural order: state, since when, capacity."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        states = workers.of_cluster(connection, record.id)
    capacity = worker_capacity(service.entry(record).cluster)
    return [
        {"name": worker, "state": states[worker].state, "since": states[worker].since, "capacity": capacity[worker]}
        for worker in capacity
        if worker in states
    ]
