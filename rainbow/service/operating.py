"""What an operator says of a worker: take it away, let it end what it has, bring it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, NotFound
from rainbow.jobs import WORKER_MOVES, WorkerState
from rainbow.service.access import Caller, own_cluster
from rainbow.store import changes, events, workers
from rainbow.store.changes import Change

if TYPE_CHECKING:
    from rainbow.service.service import Service

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


def _check(worker: str, state: WorkerState, to: WorkerState, verb: str) -> None:
    """Only what was put away is reinstated: a worker that is lost comes back by its agent's word alone."""
    if to not in WORKER_MOVES[state] or (verb == "reinstate" and state not in AWAY):
        raise Conflict(f"worker {worker} is {state}: {verb} is not possible")
