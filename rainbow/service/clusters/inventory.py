"""Clusters listed and shown.

Clusters for people: listed and shown, with how they are and how many of their workers are ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rainbow.matching import cluster_totals, stated_units, worker_capacity
from rainbow.service.agents.liveness import missed_beats
from rainbow.service.core.access import Caller, own_cluster, visible_cluster
from rainbow.service.core.service import Entry
from rainbow.state_machine import WorkerState
from rainbow.store import workers
from rainbow.text import natural

if TYPE_CHECKING:
    from rainbow.service.core.service import Service


def workers_of(service: Service, who: Caller, name: str) -> list[dict[str, Any]]:
    """List a cluster's workers in natural order: state, since when, heartbeats missed in a row, capacity."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        states = workers.of_cluster(connection, record.id)
        missed = missed_beats(service, record.id, workers.agents_of(connection, record.id), states)
    cluster = service.entry(record).cluster
    capacity, units = worker_capacity(cluster), stated_units(cluster)
    return [
        {
            "name": worker,
            "state": states[worker].state,
            "since": states[worker].since,
            "missed": missed[worker],
            "capacity": capacity[worker],
            **({"units": units} if units else {}),
        }
        for worker in capacity
        if worker in states
    ]


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


def _shown(entry: Entry, counts: Counts) -> dict[str, Any]:
    cluster = entry.cluster
    return {
        "name": cluster.name,
        "state": _state(entry, counts),
        "revision": entry.revision,
        "levels": cluster.levels,
        "totals": cluster_totals(cluster),
        "units": stated_units(cluster),
        "workers": cluster.worker_count,
        "ready": counts.get(WorkerState.READY, 0),
        "subsystems": sorted(cluster.subsystems),
    }


def _state(entry: Entry, counts: Counts) -> str:
    """Say how a cluster is; what was said of it by its owner is told before what is seen of it."""
    if entry.draining:
        return "deleting"
    if entry.drained:
        return "drained"
    return "up" if counts.keys() - AWAY else "unattended"
