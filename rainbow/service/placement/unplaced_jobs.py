"""Jobs that wait unplaced: clusters match, and the rules of selection leave none of them now.

entered    in the transaction of the submit, with the clusters its caller may submit to
tried      when a state, a graph or a booking of a cluster changes, and every RETRY seconds for what else may
in turn    the requestor who was served longest ago first, of each the oldest job first
placed     in one transaction, like a submit: a retry after a crash finds it placed, or waiting
booked     a job that has waited longer than `scheduler.unplaced_patience`, the oldest first, keeps the nodes that it
           needs of the cluster where it is expected to start first; as they become free, others see them taken. So
           narrow jobs that come all the time do not keep a wide one out forever
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, RainbowError, Refused, TooMany
from rainbow.service.accounts.account_cache import members_of, standings_of
from rainbow.service.core.access import Caller, Callers
from rainbow.service.jobs.lifecycle import end
from rainbow.service.placement.refusal import wait_of
from rainbow.service.placement.submission import Submission
from rainbow.service.placement.submit import SubmitTransaction, prepare
from rainbow.state_machine import JobState
from rainbow.store import clusters, jobs, reservations
from rainbow.store.jobs import UnplacedRecord, WaitingJob
from rainbow.store.reservations import UnplacedBooking

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service
    from rainbow.store.jobs import JobRecord


RETRY = 5.0  # seconds after which all are tried again, whatever has changed: queues and limits are not watched
LONGEST = 1.0  # seconds that one round may take; the next goes on with whose turn it is then
APART = 1e-6  # seconds between two turns of one moment
MOST_BOOKINGS = 4  # at once, each of another requestor, and of another cluster
MOST_ASKED = 20  # jobs that one round looks for a cluster to book for


# ── whose turn it is ──


class SchedulingTurns:
    """The jobs that wait, in turn: a requestor who is served goes to the end, of each the oldest job is first.

    With accounts the best by fair share comes before all turns; `factors` by account and requestor.
    """

    def __init__(
        self, waiting: Iterable[WaitingJob], now: float, factors: Mapping[tuple[str, str], float] | None = None
    ) -> None:
        rank = factors or {}
        self._heap = [
            (-rank.get((one.account, one.requestor), 0.0), one.turn, one.submitted_at, one.job, one.requestor)
            for one in waiting
        ]
        heapq.heapify(self._heap)
        self._served: dict[str, float] = {}
        self._last = now

    def next(self) -> tuple[str, str] | None:
        """Return the job whose turn it is, and its requestor; None if there is none."""
        while self._heap:
            rank, turn, submitted, job, requestor = heapq.heappop(self._heap)
            later = self._served.get(requestor, turn)
            if later <= turn:
                return job, requestor
            heapq.heappush(self._heap, (rank, later, submitted, job, requestor))
        return None

    def serve(self, requestor: str) -> float:
        """Let a requestor's other jobs wait for another turn; return when that is."""
        self._last += APART
        self._served[requestor] = self._last
        return self._last


# ── out ──


class Round:
    """Tries the jobs that wait, whenever something has changed that may let one in."""

    def __init__(self, service: Service, clock: Callable[[], float]) -> None:
        self._service = service
        self._clock = clock
        self._seen: object = None
        self._again = 0.0
        self._unfinished = False

    def look(self) -> list[str]:
        """Try the jobs that wait if anything has changed since; return those that were placed."""
        now = self._service.clock()
        with self._service.store.read() as connection:
            waiting = jobs.list_unplaced(connection)
            seen = jobs.placement_signature(connection) if waiting else None
            accounts = any(one.account for one in waiting)
            results = members_of(standings_of(self._service, connection)) if accounts else {}
            booked = reservations.bookings(connection)
        over = not 0 < self._again - now <= RETRY
        is_due = any(now - one.submitted_at >= self._service.settings.unplaced_patience for one in waiting)
        if not (waiting or booked) or (seen == self._seen and not over and not self._unfinished):
            return []
        self._seen, self._again = seen, now + RETRY
        turns = SchedulingTurns(waiting, now, {key: one.factor for key, one in results.items()})
        placed = self._try_all(turns, {one.job for one in booked})
        if booked or is_due:
            Bookings(self._service).renew([one for one in waiting if one.job not in placed], now)
        return placed

    def _try_all(self, turns: SchedulingTurns, booked: Collection[str]) -> list[str]:
        end_, placed = self._clock() + LONGEST, list[str]()
        failed: set[str] = set()  # what nobody took in this round: nothing is freed in the meantime
        self._unfinished = False
        while (following := turns.next()) is not None:
            if self._clock() > end_:
                self._unfinished = True
                break
            job, requestor = following
            if self._try(job, failed, is_booked=job in booked):
                placed.append(job)
                self._serve(requestor, turns.serve(requestor))
        return placed

    def _serve(self, requestor: str, turn: float) -> None:
        with self._service.store.write() as connection:
            jobs.serve_requestor(connection, requestor, turn)

    def _try(self, job: str, failed: set[str], *, is_booked: bool) -> bool:
        with self._service.store.read() as connection:
            record, stored = jobs.get(connection, job), jobs.get_unplaced(connection, job)
            if record is None or stored is None or record.state is not JobState.UNPLACED:
                return False
            own = (
                stored.reach,
                stored.selector,
                stored.options,
                stored.backend,
                record.requestor,
                record.account,
                jobs.jobspec(connection, job),
                job if is_booked else None,  # what is kept for it, is free for no other
            )
            shape = json.dumps(own, sort_keys=True)
        if shape in failed:
            return False
        result = place_again(self._service, record, stored)
        if isinstance(result, RainbowError):
            failed.add(shape)
            self._tell(record, result)
            return False
        self._service.tell(result.cluster_id)
        return True

    def _tell(self, record: JobRecord, fault: RainbowError) -> None:
        """Store why a job still waits, if that is news; end one whose tag has expired."""
        now, wait = self._service.clock(), record.wait or {}
        expired = isinstance(fault, Conflict) and "newest" in fault.facts
        if not expired and (not isinstance(fault, Refused | TooMany) or wait.get("text") == fault.message):
            return
        since = wait.get("since", now) if wait.get("reason") == fault.code else now
        with self._service.store.write() as connection:
            if expired:
                end(connection, record.id, now, fault.message)
            else:
                jobs.change(connection, record.id, wait=wait_of(fault, since))


# ── what is kept for those that wait longest ──


class Bookings:
    """Nodes that are kept for jobs without a cluster: `unplaced_bookings`, which hold for every process."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def renew(self, waiting: Sequence[WaitingJob], now: float) -> None:
        """Drop the bookings that help no job any more, and book for the jobs that have waited longest."""
        by_id = {one.job: one for one in waiting}
        with self._service.store.read() as connection:
            booked = reservations.bookings(connection)
        stays = [one for one in booked if one.job in by_id and self._clusters(one.job, {one.cluster_id})]
        for booking in booked:
            if booking not in stays:
                self._drop(booking)
        served, taken = {by_id[one.job].requestor for one in stays}, {one.cluster_id for one in stays}
        patience = self._service.settings.unplaced_patience
        overdue = [one for one in waiting if now - one.submitted_at >= patience]
        requested = 0
        for one in sorted(overdue, key=lambda one: (one.submitted_at, one.job)):
            if len(taken) == MOST_BOOKINGS or requested == MOST_ASKED:
                return
            if one.requestor in served:
                continue
            served.add(one.requestor)
            requested += 1
            if (made := self._book(one, taken, now)) is not None:
                taken.add(made.cluster_id)

    def _drop(self, booking: UnplacedBooking) -> None:
        with self._service.store.write() as connection:
            if reservations.drop_booking(connection, booking.job) is not None:
                clusters.note(connection, booking.cluster_id)

    def _book(self, waiting: WaitingJob, taken: Collection[str], now: float) -> UnplacedBooking | None:
        """Book for a job where it starts first, unless another process has booked in the meantime."""
        results = self._clusters(waiting.job, exclude=taken)
        if not results:
            return None
        start, _, cluster_id, nodes = min(results)
        booking = UnplacedBooking(waiting.job, cluster_id, nodes, now, start if isfinite(start) else None)
        with self._service.store.write() as connection:
            record, others = jobs.get(connection, waiting.job), reservations.bookings(connection)
            owners = {own.requestor for own in jobs.some(connection, [one.job for one in others])}
            full = len(others) >= MOST_BOOKINGS or cluster_id in {one.cluster_id for one in others}
            if record is None or record.state is not JobState.UNPLACED or record.requestor in owners or full:
                return None
            reservations.put_booking(connection, booking)
            clusters.note(connection, cluster_id)
        return booking

    def _clusters(
        self, job: str, only: Collection[str] | None = None, exclude: Collection[str] = ()
    ) -> list[tuple[float, str, str, int]]:
        """Return (start, name, id, nodes) of the clusters that would have the job once its nodes are free."""
        service = self._service
        try:
            with service.store.read() as connection:
                record, entry = jobs.get(connection, job), jobs.get_unplaced(connection, job)
                if record is None or entry is None:
                    return []
            placement = _prepared(service, record, entry)
            with service.store.read() as connection:
                return [
                    one
                    for one in placement.expected(connection, job)
                    if one[2] not in exclude and (only is None or one[2] in only)
                ]
        except RainbowError:  # it is told when the job is tried
            return []


def place_again(service: Service, waiting: JobRecord, record: UnplacedRecord) -> JobRecord | RainbowError:
    """Try to place a job that waits; return it as it is placed, or why it still waits."""
    try:
        placement = _prepared(service, waiting, record)
        with service.store.read() as connection:
            placement.check_now(connection, waiting.id)
        with service.store.write() as connection:
            result = jobs.get(connection, waiting.id)
            if result is None or result.state is not JobState.UNPLACED:
                return Conflict(f"job {waiting.id} waits no more")
            return placement.place(connection, result)
    except RainbowError as fault:
        return fault


def _prepared(service: Service, waiting: JobRecord, entry: UnplacedRecord) -> SubmitTransaction:
    """Match a job that waits, as it is now, against the clusters that it may go to."""
    with service.store.read() as connection:
        who, jobspec = _caller_of(service, connection, entry), jobs.jobspec(connection, waiting.id)
    return prepare(service, who, _asked_of(waiting, entry, jobspec))


def _caller_of(service: Service, connection: sa.Connection, record: UnplacedRecord) -> Caller:
    """Return who may submit to the clusters that a waiting job may go to, and to no other."""
    callers, key = service.state(Callers), ("unplaced", record.reach)
    known = callers.get(key)
    if known is not None:
        return known
    submits = dict.fromkeys(jobs.open_to(connection, record.job))
    return callers.put(key, Caller(admin=record.reach is None, submits=submits))


def _asked_of(waiting: JobRecord, record: UnplacedRecord, jobspec: Any) -> Submission:
    return Submission(
        jobspec=jobspec,
        selector=record.selector,
        options=record.options,
        name=waiting.name,
        requestor=waiting.requestor,
        basis=waiting.basis or None,
        tag=waiting.tag or None,
        backend=record.backend,
        account=waiting.account or None,
        overrides=waiting.overrides,
        queue=True,
    )
