"""Clusters and workers drained, taken offline, reinstated and deleted.

A cluster is deleted at once if it has no active tasks, else when its running tasks have ended. Its waiting jobs move
to other clusters (failover.py), and so do offered tasks that were not accepted. A job of a draining cluster that fits
no other cluster is canceled, with the reason.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, NotFound
from rainbow.outcome import after_commit
from rainbow.service.core.access import Caller, own_cluster
from rainbow.service.jobs.lifecycle import end
from rainbow.service.placement.failover import (
    DELETED,
    Looks,
    Relocation,
    Verdicts,
    evacuate,
    is_movable,
    look_at_some,
    staying,
)
from rainbow.state_machine import WORKER_MOVES, Task, TaskState, WorkerState
from rainbow.store import clusters, events, jobs, tasks, workers
from rainbow.store.events import Change
from rainbow.store.jobs import LIVE
from rainbow.text import some
from rainbow.transitions import TakenBack, transition

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.keyed_call import KeyedCall
    from rainbow.service.core.service import Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord


NOT_BEGUN = {TaskState.WAITING, TaskState.ASSIGNED}


def delete(
    service: Service, who: Caller, name: str, call: KeyedCall | None = None, *, drain: bool = False
) -> dict[str, Any] | None:
    """Forget a cluster; Conflict, and nothing changed, while it has live jobs, unless `drain`.

    Returns what must end before. That it is done is kept under the call's key: its own secret ends with the cluster,
    so that a caller whose answer was lost could not ask again.
    """
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        before = [job.id for job in jobs.live(connection, record.id)]
    if not drain and (stay := staying(service, before)):
        raise _in_use(name, len(stay))
    answer: dict[str, Any] = {"draining": name, "placed": [], "refused": [], "running": []}
    if before:
        _clear(service, record, before, answer, drain=drain)
    with service.changing:
        with service.store.write() as connection:
            records = evacuate(service, connection, record.id)
            if records and not drain:
                raise _in_use(name, len(records))
            if not records and clusters.get(connection, record.id):  # a step may have been first
                _remove(service, connection, record)
            if not records and call is not None:
                call.keep(connection, {"deleted": name})
        with after_commit("compile"):
            service.compile(name)
    service.tell(changed=True)
    return answer if records else None


def _in_use(name: str, count: int) -> Conflict:
    advice = "use --drain to let running jobs finish and to move or cancel pending ones"
    return Conflict(f"cluster {name} has {some(count, 'active job')}; {advice}")


def _clear(
    service: Service, record: ClusterRecord, before: list[str], answer: dict[str, Any], *, drain: bool
) -> None:
    """Place a cluster's jobs elsewhere, in short transactions with time for others between them."""
    if drain:
        with service.changing:
            with service.store.write() as connection:
                clusters.drain(connection, record.id, service.clock())
            with after_commit("compile"):
                service.compile(record.name)  # nothing new comes meanwhile

    def clear(elsewhere: Relocation, job: JobRecord) -> None:
        if job.cluster_id != record.id or job.state not in LIVE:
            return
        if drain:
            answer[_drained(service, elsewhere, record, job)].append(job.id)
        elif is_movable(elsewhere.connection, job):
            elsewhere.place(job, DELETED)

    remaining, verdicts = deque(before), Verdicts()
    while remaining:
        time.sleep(look_at_some(service, remaining, verdicts, clear))


def finish(service: Service, record: ClusterRecord) -> None:
    """Remove a draining cluster once nothing runs there."""
    with service.changing:
        with service.store.write() as connection:
            if jobs.live(connection, record.id) or clusters.get(connection, record.id) is None:
                return
            _remove(service, connection, record)
        with after_commit("compile"):
            service.compile(record.name)
    service.tell(record.id, changed=True, agents=True)


def _remove(service: Service, connection: sa.Connection, record: ClusterRecord) -> None:
    events.add(connection, service.clock(), record.id, "cluster", cluster=record.name, state="deleted")
    clusters.remove(connection, record.id)


def _drained(service: Service, elsewhere: Relocation, record: ClusterRecord, job: JobRecord) -> str:
    """Let a job leave a cluster that is drained; return what became of it."""
    connection, now = elsewhere.connection, service.clock()
    own = tasks.of_job(connection, job.id)
    if any(task.state not in NOT_BEGUN for task in own):
        return "running"
    _take_back(connection, record, own, now)
    if elsewhere.place(job, DELETED):
        return "placed"
    end(connection, job.id, now, f"cluster {record.name} was drained and no other cluster can run the job")
    return "refused"


def _take_back(connection: sa.Connection, record: ClusterRecord, own: list[Task], now: float) -> None:
    """Stop offering tasks that are not accepted."""
    why = f"cluster {record.name} is drained"
    offered = [transition(task, TakenBack(why), now) for task in own if task.state is TaskState.ASSIGNED]
    tasks.save_all(connection, offered, now)


VERBS = {"offline": WorkerState.OFFLINE, "drain": WorkerState.DRAINING, "reinstate": WorkerState.READY}
AWAY = {WorkerState.OFFLINE, WorkerState.DRAINING, WorkerState.QUARANTINED}


def move(service: Service, who: Caller, name: str, worker: str, verb: str) -> dict[str, Any]:
    """Put a worker into the state the verb asks for; what runs on it continues. Said twice it is the same.

    A reinstated worker without an agent is lost at the next step, and comes back by itself.
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
            events.add_change(
                connection, record.id, Change(now, who.called(record.id), f"worker {worker}", state, to)
            )
            events.add(connection, now, record.id, "worker", cluster=name, worker=worker, state=str(to))
    service.tell(record.id)
    return {"name": worker, "state": to, "since": known.since if to is state else now}


def move_cluster(service: Service, who: Caller, name: str, verb: str) -> dict[str, Any]:
    """Let a cluster take nothing new (`drain`), or take tasks again (`reinstate`). Said twice it is the same.

    What runs there continues. What waits is placed again where it may go; the rest waits until the cluster is back.
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
        with after_commit("compile"):
            service.compile(name)
    service.state(Looks).pop(record.id, None)
    service.tell(record.id, changed=True)
    return {"name": name, "drained_at": at}


def _note_cluster(
    service: Service, connection: sa.Connection, who: Caller, record: ClusterRecord, at: float | None
) -> None:
    now, before, after = service.clock(), record.drained_at is not None, at is not None
    clusters.set_drained(connection, record.id, at)
    events.add_change(connection, record.id, Change(now, who.called(record.id), "drained", before, after))
    state = "drained" if after else "reinstated"
    events.add(connection, now, record.id, "cluster", cluster=record.name, state=state)


def _check(worker: str, state: WorkerState, to: WorkerState, verb: str) -> None:
    """Only what was put away is reinstated: a worker that is lost comes back by its agent's word alone."""
    if to not in WORKER_MOVES[state] or (verb == "reinstate" and state not in AWAY):
        raise Conflict(f"cannot {verb} worker {worker}: its state is {state}")
