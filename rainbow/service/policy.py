"""A cluster's policy and workers, for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, NotFound
from rainbow.jobs import WORKER_MOVES, WorkerState
from rainbow.matching import worker_capacity
from rainbow.service.access import Caller, own_cluster
from rainbow.service.presence import alive, spoken_for
from rainbow.service.registering import check_policy
from rainbow.service.stepping import plan_only
from rainbow.store import agents, clusters, events, workers

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Service
    from rainbow.store.clusters import ClusterRecord


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


# ── workers ──

ASKED = {"offline": WorkerState.OFFLINE, "drain": WorkerState.DRAINING}


def move_worker(service: Service, who: Caller, name: str, worker: str, verb: str) -> dict[str, Any]:
    """Take a worker away (offline), let it end what it has (drain), or let it work again (reinstate)."""
    now = service.clock()
    with service.store.write() as connection:
        record = own_cluster(connection, who, name)
        known = workers.of_cluster(connection, record.id).get(worker)
        if known is None:
            raise NotFound(f"cluster {name} has no worker {worker}")
        to = ASKED.get(verb) or _reinstated(service, connection, record, worker)
        if known.state is not to:
            _check_move(worker, known.state, to)
            workers.move(connection, record.id, [worker], to, now)
            told = {"cluster": name, "worker": worker, "state": str(to)}
            events.add(connection, now, record.id, "worker", **told)
    service.tell(record.id)
    return {"name": worker, "state": to, "since": now if known.state is not to else known.since}


def _reinstated(service: Service, connection: sa.Connection, record: ClusterRecord, worker: str) -> WorkerState:
    """READY while an agent speaks for it, else LOST until one does: a worker nobody speaks for takes no tasks."""
    signs = agents.of_cluster(connection, record.id)
    up = spoken_for(alive(service, signs).values(), [worker])
    return WorkerState.READY if worker in up else WorkerState.LOST


def _check_move(worker: str, now: WorkerState, to: WorkerState) -> None:
    # a worker that is offline and reinstated while its agent is away goes through READY
    legal = WORKER_MOVES[now] | (WORKER_MOVES[WorkerState.READY] if WorkerState.READY in WORKER_MOVES[now] else set())
    if to not in legal:
        raise Conflict(f"worker {worker} is {now} and cannot become {to}")


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
