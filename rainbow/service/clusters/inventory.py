"""Clusters listed and shown, with their state and the number of ready workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rainbow.jobspec.hostlist import fold_hosts
from rainbow.matching import cluster_totals, stated_units, worker_capacity
from rainbow.scheduling.snapshot import amounts_by_worker
from rainbow.service.agents.liveness import missed_beats
from rainbow.service.core.access import Caller, own_cluster, visible_cluster
from rainbow.service.core.service import RegisteredCluster
from rainbow.state_machine import BOOKED, WorkerState
from rainbow.store import reservations, tasks, workers
from rainbow.store.reservations import ReservationRecord
from rainbow.text import natural

if TYPE_CHECKING:
    from rainbow.service.core.service import Service


def workers_of(service: Service, who: Caller, name: str) -> list[dict[str, Any]]:
    """List a cluster's workers in natural order: state, since when, heartbeats missed in a row, capacity."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        states = workers.of_cluster(connection, record.id)
        booked = amounts_by_worker(task.placement for task in tasks.of_cluster(connection, record.id, BOOKED))
        missed = missed_beats(service, record.id, workers.agents_of(connection, record.id), states)
    cluster = service.entry(record).cluster
    capacity, units = worker_capacity(cluster), stated_units(cluster)
    return [
        {
            "name": worker,
            "state": states[worker].state,
            "since": states[worker].since,
            "missed": missed[worker],
            "busy": worker in booked,
            "capacity": capacity[worker],
            **({"units": units} if units else {}),
        }
        for worker in capacity
        if worker in states
    ]


NOTHING: Counter[str] = Counter()
NAMES = 1_000  # workers named in one row


def nodes(service: Service, who: Caller) -> list[dict[str, Any]]:
    """Count the workers of the clusters that exist for a caller, by cluster and state, with what is free of them."""
    entries = [entry for entry in service.catalogue.values() if who.sees(entry.id)]
    rows: list[dict[str, Any]] = []
    for entry in sorted(entries, key=lambda e: natural(e.cluster.name)):
        with service.store.read() as connection:
            states = workers.of_cluster(connection, entry.id)
            booked = tasks.of_cluster(connection, entry.id, BOOKED)
            stored = reservations.of_cluster(connection, entry.id, service.clock())
        now = service.clock()
        rows += rows_by_state(
            entry,
            {name: result.state for name, result in states.items()},
            amounts_by_worker(task.placement for task in booked),
            kept_by([one for one in stored if one.start <= now]),
        )
    return rows


def kept_by(current: Iterable[ReservationRecord]) -> dict[str, str]:
    """Return {worker: "maintenance" or "reserved"} of what reservations keep now."""
    ordered = sorted(current, key=lambda one: one.maintenance)
    return {name: "maintenance" if one.maintenance else "reserved" for one in ordered for name in one.placement}


def rows_by_state(
    entry: RegisteredCluster,
    states: Mapping[str, WorkerState],
    used: Mapping[str, Counter[str]],
    stored: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[dict[str, Any]]:
    """Count the workers of one cluster by state, with what is free of them; `stored`: those kept by reservations."""
    capacity, units = worker_capacity(entry.cluster), stated_units(entry.cluster)
    groups: dict[str, list[str]] = {}
    for name, whole in capacity.items():
        state = states.get(name, WorkerState.NEW)
        word = _word(entry, state, whole, used.get(name, NOTHING))
        if word == "idle" or (state is WorkerState.READY and stored.get(name) == "maintenance"):
            word = stored.get(name, word)
        groups.setdefault(word, []).append(name)
    for word, names in sorted(groups.items()):
        total, taken = Counter[str](), Counter[str]()
        for amounts, many in Counter(tuple(capacity[name].items()) for name in names).items():
            total.update({kind: amount * many for kind, amount in amounts})
        for name in used.keys() & names:
            taken.update(used[name])
        idle = word in ("idle", "mixed", "allocated")
        free = {kind: max(0, amount - taken[kind]) if idle else 0 for kind, amount in total.items()}
        row = {"cluster": entry.cluster.name, "state": word, "nodes": len(names), "names": fold_hosts(names[:NAMES])}
        yield {**row, "free": free, "total": dict(total), **({"units": units} if units else {})}


def _word(entry: RegisteredCluster, state: WorkerState, whole: Mapping[str, int], used: Counter[str]) -> str:
    """Say how a worker is, in the words of sinfo where there is one."""
    if state is WorkerState.DRAINING or (state is WorkerState.READY and entry.drained):
        return "draining" if used else "drained"
    if state is not WorkerState.READY:
        return {WorkerState.NEW: "unattended"}.get(state, str(state).lower())
    if not used or not +used:
        return "idle"
    return "mixed" if used["core"] < whole.get("core", 1) else "allocated"


AWAY = {WorkerState.NEW, WorkerState.LOST}  # no agent speaks for them
Counts = Mapping[WorkerState, int]


def listing(service: Service, who: Caller) -> list[dict[str, Any]]:
    """List the clusters that exist for a caller, by name."""
    entries = [entry for entry in service.catalogue.values() if who.sees(entry.id)]
    with service.store.read() as connection:
        counts = workers.counts(connection, [entry.id for entry in entries])
    return [
        _shown(entry, counts.get(entry.id, {})) for entry in sorted(entries, key=lambda e: natural(e.cluster.name))
    ]


def show(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Show one cluster."""
    with service.store.read() as connection:
        record = visible_cluster(connection, who, name)
        counts = workers.counts(connection, [record.id]).get(record.id, {})
    return {
        **_shown(service.entry(record), counts),
        "policy": record.policy,
        "created_at": record.created_at,
        "draining": record.draining_at is not None,
        "drained_at": record.drained_at,
    }


def _shown(entry: RegisteredCluster, counts: Counts) -> dict[str, Any]:
    cluster = entry.cluster
    return {
        "name": cluster.name,
        "state": cluster_state(entry, counts),
        "revision": entry.revision,
        "levels": cluster.levels,
        "totals": cluster_totals(cluster),
        "units": stated_units(cluster),
        "workers": cluster.worker_count,
        "ready": counts.get(WorkerState.READY, 0),
        "subsystems": sorted(cluster.subsystems),
    }


def cluster_state(entry: RegisteredCluster, counts: Counts) -> str:
    """Say how a cluster is; what was said of it by its owner is told before what is seen of it."""
    if entry.draining:
        return "deleting"
    if entry.drained:
        return "drained"
    return "up" if counts.keys() - AWAY else "unattended"
