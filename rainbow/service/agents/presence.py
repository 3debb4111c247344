"""Who is there: the signs of life of agents, the workers they speak for, and what is lost with them.

An agent is alive for a lease after any message. A worker is up while an agent that is alive speaks for it.
Signs are stored, so that they may come to any process. After a restart every lease begins anew, and nothing is lost
before it ends: an agent could not tell a server that was away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from rainbow.jobs import BOOKED, Task, TaskState, WorkerState, advance
from rainbow.service.access import Caller, own_cluster
from rainbow.service.agents.quarantine import release
from rainbow.service.jobs.showing import settle
from rainbow.store import agents, jobs, tasks, workers
from rainbow.store.agents import AgentRecord

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Entry, Service
    from rainbow.service.steps.mirror import Mirror
    from rainbow.store.clusters import ClusterRecord

PULLS = "pull:"  # an agent of such an id takes whole jobs and is not heard of until they end: it has no lease
BEATS = 3  # an agent says so often in a lease that it is there
EVERY = 1.0  # seconds between two signs of an agent that say nothing new and are stored


def greet(service: Service, who: Caller, name: str, agent: str, seq: int = 0) -> ClusterRecord:
    """Note a sign of life that says nothing of workers. Every message but a heartbeat begins with this."""
    return _note(service, who, name, agent, None, seq, beats=False)


def beat(
    service: Service,
    who: Caller,
    name: str,
    agent: str,
    up: Collection[str] | None,
    seq: int = 0,
    load: Mapping[str, float] | None = None,
) -> ClusterRecord:
    """Note a sign of life that says which workers are up (None: all), and the load of the machine it watches."""
    return _note(service, who, name, agent, None if up is None else frozenset(up), seq, load, beats=True)


def _note(
    service: Service,
    who: Caller,
    name: str,
    agent: str,
    up: frozenset[str] | None,
    seq: int = 0,
    load: Mapping[str, float] | None = None,
    *,
    beats: bool,
) -> ClusterRecord:
    """Renew the lease; workers the agents now speak for are ready, those they no longer speak for are lost."""
    now = service.clock()
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        if agent.startswith(PULLS):
            return record
        signs = agents.of_cluster(connection, record.id)
        known = workers.of_cluster(connection, record.id)
    last = signs.get(agent)
    if last and 0 < seq < last.seq:
        return record
    said = up if beats or last is None else last.workers
    measured = load if beats or last is None else last.load
    sign = AgentRecord(agent, now, said, max(seq, last.seq if last else 0), measured)
    before = spoken_for(alive(service, signs).values(), known)
    after = spoken_for(alive(service, {**signs, agent: sign}).values(), known)
    back = [name for name in sorted(after) if known[name].state in (WorkerState.NEW, WorkerState.LOST)]
    lost = [name for name in sorted(before - after) if known[name].state is WorkerState.READY]
    if back or lost or _is_news(last, sign):
        service.store.together(lambda connection: _store(connection, record.id, sign, back, lost))
    if back or lost:
        service.tell(record.id, offers=False)
    return record


def _is_news(last: AgentRecord | None, sign: AgentRecord) -> bool:
    """Tell whether a sign has to be stored: one that says nothing new need not be, for a moment."""
    if last is None or sign.seen_at - last.seen_at >= EVERY:
        return True
    return (last.workers, last.seq, last.load) != (sign.workers, sign.seq, sign.load)


def _store(connection: sa.Connection, cluster_id: str, sign: AgentRecord, back: list[str], lost: list[str]) -> None:
    agents.put(connection, cluster_id, sign)
    workers.move(connection, cluster_id, back, WorkerState.READY, sign.seen_at)
    workers.move(connection, cluster_id, lost, WorkerState.LOST, sign.seen_at)


def spoken_for(signs: Iterable[AgentRecord], known: Collection[str]) -> set[str]:
    """Return the workers some of these agents speak for.

    >>> spoken_for([AgentRecord("a", 0.0, frozenset({"n1", "other"}))], ["n0", "n1"])
    {'n1'}
    """
    up: set[str] = set()
    for sign in signs:
        up |= set(known) if sign.workers is None else sign.workers & set(known)
    return up


def loads(signs: Iterable[AgentRecord], known: Iterable[str]) -> dict[str, Mapping[str, float]]:
    """Return {worker: load} as the agents that speak for it measured it; of several the last seen is believed."""
    found: dict[str, Mapping[str, float]] = {}
    names = list(known)
    for sign in sorted((sign for sign in signs if sign.load), key=lambda sign: sign.seen_at):
        found.update({name: sign.load or {} for name in names if sign.workers is None or name in sign.workers})
    return found


def missed_beats(service: Service, signs: Mapping[str, AgentRecord], known: Collection[str]) -> dict[str, int | None]:
    """Return {worker: how many heartbeats in a row are missing}, None where no agent has ever spoken for it.

    Agents beat three times in a lease: a worker that misses BEATS of them is lost.
    """
    now, missed = service.clock(), dict[str, int | None](dict.fromkeys(known))
    for sign in signs.values():
        silent = int(BEATS * max(0.0, now - sign.seen_at) / service.settings.lease)
        for worker in spoken_for([sign], known):
            before = missed[worker]
            missed[worker] = silent if before is None else min(before, silent)
    return missed


def lose_the_silent(service: Service, mirror: Mirror) -> bool:
    """Call workers nobody speaks for lost, and give tasks lost with their worker or agent back to the queue.

    Leases end by time, so it is looked again after a while, or when workers have changed. Tells whether anything
    was written.
    """
    entry, now = mirror.entry, service.clock()
    if not mirror.stirred and 0 <= now - service.timed.get(entry.id, 0.0) < min(EVERY, service.settings.lease / 20):
        return False
    service.timed[entry.id], mirror.stirred = now, False
    anew = now - service.started <= service.settings.lease
    known = mirror.workers
    with service.store.read() as connection:
        living = alive(service, agents.of_cluster(connection, entry.id))
    up = spoken_for(living.values(), known)
    released = release(service, mirror, up)
    silent = [n for n, w in known.items() if w.state is WorkerState.READY and n not in up and not anew]
    # a worker nobody speaks for holds nothing, whatever else it was put away for
    gone = {n for n, w in known.items() if w.state is WorkerState.LOST or (n not in up and not anew)}
    orphans = () if anew else (a for a in mirror.agents if a not in living and not a.startswith(PULLS))
    if not (silent or any(mirror.held[name] for name in gone) or any(mirror.agents[a] for a in orphans)):
        return released
    _lose(service, entry, living, silent, gone, anew)
    return True


def _lose(
    service: Service, entry: Entry, living: Collection[str], silent: list[str], gone: set[str], anew: bool
) -> None:
    now = service.clock()
    with service.store.write() as connection:
        workers.move(connection, entry.id, silent, WorkerState.LOST, now)
        for task in tasks.of_cluster(connection, entry.id, BOOKED):
            if why := _why_lost(task, living, gone, anew):
                _give_back(connection, task, why, now)


def _why_lost(task: Task, living: Collection[str], gone: Collection[str], anew: bool) -> str:
    """Say why a task is lost; an empty text if it is not."""
    if task.agent and task.agent not in living and not anew and not task.agent.startswith(PULLS):
        return "its agent was lost"
    lost = sorted(worker for worker in task.placement if worker in gone)
    return f"worker {lost[0]} was lost" if lost else ""


def _give_back(connection: sa.Connection, task: Task, why: str, now: float) -> None:
    job = jobs.get(connection, task.job)
    if job and job.canceled_at is not None:
        tasks.save(connection, advance(task, TaskState.CANCELED, placement={}, ended_at=now), now)
    else:
        tasks.save(connection, advance(task, TaskState.WAITING, detail=why), now)
    settle(connection, task.job, now)


def alive(service: Service, signs: Mapping[str, AgentRecord]) -> dict[str, AgentRecord]:
    """Return those whose lease has not run out."""
    since = service.clock() - service.settings.lease
    return {agent: sign for agent, sign in signs.items() if sign.seen_at >= since}
