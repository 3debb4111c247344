"""Who is there: the signs of life of agents, the workers they speak for, and what is lost with them.

An agent is alive for a lease after any message. A worker is up while an agent that is alive speaks for it.
Both are known to this process only: after a restart every lease begins anew, and nothing is lost before it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rainbow.jobs import BOOKED, Task, TaskState, WorkerState, advance
from rainbow.service.access import Caller, own_cluster
from rainbow.service.quarantine import release
from rainbow.service.showing import settle
from rainbow.store import jobs, tasks, workers

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Entry, Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.workers import WorkerRecord

PULLS = "pull:"  # an agent of such an id takes whole jobs and is not heard of until they end: it has no lease


@dataclass(frozen=True, slots=True)
class Sign:
    """An agent's last sign of life, and the workers it last said are up (None: all of the cluster).

    `seq` is the highest number of a message of its: one with a lower number was overtaken, and is not believed.
    """

    at: float
    workers: frozenset[str] | None = None
    seq: int = 0


def greet(service: Service, who: Caller, name: str, agent: str, seq: int = 0) -> ClusterRecord:
    """Note a sign of life that says nothing of workers. Every message but a heartbeat begins with this."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    before = service.seen.get((record.id, agent))
    _note(service, record, agent, before.workers if before else None, seq)
    return record


def beat(
    service: Service, who: Caller, name: str, agent: str, up: Collection[str] | None, seq: int = 0
) -> ClusterRecord:
    """Note a sign of life that says which workers are up (None: all)."""
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
    _note(service, record, agent, None if up is None else frozenset(up), seq)
    return record


def _note(service: Service, record: ClusterRecord, agent: str, up: frozenset[str] | None, seq: int) -> None:
    """Renew the lease; workers the agents now speak for are ready, those they no longer speak for are lost."""
    if agent.startswith(PULLS):
        return
    last = service.seen.get((record.id, agent))
    if last and 0 < seq < last.seq:
        return
    with service.store.read() as connection:
        known = workers.of_cluster(connection, record.id)
    before = spoken_for(_alive(service, record.id).values(), known)
    service.seen[(record.id, agent)] = Sign(service.clock(), up, max(seq, last.seq if last else 0))
    after = spoken_for(_alive(service, record.id).values(), known)
    back = [name for name in sorted(after) if known[name].state in (WorkerState.NEW, WorkerState.LOST)]
    lost = [name for name in sorted(before - after) if known[name].state is WorkerState.READY]
    if back or lost:
        with service.store.write() as connection:
            workers.move(connection, record.id, back, WorkerState.READY, service.clock())
            workers.move(connection, record.id, lost, WorkerState.LOST, service.clock())
        service.tell(record.id)


def spoken_for(signs: Iterable[Sign], known: Collection[str]) -> set[str]:
    """Return the workers some of these agents speak for.

    >>> spoken_for([Sign(0.0, frozenset({"n1", "other"}))], ["n0", "n1"])
    {'n1'}
    """
    up: set[str] = set()
    for sign in signs:
        up |= set(known) if sign.workers is None else sign.workers & set(known)
    return up


def lose_the_silent(service: Service, entry: Entry) -> Mapping[str, WorkerRecord]:
    """Call workers nobody speaks for lost, and give tasks lost with their worker or agent back to the queue.

    Returns the workers as they were before.
    """
    agents = _alive(service, entry.id)
    anew = service.clock() - service.started <= service.settings.lease
    with service.store.read() as connection:
        known = workers.of_cluster(connection, entry.id)
        holders = tasks.agents_of(connection, entry.id, BOOKED) - {""}
    up = spoken_for(agents.values(), known)
    release(service, entry, known, up)
    silent = [n for n, w in known.items() if w.state is WorkerState.READY and n not in up and not anew]
    # a worker nobody speaks for holds nothing, whatever else it was put away for
    gone = {n for n, w in known.items() if w.state is WorkerState.LOST or (n not in up and not anew)}
    if silent or gone or (holders - set(agents) and not anew):
        _lose(service, entry, agents, silent, gone, anew)
    return known


def _lose(
    service: Service, entry: Entry, agents: Collection[str], silent: list[str], gone: set[str], anew: bool
) -> None:
    now = service.clock()
    with service.store.write() as connection:
        workers.move(connection, entry.id, silent, WorkerState.LOST, now)
        for task in tasks.of_cluster(connection, entry.id, BOOKED):
            if why := _why_lost(task, agents, gone, anew):
                _give_back(connection, task, why, now)


def _why_lost(task: Task, agents: Collection[str], gone: Collection[str], anew: bool) -> str:
    """Say why a task is lost; an empty text if it is not."""
    if task.agent and task.agent not in agents and not anew and not task.agent.startswith(PULLS):
        return "its agent was lost"
    lost = sorted(worker for worker in task.placement if worker in gone)
    return f"worker {lost[0]} was lost" if lost else ""


def _give_back(connection: sa.Connection, task: Task, why: str, now: float) -> None:
    job = jobs.get(connection, task.job)
    if job and job.canceled_at is not None:
        tasks.save(connection, advance(task, TaskState.CANCELED, placement={}, ended_at=now))
    else:
        tasks.save(connection, advance(task, TaskState.WAITING, detail=why))
    settle(connection, task.job, now)


def _alive(service: Service, cluster_id: str) -> dict[str, Sign]:
    """Return {agent: its sign} of the cluster's agents whose lease has not run out."""
    since = service.clock() - service.settings.lease
    seen = list(service.seen.items())
    return {agent: sign for (cluster, agent), sign in seen if cluster == cluster_id and sign.at >= since}
