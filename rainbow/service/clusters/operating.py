"""What an operator says of a worker or a cluster: take it away, let it end what it has, bring it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, NotFound
from rainbow.jobs import WORKER_MOVES, WorkerState
from rainbow.service.access import Caller, own_cluster
from rainbow.store import changes, clusters, events, workers
from rainbow.store.changes import Change

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Service
    from rainbow.store.clusters import ClusterRecord

VERBS = {"offline": WorkerState.OFFLINE, "drain": WorkerState.DRAINING, "reinstate": WorkerState.READY}
AWAY = {WorkerState.OFFLINE, WorkerState.DRAINING, WorkerState.QUARANTINED}


def move(service: Service, who: Caller, name: str, worker: str, verb: str) -> dict[str, Any]:
    """Put a worker into the state the verb asks for; what runs on it goes on. Said twice it is the same.

    A reinstated worker nobody speaks for is lost at the next step, and comes back by itself.
    """
    to, now = VERBS[verb], service.clock()
    with service.store.write() as connection:
        record = own_cluster(connection, who, name)
        known = workers.of_cluster(connection, record.id).get(worker)
        if known is None:
            raise NotFound(f"cluster {name} has no worker {worker[:100]}")
        state = known.state
        if to is not state:
            _check(worker, state, to, verb)
            workers.move(connection, record.id, [worker], to, now)
            changes.add(connection, record.id, Change(now, who.called(record.id), f"worker {worker}", state, to))
            events.add(connection, now, record.id, "worker", cluster=name, worker=worker, state=str(to))
    service.tell(record.id)
    return {"name": worker, "state": to, "since": known.since if to is state else now}


def move_cluster(service: Service, who: Caller, name: str, verb: str) -> dict[str, Any]:
    """Let a cluster take nothing new (`drain`), or take tasks again (`reinstate`). Said twice it is the same.

    What runs there goes on. What waits is placed anew where it may go; the rest waits until the cluster is back.
    """
    at = service.clock() if verb == "drain" else None
    with service.changing:
        with service.store.write() as connection:
            record = own_cluster(connection, who, name)
            if record.draining_at is not None:
                raise Conflict(f"cluster {name} is being deleted")
            if (record.drained_at is None) != (at is None):
                _note_cluster(service, connection, who, record, at)
            else:
                at = record.drained_at
        service.compile(name)
    service.looked.pop(record.id, None)
    service.tell(record.id, changed=True)
    return {"name": name, "drained_at": at}


def _note_cluster(
    service: Service, connection: sa.Connection, who: Caller, record: ClusterRecord, at: float | None
) -> None:
    now, before, after = service.clock(), record.drained_at is not None, at is not None
    clusters.set_drained(connection, record.id, at)
    changes.add(connection, record.id, Change(now, who.called(record.id), "drained", before, after))
    state = "drained" if after else "reinstated"
    events.add(connection, now, record.id, "cluster", cluster=record.name, state=state)


def _check(worker: str, state: WorkerState, to: WorkerState, verb: str) -> None:
    """Only what was put away is reinstated: a worker that is lost comes back by its agent's word alone."""
    if to not in WORKER_MOVES[state] or (verb == "reinstate" and state not in AWAY):
        raise Conflict(f"worker {worker} is {state}: {verb} is not possible")
