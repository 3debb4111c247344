"""Jobs that leave a cluster which is lost, drained or deleted.

Jobs that leave a cluster which is lost, drained or deleted: they are placed anew, and it is recorded.

    away     of a cluster: none of its workers will take a task before somebody comes back or reinstates one
    movable  of a job: no agent of its cluster has ever accepted a task of it. What an agent has accepted it may
             still run, whether or not anybody hears of it: that stays, and waits for the cluster's return

A job leaves a cluster once: it never comes back to one it has left. Where else it may go was settled when it was
submitted, by the credentials brought then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rainbow.errors import TooMany
from rainbow.matching import match
from rainbow.selection import reads, select
from rainbow.service.core.limits import admit, check_limits
from rainbow.service.jobs.jobspecs import reading
from rainbow.service.placement import ledger
from rainbow.service.placement.candidates import barred, candidate_ids, states_of
from rainbow.state_machine import TaskState, WorkerState
from rainbow.store import clusters, events, jobs, tasks, workers

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Entry, Service
    from rainbow.store.jobs import JobRecord


GONE = frozenset({WorkerState.LOST, WorkerState.OFFLINE, WorkerState.DRAINING})
PAUSE = 10.0  # seconds before jobs that found no other place are looked at again


@dataclass(frozen=True, slots=True)
class Move:
    """Where a job goes instead; `record` is the job there, `decision` the whole of it with this move."""

    record: JobRecord
    decision: dict[str, Any]
    left: str  # the id of the cluster it was at


def is_away(states: Iterable[WorkerState]) -> bool:
    """Tell whether a cluster with workers in these states takes nothing.

    >>> is_away([WorkerState.LOST, WorkerState.OFFLINE]), is_away([WorkerState.LOST, WorkerState.NEW])
    (True, False)
    """
    known = set(states)
    return bool(known) and known <= GONE


def leave(service: Service, entry: Entry) -> None:
    """Place anew what waits at a cluster that is away; what fits nowhere else goes on waiting."""
    now = service.clock()
    if now < service.looked.get(entry.id, 0.0):
        return
    service.looked[entry.id] = now + PAUSE
    with service.store.write() as connection:
        for record in movable(connection, entry.id):
            place_anew(service, connection, record, "its cluster takes no tasks")
    service.tell()


def evacuate(service: Service, connection: sa.Connection, cluster_id: str) -> list[JobRecord]:
    """Place anew what waits at a cluster that is to be deleted; return the live jobs that remain."""
    for record in movable(connection, cluster_id):
        place_anew(service, connection, record, "its cluster was deleted")
    return jobs.live(connection, cluster_id)


def movable(connection: sa.Connection, cluster_id: str) -> Iterator[JobRecord]:
    """Yield the jobs of a cluster of which it runs nothing for certain."""
    for record in jobs.live(connection, cluster_id):
        waiting = record.accepted_clock is None and record.canceled_at is None
        if waiting and set(tasks.states_of(connection, record.id)) <= {TaskState.WAITING, TaskState.CANCELED}:
            yield record


def place_anew(service: Service, connection: sa.Connection, record: JobRecord, why: str) -> bool:
    """Place a job at another of its candidates; tell whether there is one."""
    move = _place(service, connection, record, why)
    if move:
        carry_out(connection, move)
        told = {"job": record.id, "state": str(move.record.state), "cluster": move.record.cluster}
        events.add(connection, service.clock(), move.record.cluster_id, "job", **told)
    return move is not None


def _place(service: Service, connection: sa.Connection, record: JobRecord, why: str) -> Move | None:
    decision = jobs.decision(connection, record.id)
    again, moves = ledger.whole(connection, record.id).get("again", {}), decision.get("moves", [])
    left = {record.cluster, *(move["from"] for move in moves)}
    entries = [service.catalogue[name] for name in again.get("clusters", []) if name in service.catalogue]
    open_ = [entry for entry in entries if entry.cluster.name not in left and _open(connection, entry, record)]
    request = reading(connection, record.id).request
    without = barred(connection, request, {entry.id: entry.cluster.name for entry in open_})
    open_ = [entry for entry in open_ if entry.cluster.name not in without]
    settings = service.settings
    verdicts = match(request, [entry.cluster for entry in open_], settings.backend, settings.budget())
    selector, options = again.get("selector", ""), again.get("options", {})
    ids = candidate_ids(service, verdicts)
    found = states_of(service, connection, ids, reads(selector, options, "queue.idle_workers"))
    seed = f"{record.id}-{len(moves) + 1}"
    choice = select(request, verdicts, found, selector, options, seed=seed)
    verdict = next((v for v in verdicts if v.cluster == choice.cluster), None)
    if verdict is None:
        return None
    told = {"from": record.cluster, "to": verdict.cluster, "at": service.clock(), "why": why, "seed": seed}
    to = {"cluster_id": service.catalogue[verdict.cluster].id, "cluster": verdict.cluster}
    there = record.moved(**to, nodes=verdict.totals.get("nodes", 0))
    if not _admitted(connection, there):
        return None
    return Move(
        there, {**decision, "moves": [*moves, {**told, "selection": ledger.written(choice)}]}, record.cluster_id
    )


def _open(connection: sa.Connection, entry: Entry, record: JobRecord) -> bool:
    """Tell whether a cluster is the one that was meant, not a later one of its name, and takes tasks."""
    found = clusters.get(connection, entry.id)
    known = workers.of_cluster(connection, entry.id)
    if found is None or found.draining_at is not None or found.drained_at is not None:
        return False
    if found.created_at > record.submitted_at:
        return False
    return not is_away(worker.state for worker in known.values())


def _admitted(connection: sa.Connection, record: JobRecord) -> bool:
    limits = check_limits(clusters.limits(connection, record.cluster_id))
    try:
        admit(connection, record, len(tasks.of_job(connection, record.id)), limits)
    except TooMany:
        return False
    return True


def carry_out(connection: sa.Connection, move: Move) -> None:
    """Store where a job is now."""
    record = move.record
    there = {"cluster_id": record.cluster_id, "cluster": record.cluster, "nodes": record.nodes}
    jobs.change(connection, record.id, **there, wait=None, decision=move.decision)
    tasks.move(connection, record.id, record.cluster_id)
    clusters.count_move(connection, move.left, record.cluster_id)
