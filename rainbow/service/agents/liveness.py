"""Heartbeats of agents, what is lost when they stop, and workers in quarantine.

An agent is alive for a lease after any message. A worker is up while a live agent serves it. An agent whose lease is
over stops its tasks; the server gives them to others after the grace that it has for this (heartbeats.py). Heartbeats
are stored, so that they may come to any process. After a restart every lease begins again, and no worker is lost
before it ends: agents could not reach a server that was away.

A worker whose tasks repeatedly fail to start gets no new ones for a while. Only consecutive failures to start on the
same worker count, not programs that end badly. Off until a cluster's limits say after how many (`quarantine_after`).
So does a worker where tasks are lost `quarantine_after_lost` times, and none ends as it should between: that is more
than one task may be lost, and a worker is not put away for a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from rainbow.errors import RainbowError
from rainbow.jobspec.handover import starts_once
from rainbow.service.core import heartbeats
from rainbow.service.core.access import Caller, own_cluster
from rainbow.service.core.heartbeats import PULLS
from rainbow.service.core.memory import ByCluster, place
from rainbow.service.core.pubsub import orders_to
from rainbow.service.jobs.jobspecs import reading
from rainbow.service.jobs.lifecycle import settle
from rainbow.state_machine import BOOKED, Task, TaskState, WorkerState
from rainbow.store import jobs, tasks, workers
from rainbow.store.workers import AgentRecord
from rainbow.transitions import LOST, Lost, StopOrdered, transition

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.agents.unit_of_work import UnitOfWork
    from rainbow.service.core.service import Service
    from rainbow.service.live_state.mirror import Mirror
    from rainbow.store.clusters import ClusterRecord


BEATS = 3  # an agent says so often in a lease that it is there
LOOK = 2.0  # seconds between two looks for what is lost
SIGN_INTERVAL = 1.0  # seconds between two times that a sign is stored which says nothing new, where others read it
STORED = 6  # a sign that says nothing new is stored so often in a lease


class AgentOfCluster(NamedTuple):
    """An agent's cluster, the workers that it serves (None: all), and whether it asks its site about jobs to come."""

    record: ClusterRecord
    serves: frozenset[str] | None
    checks: bool = False


def record_agent(service: Service, who: Caller, name: str, agent: str, seq: int = 0) -> AgentOfCluster:
    """Note a heartbeat that says nothing of workers. Every message but a heartbeat begins with this."""
    return _note(service, who, name, agent, None, seq, beats=False)


def beat(
    service: Service,
    who: Caller,
    name: str,
    agent: str,
    up: Collection[str] | None,
    seq: int = 0,
    load: Mapping[str, float] | None = None,
    *,
    keeps: bool = False,
    checks: bool = False,
) -> ClusterRecord:
    """Note a heartbeat that says which workers are up (None: all), and the load of the machine it watches.

    `keeps`: the agent's tasks continue when it loses the server. `checks`: it asks its site about jobs to come.
    """
    said = None if up is None else frozenset(up)
    return _note(service, who, name, agent, said, seq, load, beats=True, keeps=keeps, checks=checks).record


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
    keeps: bool = False,
    checks: bool = False,
) -> AgentOfCluster:
    """Renew the lease; workers the agents now serve are ready, those they no longer serve are lost."""
    now = service.clock()
    with service.store.read() as connection:
        record = own_cluster(connection, who, name)
        if agent.startswith(PULLS):
            return AgentOfCluster(record, None)
        last = workers.agent(connection, record.id, agent)
        newest = max(last.seq if last else 0, service.heartbeats.newest(record.id, agent))
        if last and 0 < seq < newest:
            return AgentOfCluster(record, last.workers, last.checks)
        said = up if beats or last is None else last.workers
        measured = load if beats or last is None else last.load
        traits = (keeps, checks) if beats or last is None else (last.keeps, last.checks)
        sign = AgentRecord(agent, now, said, max(seq, newest), measured, *traits)
        back = workers.away(connection, record.id, said)
        lost = _lost_with(service, connection, record.id, last, sign)
    news = bool(back or lost) or _is_news(service, last, sign)
    renewed = not news and service.turns.alone and _is_old(service, last, sign)
    service.heartbeats.hear(record.id, sign, stored=False)
    if news:
        service.store.together(lambda connection: _store(connection, record.id, sign, back, lost, beats=beats))
        service.heartbeats.hear(record.id, sign)
    elif renewed:
        service.heartbeats.put_off(record.id, sign)
    if back or lost:
        service.tell(record.id)
    if last and last.workers != said:  # it may be waiting for work for others
        service.news.tell(orders_to(record.id, agent))
    return AgentOfCluster(record, said, sign.checks)


class ClosedConnection(NamedTuple):
    """Seconds since an agent closed its connection without a word, and seconds that its lease still has."""

    ago: float
    left: float


def departed(service: Service) -> dict[str, dict[str, ClosedConnection]]:
    """Return {cluster id: {agent: ClosedConnection}} of agents that closed the connection on which they waited.

    Not of those that have said something since, here or to another process, or that had signed off before.
    """
    lease, remaining = service.settings.lease, service.heartbeats.departed_for(service.settings.lease)
    if not remaining:
        return {}
    with service.store.read() as connection:
        signs = workers.agents_of_many(connection, remaining)
    result: dict[str, dict[str, ClosedConnection]] = {}
    for cluster_id, agents in remaining.items():
        for name, sign in signs.get(cluster_id, {}).items():
            silent = service.heartbeats.silence(cluster_id, sign).likely
            if name in agents and sign.workers != frozenset() and agents[name] <= silent <= lease:
                result.setdefault(cluster_id, {})[name] = ClosedConnection(agents[name], lease - silent)
    return result


def _lost_with(
    service: Service, connection: sa.Connection, cluster_id: str, last: AgentRecord | None, sign: AgentRecord
) -> list[str]:
    """Return the ready workers that only this agent spoke for, and no longer does: others are read only then."""
    if last is None or sign.workers is None or (last.workers is not None and last.workers <= sign.workers):
        return []
    living = alive(service, cluster_id, workers.agents_of(connection, cluster_id))
    known = workers.of_cluster(connection, cluster_id)
    before = spoken_for(living.values(), known)
    after = spoken_for({**living, sign.name: sign}.values(), known)
    return [name for name in sorted(before - after) if known[name].state is WorkerState.READY]


def _is_news(service: Service, last: AgentRecord | None, sign: AgentRecord) -> bool:
    """Return whether a sign has to be stored: one that says nothing new need not be, for a moment.

    Where this process alone steps clusters it remembers the rest. Others count silence from what is stored, and it
    must not be much longer than it was: tasks would be given away before their agent has stopped them.
    """
    if last is None:
        return True
    if not service.turns.alone and (last.seq != sign.seq or _is_old(service, last, sign)):
        return True
    return (last.workers, last.load, last.keeps, last.checks) != (sign.workers, sign.load, sign.keeps, sign.checks)


def _is_old(service: Service, last: AgentRecord | None, sign: AgentRecord) -> bool:
    """Return whether what is stored of an agent is from too long ago."""
    lease = service.settings.lease
    most = lease / STORED if service.turns.alone else min(SIGN_INTERVAL, lease / 20)
    return last is not None and abs(sign.seen_at - last.seen_at) >= most


def store_signs(service: Service) -> None:
    """Store the signs that said nothing new, in one statement for all agents, once a second."""
    if together := service.heartbeats.take_due():
        try:
            service.store.together(lambda connection: workers.renew(connection, together))
        except RainbowError:  # the store is away: others count silence by what is in it as soon as it is back
            service.heartbeats.put_back(together)
            raise


def _store(
    connection: sa.Connection, cluster_id: str, sign: AgentRecord, back: list[str], lost: list[str], *, beats: bool
) -> None:
    workers.put_agent(connection, cluster_id, sign, beats=beats)
    workers.move(connection, cluster_id, back, WorkerState.READY, sign.seen_at)
    workers.move(connection, cluster_id, lost, WorkerState.LOST, sign.seen_at)


def spoken_for(signs: Iterable[AgentRecord], known: Collection[str]) -> set[str]:
    """Return the workers some of these agents serve.

    >>> spoken_for([AgentRecord("a", 0.0, frozenset({"n1", "other"}))], ["n0", "n1"])
    {'n1'}
    """
    up, names = set[str](), frozenset(known)
    for sign in signs:
        up |= served(sign, names)
    return up


def served(sign: AgentRecord, names: frozenset[str]) -> frozenset[str]:
    """Return which of some workers an agent serves."""
    return names if sign.workers is None else sign.workers & names


def loads(signs: Iterable[AgentRecord], known: Iterable[str]) -> dict[str, Mapping[str, float]]:
    """Return {worker: load} as the agents that serve it measured it; of several the last seen is believed."""
    result: dict[str, Mapping[str, float]] = {}
    names = frozenset(known)
    for sign in sorted((sign for sign in signs if sign.load), key=lambda sign: sign.seen_at):
        result.update(dict.fromkeys(served(sign, names), sign.load or {}))
    return result


def missed_beats(
    service: Service, cluster_id: str, signs: Mapping[str, AgentRecord], known: Collection[str]
) -> dict[str, int | None]:
    """Return {worker: how many heartbeats in a row are missing}, None where no agent has ever spoken for it.

    Agents beat three times in a lease: a worker that misses BEATS of them is lost.
    """
    missed, names = dict[str, int | None](dict.fromkeys(known)), frozenset(known)
    for sign in signs.values():
        silent = int(BEATS * service.heartbeats.silence(cluster_id, sign).likely / service.settings.lease)
        for worker in served(sign, names):
            before = missed[worker]
            missed[worker] = silent if before is None else min(before, silent)
    return missed


@place("loss-checks", most="one for a cluster", of="when it was looked for what is lost")
class LossChecks(ByCluster[float]):
    """{cluster id: when it was last looked for what is lost}."""


def lose_the_silent(service: Service, mirror: Mirror) -> bool:
    """Mark workers without an agent as lost, and give tasks lost with their worker or agent back to the queue.

    Leases end by time, so it is looked again after a while, or when workers have changed. Tells whether anything
    was written.
    """
    entry, now = mirror.entry, service.monotonic()
    looked = service.state(LossChecks)
    if not mirror.workers_changed and 0 <= now - looked.get(entry.id, 0.0) < min(LOOK, service.settings.lease / 20):
        return False
    looked[entry.id], mirror.workers_changed = now, False
    anew = service.heartbeats.uptime() <= service.settings.lease
    known = mirror.workers
    with service.store.read() as connection:
        signs = workers.agents_of(connection, entry.id)
    living = alive(service, entry.id, signs)
    up = spoken_for(living.values(), known)
    released = end_quarantine(service, mirror, up)
    silent = [n for n, w in known.items() if w.state is WorkerState.READY and n not in up and not anew]
    # a worker nobody speaks for holds nothing, whatever else it was put away for
    gone = {n for n, w in known.items() if w.state is WorkerState.LOST or (n not in up and not anew)}
    orphans = (a for a in mirror.agents if a not in living and not a.startswith(PULLS))
    if not (silent or any(map(mirror.census.tasks_on, gone)) or any(mirror.agents[a] for a in orphans)):
        return released
    given_up = _given_up(service, entry.id, signs, mirror)
    lost = _lose(service, mirror, _Gone(frozenset(living), given_up, frozenset(gone)), silent)
    if lost:
        service.tell(entry.id)
    return lost or released


@dataclass(frozen=True, slots=True)
class _Gone:
    """Agents that live, tasks whose agents have surely ended them, workers that are gone."""

    living: frozenset[str]
    given_up: Callable[[Task], bool]
    workers: frozenset[str]


def _given_up(
    service: Service, cluster_id: str, signs: Mapping[str, AgentRecord], mirror: Mirror
) -> Callable[[Task], bool]:
    """Return what tells of a task whether its agent has surely ended it: it was silent for a lease and the grace.

    One that keeps its tasks without the server has not, unless an operator says so: by taking the worker offline.
    """
    most = service.settings.lease + service.settings.grace
    silences = service.heartbeats.silences(cluster_id, signs)

    def over(task: Task) -> bool:
        if task.agent not in signs:
            return service.heartbeats.uptime() > most
        if silences[task.agent].certain <= most:
            return False
        offline = any(
            name in mirror.workers and mirror.workers[name].state is WorkerState.OFFLINE for name in task.placement
        )
        return offline or not signs[task.agent].keeps

    return over


def _lose(service: Service, mirror: Mirror, gone: _Gone, silent: list[str]) -> bool:
    now, entry = service.clock(), mirror.entry
    with service.store.write() as connection:
        workers.move(connection, entry.id, silent, WorkerState.LOST, now)
        booked = tasks.of_cluster(connection, entry.id, BOOKED)
        stopping = _stopping(
            service, entry.id, [task for task in booked if gone.workers.intersection(task.placement)]
        )
        lost_tasks: list[Task] = []
        stopped = 0
        for task in booked:
            fate, why = _fate(task, gone, stopping)
            if fate is Fate.LOST:
                _give_back(connection, task, why, now, mirror.limits["max_lost"])
                lost_tasks += [task] if task.agent else []
            elif fate is Fate.STOP:
                tasks.save(connection, transition(task, StopOrdered(why, cause=LOST), now), now)
                stopped += 1
        count_losses(connection, entry.id, lost_tasks, mirror.limits, now)
    return bool(silent or lost_tasks or stopped)


class Fate(Enum):
    """What becomes of a booked task."""

    STAY = "stay"
    STOP = "stop"  # its agent lives, and is to end it
    LOST = "lost"  # it runs no more: others may have it


def _fate(task: Task, gone: _Gone, stopping: Callable[[Task], bool]) -> tuple[Fate, str]:
    """Decide what becomes of a task, and why. What may still run is not given to others."""
    workers_lost = sorted(worker for worker in task.placement if worker in gone.workers)
    why = f"lost contact with worker {workers_lost[0]}" if workers_lost else ""
    if not task.agent:
        return (Fate.LOST if why else Fate.STAY), why
    if task.agent.startswith(PULLS):
        return Fate.STAY, ""
    if task.agent not in gone.living:
        return (Fate.LOST, "lost contact with the agent") if gone.given_up(task) else (Fate.STAY, "")
    if not why:
        return Fate.STAY, ""
    if task.state is not TaskState.STOPPING:
        return Fate.STOP, why
    return (Fate.STAY if stopping(task) else Fate.LOST), why


@place("stops", most="the tasks on lost workers", of="when a task's worker was first seen lost")
class Stops(ByCluster[dict[tuple[str, int], float]]):
    """{cluster id: {(task, attempt): when its worker was first seen lost}}."""


def _stopping(service: Service, cluster_id: str, stranded: Iterable[Task]) -> Callable[[Task], bool]:
    """Return what tells whether the agent of a task on a lost worker still has time to end it.

    An agent that cannot reach the worker has a lease to find out, and the grace to end what runs there.
    """
    now, most = service.monotonic(), service.settings.lease + service.settings.grace
    before = service.state(Stops).get(cluster_id, {})
    runs = [(task.id, task.attempt) for task in stranded]
    since = {run: before.get(run, now) for run in runs}
    service.state(Stops)[cluster_id] = since
    return lambda task: now - since[task.id, task.attempt] <= most


def _give_back(connection: sa.Connection, task: Task, why: str, now: float, most: int) -> None:
    job = jobs.get(connection, task.job)
    canceled = job is not None and job.canceled_at is not None
    once = starts_once(reading(connection, task.job).request)
    tasks.save(connection, transition(task, Lost(why, most, canceled, once), now), now)
    settle(connection, task.job, now)


@place("lost-clusters", most="one for a cluster", of="when all workers of a cluster were first seen lost")
class LostClusters(ByCluster[float]):
    """{cluster id: when all its workers were first seen lost}."""


def may_return(service: Service, mirror: Mirror) -> bool:
    """Return whether workers that are lost may come back soon: an agent that ended has a lease to start again."""
    service.state(LostClusters).setdefault(mirror.entry.id, service.monotonic())
    if not mirror.states[WorkerState.LOST] or not is_awaited(service, mirror.entry.id):
        return False
    with service.store.read() as connection:
        return bool(alive(service, mirror.entry.id, workers.agents_of(connection, mirror.entry.id)))


def is_awaited(service: Service, cluster_id: str) -> bool:
    """Return whether all workers of a cluster are lost for less than a lease."""
    since = service.state(LostClusters).get(cluster_id)
    return since is not None and service.monotonic() - since < service.settings.lease


def alive(service: Service, cluster_id: str, signs: Mapping[str, AgentRecord]) -> dict[str, AgentRecord]:
    """Return those whose lease has not run out."""
    return heartbeats.alive(service.heartbeats, service.settings.lease, cluster_id, signs)


# ── quarantine ──


def count_start(desk: UnitOfWork, task: Task, *, started: bool, now: float) -> None:
    """Count a task's end for the workers it held; put those away that have failed too often."""
    connection, cluster_id, after = desk.connection, desk.cluster_id, desk.limits["quarantine_after"]
    held = [name for name in task.placement if name]
    known = workers.of_cluster(connection, cluster_id)
    failures = {name: 0 if started else known[name].failures + 1 for name in held if name in known}
    workers.count_failures(connection, cluster_id, failures)
    flaky = [n for n, times in failures.items() if times >= after and known[n].state is WorkerState.READY]
    workers.move(connection, cluster_id, flaky, WorkerState.QUARANTINED, now)
    workers.count_failures(connection, cluster_id, dict.fromkeys(flaky, 0))


def end_quarantine(service: Service, mirror: Mirror, up: Collection[str]) -> bool:
    """Let workers go whose time is over; those without an agent are lost. Tells whether there were any."""
    if not mirror.states[WorkerState.QUARANTINED]:
        return False
    now, most = service.clock(), mirror.limits["quarantine_minutes"] * 60
    away = (
        (name, worker.since) for name, worker in mirror.workers.items() if worker.state is WorkerState.QUARANTINED
    )
    over = [name for name, since in away if now - since >= most]
    if over:
        with service.store.write() as connection:
            workers.move(connection, mirror.entry.id, [n for n in over if n in up], WorkerState.READY, now)
            workers.move(connection, mirror.entry.id, [n for n in over if n not in up], WorkerState.LOST, now)
    return bool(over)


def count_losses(
    connection: sa.Connection, cluster_id: str, results: Collection[Task], limits: Mapping[str, int], now: float
) -> None:
    """Count one loss for every worker that these tasks were lost on; put those away where tasks keep getting lost."""
    after = limits["quarantine_after_lost"]
    counts = workers.count_losses(
        connection, cluster_id, {name for task in results for name in task.placement if name}
    )
    bad = [name for name, times in counts.items() if 0 < after <= times]
    if bad:
        known = workers.of_cluster(connection, cluster_id)
        away = [name for name in bad if known[name].state in (WorkerState.READY, WorkerState.LOST)]
        workers.move(connection, cluster_id, away, WorkerState.QUARANTINED, now)
        workers.forget_losses(connection, cluster_id, away)
