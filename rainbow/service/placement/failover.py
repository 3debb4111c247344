"""Jobs moved off a cluster that is lost, drained or deleted; each move is recorded.

    away     of a cluster: none of its workers will take a task before an agent returns or a worker is reinstated
    movable  of a job: no agent of its cluster has ever accepted a task of it. An accepted task may still run, even
             if no message arrives: the job stays, and waits for the cluster's return

A job leaves a cluster once: it never comes back to one it has left. Where else it may go was settled when it was
submitted, by the credentials brought then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from rainbow.errors import TooMany
from rainbow.scheduling import Broken
from rainbow.service.core.limits import admit, limits_of, limits_tasks
from rainbow.service.core.memory import ByCluster, place
from rainbow.service.jobs.expectation import take_back
from rainbow.service.jobs.jobspecs import reading_of
from rainbow.service.placement import ledger
from rainbow.service.placement.arrival import Arrival
from rainbow.service.placement.candidates import barred, candidate_ids, placeable, verdicts_on
from rainbow.service.placement.facts import Facts, decide, facts_for
from rainbow.state_machine import TaskState, WorkerState
from rainbow.store import clusters, events, jobs, tasks, workers

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Request
    from rainbow.matching import Verdict
    from rainbow.service.core.service import RegisteredCluster, Service
    from rainbow.service.jobs.jobspecs import Reading
    from rainbow.store.jobs import JobRecord


GONE = frozenset({WorkerState.LOST, WorkerState.OFFLINE, WorkerState.DRAINING})
DELETED = "cluster deleted"
PAUSE = 10.0  # seconds before jobs that found no other place are looked at again, from the end of the last look
SLICE = 0.02  # seconds that one transaction takes about, and the matching before it
AT_LEAST = 1  # jobs are looked at in it, however long that takes
SHARE = 0.25  # of the time, at most, goes to jobs of clusters that are away, of all together


@dataclass(frozen=True, slots=True)
class Move:
    """Where a job goes instead; `record` is the job there, `decision` the whole of it with this move."""

    record: JobRecord
    decision: dict[str, Any]
    left: str  # the id of the cluster it was at
    facts: Facts  # what it was decided by


Verdicts = dict[tuple[object, ...], Sequence["Verdict"]]


@dataclass(frozen=True, slots=True)
class Look:
    """How far the jobs of a cluster that is away have been looked at."""

    ended: float = 0.0  # by the service's clock
    pause: float = 0.0  # seconds before the next
    left: deque[str] = field(default_factory=deque)  # jobs still to be looked at before it begins again
    verdicts: Verdicts = field(default_factory=dict)  # what was matched for them so far


@place("failover", most="one for a cluster", of="how far the jobs of a cluster that is away have been looked at")
class Looks(ByCluster[Look]):
    """{cluster id: how far its jobs have been looked at}."""


class DepartedMirror(Protocol):
    """The mirror of a cluster, as far as its jobs leave it."""

    @property
    def entry(self) -> RegisteredCluster:
        """The cluster."""

    @property
    def jobs(self) -> Mapping[str, Any]:
        """Its jobs by id."""

    @property
    def limits(self) -> Mapping[str, Any]:
        """The limits of the cluster."""

    @property
    def promised(self) -> Collection[str] | None:
        """Its jobs with a promised start or with space kept for them; None: no plan has said it yet."""

    def forget_moved(self, job_id: str) -> None:
        """Forget a job that has gone."""


def is_away(states: Iterable[WorkerState]) -> bool:
    """Return whether a cluster with workers in these states takes nothing.

    >>> is_away([WorkerState.LOST, WorkerState.OFFLINE]), is_away([WorkerState.LOST, WorkerState.NEW])
    (True, False)
    """
    known = set(states)
    return bool(known) and known <= GONE


def leave(service: Service, mirror: DepartedMirror) -> bool:
    """Place again some of what waits at a cluster that is away; False if it is not yet time for that.

    What fits nowhere else continues waiting.

    One short transaction a step, and then a pause, so that others get most of the time, however many clusters are
    away; the next step takes up where this one has ended. After the last job the cluster rests for PAUSE seconds.
    """
    looks = service.state(Looks)
    look = looks.get(mirror.entry.id) or Look()
    if 0 <= service.clock() - look.ended < look.pause:
        return False
    remaining = look.left or deque(sorted(mirror.jobs))
    moved: dict[str, str] = {}

    def place(elsewhere: Relocation, record: JobRecord) -> None:
        # another process may have moved it since the mirror was followed: this one only says of its own cluster
        if record.cluster_id == mirror.entry.id and is_movable(elsewhere.connection, record):
            move = elsewhere.place(record, "its cluster accepts no tasks")
            if move:
                moved[record.id] = move.record.cluster_id

    spent = look_at_some(service, remaining, look.verdicts, place)
    for job_id in moved:
        mirror.forget_moved(job_id)
    share = SHARE / len(looks.keys() | {mirror.entry.id})
    pause = max(0.0 if remaining else PAUSE, spent * (1 / share - 1))
    looks[mirror.entry.id] = Look(service.clock(), pause, remaining, look.verdicts if remaining else {})
    if moved:
        service.tell(mirror.entry.id, *set(moved.values()))
    return True


def is_leaving(service: Service, cluster_id: str) -> bool:
    """Return whether jobs of a cluster that is away have still to be looked at."""
    look = service.state(Looks).get(cluster_id)
    return bool(look and look.left)


def look_at_some(
    service: Service, remaining: deque[str], verdicts: Verdicts, do: Callable[[Relocation, JobRecord], None]
) -> float:
    """Do something with jobs from the front of a queue in one short transaction; return the seconds it took.

    What their clusters say is found before: matching takes its time, and nobody waits for it.
    """
    began = perf_counter()
    with service.store.read() as connection:
        matched = _match_some(Relocation(service, connection, verdicts), remaining, began)
    spent = perf_counter() - began
    with service.store.write() as connection:
        elsewhere, began, looked_at = Relocation(service, connection, verdicts), perf_counter(), 0
        while looked_at < matched and (looked_at < AT_LEAST or perf_counter() - began < SLICE):
            record = jobs.get(connection, remaining.popleft())
            looked_at += 1
            if record:
                do(elsewhere, record)
    return spent + perf_counter() - began


def _match_some(elsewhere: Relocation, remaining: Iterable[str], began: float) -> int:
    """Match the first jobs of a queue until the time is over; return how many were."""
    count = 0
    for job_id in remaining:
        if count >= AT_LEAST and perf_counter() - began >= SLICE:
            break
        record = jobs.get(elsewhere.connection, job_id)
        if record and is_movable(elsewhere.connection, record):
            elsewhere.look(record)
        count += 1
    return count


def staying(service: Service, job_ids: Iterable[str]) -> list[str]:
    """Return those of a cluster's jobs that would stay if it took no tasks any more; nothing is written."""
    with service.store.read() as connection:
        elsewhere = Relocation(service, connection, {})
        records = (
            record for job_id in job_ids if (record := jobs.get(connection, job_id)) and record.state in jobs.LIVE
        )
        return [r.id for r in records if not (is_movable(connection, r) and elsewhere.look(r))]


def evacuate(service: Service, connection: sa.Connection, cluster_id: str) -> list[JobRecord]:
    """Place again what has come to a cluster that is to be deleted; return the live jobs that remain."""
    elsewhere = Relocation(service, connection, {})
    for record in jobs.live(connection, cluster_id):
        if is_movable(connection, record):
            elsewhere.place(record, DELETED)
    return jobs.live(connection, cluster_id)


def is_movable(connection: sa.Connection, record: JobRecord) -> bool:
    """Return whether a job's cluster runs nothing of it for certain."""
    if record.state not in jobs.LIVE or record.accepted_clock is not None or record.canceled_at is not None:
        return False
    return set(tasks.states_of(connection, record.id)) <= {TaskState.WAITING, TaskState.CANCELED}


@dataclass(frozen=True, slots=True)
class Destinations:
    """Where a job may go: what it asks for, how a cluster is chosen, and the verdicts of those open to it."""

    read: Reading
    decision: Mapping[str, Any]
    selector: str
    options: Mapping[str, Any]
    verdicts: Sequence[Verdict]
    ids: Mapping[str, str]  # {cluster id: name} of those that match

    def arrival(self, record: JobRecord) -> Arrival:
        """Return the job as its submit was decided."""
        owner = (record.requestor, record.name)
        return Arrival(self.read, *owner, self.selector, self.options, record.account, job=record.id)

    @property
    def candidates(self) -> list[Verdict]:
        """The verdicts on the clusters that match, in the order of `ids`."""
        names = set(self.ids.values())
        return [verdict for verdict in self.verdicts if verdict.cluster in names]


class Relocation:
    """Places jobs again in one transaction: what is the same for many of them is read once.

    A job goes back to no cluster it has left, but for the reasons `back_after`.
    """

    def __init__(
        self, service: Service, connection: sa.Connection, verdicts: Verdicts, *, back_after: Collection[str] = ()
    ) -> None:
        self._service, self._connection, self._back_after = service, connection, back_after
        self._since: dict[str, float | None] = {}  # cluster id → when it was registered, None if it takes nothing
        self.verdicts = verdicts  # may be those of another transaction

    @property
    def connection(self) -> sa.Connection:
        """Where it reads and writes."""
        return self._connection

    def look(
        self, record: JobRecord, among: Collection[str] | None = None, going: Destinations | None = None
    ) -> Move | None:
        """Return where a job would go, of these clusters if some are named, without writing."""
        return self._move(record, "", going or self.going(record), among)

    def place(
        self,
        record: JobRecord,
        why: str,
        among: Collection[str] | None = None,
        going: Destinations | None = None,
        known: Facts | None = None,
        **more: Any,
    ) -> Move | None:
        """Place a job at another of its candidates, or of these among them; None if there is none.

        `going`: where it may go, and `known`: what selection may read of that, where they were looked up before.
        """
        service, connection = self._service, self._connection
        move = self._move(record, why, going or self.going(record), among, known, **more)
        if move:
            carry_out(connection, move)
            if move.facts.forecast is not None:  # the next one is decided by what this one will hold
                move.facts.forecast.book(move.record.cluster_id)
            text = f"the job has moved to cluster {move.record.cluster}: {why}"
            broken = Broken(record.id, 0, 0.0, None, service.clock(), "moved", text)
            take_back(connection, record.cluster_id, record.cluster, broken, job=record.id)
            answer = {"job": record.id, "state": str(move.record.state), "cluster": move.record.cluster}
            events.add(connection, service.clock(), move.record.cluster_id, "job", **answer)
        return move

    def going(self, record: JobRecord) -> Destinations:
        """Return where a job may go."""
        connection, decision = self._connection, jobs.decision(self._connection, record.id)
        again, read = ledger.again(connection, record.id), reading_of(connection, record)
        remaining = {move["from"] for move in decision.get("moves", []) if move["why"] not in self._back_after}
        entries = self._open(record, again.get("clusters", []), {record.cluster, *remaining}, read.request)
        verdicts = self._matched(read.request, entries)
        selector, options = again.get("selector", ""), again.get("options", {})
        return Destinations(read, decision, selector, options, verdicts, candidate_ids(self._service, verdicts))

    def _move(
        self,
        record: JobRecord,
        why: str,
        going: Destinations,
        among: Collection[str] | None = None,
        known: Facts | None = None,
        **more: Any,
    ) -> Move | None:
        service = self._service
        moves = going.decision.get("moves", [])
        verdicts = [v for v in going.verdicts if among is None or v.cluster in among]
        job, seed = going.arrival(record), f"{record.id}-{len(moves) + 1}"
        known = known or facts_for(service, self._connection, job, going)
        choice, _ = decide(job, verdicts, known, seed)
        verdict = next((v for v in verdicts if v.cluster == choice.cluster), None)
        if verdict is None:
            return None
        answer = {"from": record.cluster, "to": verdict.cluster, "at": service.clock(), "why": why, "seed": seed}
        to = {"cluster_id": service.catalogue[verdict.cluster].id, "cluster": verdict.cluster}
        there = record.moved(**to, nodes=verdict.totals.get("nodes", 0))
        if not _admitted(self._connection, there):
            return None
        moves = [*moves, {**answer, **more, "selection": ledger.written(choice)}]
        return Move(there, {**going.decision, "moves": moves}, record.cluster_id, known)

    def _open(
        self, record: JobRecord, names: Sequence[str], remaining: set[str], request: Request
    ) -> list[RegisteredCluster]:
        """Return the clusters a job may go to: as they were when it was submitted, not later ones of their names."""
        catalogue = self._service.catalogue
        entries = [catalogue[name] for name in names if name in catalogue and name not in remaining]
        entries = [e for e in entries if (since := self._taking(e)) is not None and since <= record.submitted_at]
        without = barred(
            self._service, self._connection, request, {entry.id: entry.cluster.name for entry in entries}
        )
        return [entry for entry in entries if entry.cluster.name not in without]

    def _taking(self, entry: RegisteredCluster) -> float | None:
        """Return when a cluster was registered that takes tasks."""
        if entry.id not in self._since:
            result = clusters.get(self._connection, entry.id)
            closed = result is None or result.draining_at is not None or result.drained_at is not None
            states = (worker.state for worker in workers.of_cluster(self._connection, entry.id).values())
            self._since[entry.id] = None if result is None or closed or is_away(states) else result.created_at
        return self._since[entry.id]

    def _matched(self, request: Request, entries: Sequence[RegisteredCluster]) -> Sequence[Verdict]:
        key = (request.site_key, *((entry.id, entry.revision) for entry in entries))
        if key not in self.verdicts:
            verdicts = verdicts_on(self._service, request, entries, self._connection)
            self.verdicts[key] = placeable(self._service, verdicts)
        return self.verdicts[key]


def by_hand(service: Service, connection: sa.Connection, record: JobRecord, verdicts: Verdicts) -> Relocation:
    """Return where a job may go whose owner moves it: back to clusters that it has left, too."""
    moves = jobs.decision(connection, record.id).get("moves", [])
    return Relocation(service, connection, verdicts, back_after={move["why"] for move in moves})


def _admitted(connection: sa.Connection, record: JobRecord) -> bool:
    limits = limits_of(clusters.limits(connection, record.cluster_id))
    new = sum(tasks.counts(connection, [record.id])[record.id].values()) if limits_tasks(limits) else 0
    try:
        admit(connection, record, new, limits)
    except TooMany:
        return False
    return True


def carry_out(connection: sa.Connection, move: Move) -> None:
    """Store where a job is now."""
    record = move.record
    there = {"cluster": record.cluster, "nodes": record.nodes}
    jobs.change(connection, record.id, **there, wait=None, decision=move.decision)
    jobs.move(connection, record.id, record.cluster_id)
    tasks.move(connection, record.id, record.cluster_id)
    clusters.count_move(connection, move.left)
