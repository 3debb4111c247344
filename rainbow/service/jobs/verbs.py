"""What people do to jobs: cancel, suspend and resume, hold and release, requeue; to one job or to many.

cancel    what has not started is canceled, what runs is stopped; of an array also one element
suspend   what runs is stopped in place and keeps its space, what waits does not start; resume lets both continue
hold      what waits does not start, what runs is left alone; release lets it start
requeue   what runs is stopped, and waits to start again; what waits is left as it is

All of it may be said twice: a job that is already as it should be is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, NotFound, RainbowError
from rainbow.jobspec.handover import starts_once
from rainbow.outcome import after_commit
from rainbow.service.core.access import Caller
from rainbow.service.jobs import lifecycle
from rainbow.service.jobs.jobspecs import reading
from rainbow.service.jobs.lifecycle import check_own, end, own_job, settle
from rainbow.service.jobs.names import Named, one_of
from rainbow.state_machine import ENDED, JobState, Task, TaskState
from rainbow.store import events, jobs, pages, tasks
from rainbow.store.jobs import PENDING, JobRecord, code_of
from rainbow.store.pages import Filter
from rainbow.transitions import CancelOrdered, StopOrdered, transition

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service


CANCEL_SECONDS = 2.0  # that a request continues to end tasks
TURN = 0.1  # seconds of it in a row; as long it lets others write
TOGETHER = 500  # jobs changed in one transaction
TRANSACTION = 0.1  # seconds after which a transaction takes no further job: others wait for it
PAUSE = 12.0  # times the seconds that a transaction took: the scheduler reads its jobs again in them
LONGEST_PAUSE = 2.0  # seconds; so 10,000 jobs are 20 pauses of at most that
CHOSEN = ("id", "number", "name", "requestor", "cluster", "state")  # that is shown of a job which would be changed
STOPPED = frozenset({TaskState.ACCEPTED, TaskState.RUNNING, TaskState.SUSPENDED, TaskState.ASSIGNED})
BY_OWNER = "requeued by its owner"

Act = Callable[["sa.Connection", JobRecord, int | None, float], bool]


def _cancel(connection: sa.Connection, record: JobRecord, element: int | None, now: float) -> bool:
    if element is not None:
        return _cancel_element(connection, record, element, now)
    if record.state not in PENDING and record.state is not JobState.CANCELED:
        raise Conflict(f"job {record.id} already ended: {record.state}")
    return record.state in PENDING and end(connection, record.id, now)


def _cancel_element(connection: sa.Connection, record: JobRecord, element: int, now: float) -> bool:
    task = _task(connection, record, element)
    if task.state in ENDED and task.state is not TaskState.CANCELED:
        raise Conflict(f"task {task.name} of job {record.id} already ended: {task.state}")
    tasks.save_all(connection, [transition(task, CancelOrdered(alone=True), now)], now)
    settle(connection, record.id, now)
    return False


def _task(connection: sa.Connection, record: JobRecord, element: int) -> Task:
    result = tasks.page(connection, record.id, element, 1)
    if not result:
        raise Conflict(f"job {record.id} waits for a cluster and has no elements yet; name the whole job")
    return result[0]


def _suspend(connection: sa.Connection, record: JobRecord, element: int | None, now: float) -> bool:
    return _halt(connection, record, element, now, "suspended", "suspended_at")


def _resume(connection: sa.Connection, record: JobRecord, element: int | None, now: float) -> bool:
    _halt(connection, record, element, None, "resumed", "suspended_at", now)
    return _release(connection, record, element, now)


def _hold(connection: sa.Connection, record: JobRecord, element: int | None, now: float) -> bool:
    return _halt(connection, record, element, now, "held", "held_at")


def _release(connection: sa.Connection, record: JobRecord, element: int | None, now: float) -> bool:
    return _halt(connection, record, element, None, "released", "held_at", now)


def _halt(
    connection: sa.Connection,
    record: JobRecord,
    element: int | None,
    since: float | None,
    verb: str,
    column: str,
    now: float = 0.0,
) -> bool:
    """Note since when a job is suspended or held, None: it is no longer."""
    if element is not None:
        raise Conflict(f"an element cannot be {verb} by itself; name job {record.id}")
    if record.state not in PENDING:
        raise Conflict(f"job {record.id} already ended: {record.state}")
    if (since is None) is (getattr(record, column) is None):
        return False
    jobs.change(connection, record.id, **{column: since})
    if since is None and code_of(record) in ("suspended", "held"):
        jobs.change(connection, record.id, wait=None)  # the next cycle says why it waits now
    if column == "suspended_at":
        tasks.ask_again(connection, record.id)
        tasks.note_holders(connection, record.cluster_id, record.id)
    facts = {"job": record.id, "state": verb, "cluster": record.cluster}
    events.add(connection, since or now, record.cluster_id, "job", **facts)
    return False


def _requeue(connection: sa.Connection, record: JobRecord, element: int | None, now: float) -> bool:
    if record.state not in PENDING:
        raise Conflict(f"job {record.id} already ended: {record.state}; submit it again")
    if starts_once(reading(connection, record.id).request):
        raise Conflict(f"job {record.id} must not start twice (requeue: false)")
    if element is None:
        run = tasks.some_of(connection, record.id, STOPPED, lifecycle.PIECE)
    else:
        run = [task for task in [_task(connection, record, element)] if task.state in STOPPED]
    tasks.save_all(connection, [transition(task, StopOrdered(BY_OWNER), now) for task in run], now)
    settle(connection, record.id, now)
    return False


VERBS: Mapping[str, Act] = {
    "cancel": _cancel,
    "suspend": _suspend,
    "resume": _resume,
    "hold": _hold,
    "release": _release,
    "requeue": _requeue,
}


def change(service: Service, who: Caller, verb: str, job_id: str, element: int | None = None) -> None:
    """Do something to a job, or to an element of it.

    A cancel of very many tasks ends a piece in each transaction, and others write between them. What is left after
    CANCEL_SECONDS the cluster's steps end, as they do when a server is killed meanwhile; nothing of it starts.
    """
    with service.store.write() as connection:
        record = own_job(connection, who, job_id)
        remaining = VERBS[verb](connection, record, element, service.clock())
    service.tell(record.cluster_id)
    with after_commit("end more"):  # it is canceled; the cluster's steps end what is left, too
        until = perf_counter() + CANCEL_SECONDS
        while remaining and perf_counter() < until:
            remaining = lifecycle.end_more(service, job_id, TURN)
            sleep(TURN if remaining else 0)
            service.tell(record.cluster_id)


# ── many at a time ──


@dataclass(slots=True)
class Changes:
    """What became of a request for many jobs: how many are as they should be, which were refused, and why."""

    done: int = 0
    refused: list[dict[str, str]] = field(default_factory=list)
    chosen: list[JobRecord] = field(default_factory=list)  # where nothing is to be done

    def refuse(self, job: str, fault: RainbowError) -> None:
        """Note that a job stays as it was."""
        self.refused.append({"job": job, "code": fault.code, "text": fault.message})

    def document(self) -> dict[str, Any]:
        """Return the answer."""
        rows = [{key: getattr(record, key) for key in CHOSEN} for record in self.chosen]
        return {"done": self.done, "refused": self.refused, **({"jobs": rows} if rows else {})}


@dataclass(frozen=True, slots=True)
class ManyJobs:
    """A request for many jobs: what is done, by whom; `dry_run`: nothing is, and which jobs it would be is said."""

    service: Service
    who: Caller
    verb: str
    dry_run: bool = False
    told: Changes = field(default_factory=Changes)

    def named(self, texts: Sequence[str], login: str | None) -> Changes:
        """Do it to each of the jobs that some texts name; what one of them refuses is said of it alone."""
        results: list[Named] = []
        with self.service.store.read() as connection:  # `last` is one job, whatever comes meanwhile
            for text in dict.fromkeys(texts):
                try:
                    results.append(one_of(connection, self.who, text, login))
                except RainbowError as fault:
                    self.told.refuse(text, fault)
        self._all(results)
        return self.told

    def matching(self, chosen: Filter, most: int) -> Changes:
        """Do it to the first jobs that a filter chooses, the oldest first."""
        remaining = most
        while remaining > 0:
            with self.service.store.read() as connection:
                records = pages.listing(connection, replace(chosen, limit=min(remaining, TOGETHER), oldest=True))
            self._all([Named(record) for record in records])
            remaining -= len(records)
            if len(records) < min(TOGETHER, remaining + len(records)):
                break
            chosen = replace(chosen, before=records[-1].id)
        return self.told

    def _all(self, results: Sequence[Named]) -> None:
        """Do it in transactions of a part each; between them others write for PAUSE times as long."""
        if self.dry_run:
            changes = self.told
            with self.service.store.read() as connection:
                for one in results:
                    if (fault := self._may(connection, one.record)) is not None:
                        changes.refuse(one.job, fault)
                    else:
                        changes.chosen.append(one.record)
            return
        remaining = list(results)
        while remaining:
            began = perf_counter()
            with self.service.store.write() as connection:
                count, touched = self._some(connection, remaining[:TOGETHER], began + TRANSACTION)
            self.service.tell(*touched)
            remaining = remaining[count:]
            if remaining or len(results) == TOGETHER:
                sleep(min(LONGEST_PAUSE, PAUSE * (perf_counter() - began)))

    def _some(self, connection: sa.Connection, results: Sequence[Named], until: float) -> tuple[int, set[str]]:
        """Do it to the first of some jobs; return to how many, and the clusters that are concerned."""
        now, count, touched = self.service.clock(), 0, set[str]()
        records = {record.id: record for record in jobs.some(connection, {one.job for one in results})}
        plain: set[str] = set()
        if self.verb == "cancel":
            mine = [record for record in records.values() if self._may(connection, record) is None]
            whole = {one.job for one in results if one.element is None}
            plain = lifecycle.end_waiting(connection, [record for record in mine if record.id in whole], now)
        for one in results:
            count += 1
            record = records.get(one.job)
            if record is None:
                self.told.refuse(one.job, NotFound(f"job {one.job} not found"))
                continue
            touched.add(record.cluster_id)
            if one.job in plain:
                self.told.done += 1
                continue
            try:
                if (fault := self._may(connection, record)) is not None:
                    raise fault
                VERBS[self.verb](connection, jobs.get(connection, one.job) or record, one.element, now)
                self.told.done += 1
            except RainbowError as fault:
                self.told.refuse(one.job, fault)
            if perf_counter() > until and not plain:
                break
        return count, touched

    def _may(self, connection: sa.Connection, record: JobRecord) -> RainbowError | None:
        """Say why the caller may not change a job; None: they may."""
        try:
            check_own(connection, self.who, record)
        except RainbowError as fault:
            return fault
        return None
