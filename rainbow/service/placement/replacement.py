"""Jobs moved from a cluster that takes tasks to one where they are expected to end sooner.

Off unless the cluster's limits have `replace`. Every `every` seconds the first waiting jobs are looked at of which
nothing was ever accepted, that depend on nothing, that no batch placed and that have no promised time. A job moves if
elsewhere it is expected to end by more than max(least, gain x its time to the end here) sooner, those that gain most
first. The cluster it goes to is one of those that its submit allowed, passes the job's own selection, and has room by
its limits; the job is booked there before the next one is looked at. Unlike after a loss, a job may come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from rainbow.service.core.memory import ByCluster, place
from rainbow.service.core.service import Outlook
from rainbow.service.placement.facts import Facts, facts_for
from rainbow.service.placement.failover import SLICE, DepartedMirror, Move, Relocation, is_movable
from rainbow.store import jobs
from rainbow.store.jobs import code_of
from rainbow.text import rfc3339

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.forecast.outlook import Arriving, ClusterForecast
    from rainbow.service.core.service import Service
    from rainbow.service.placement.failover import Destinations
    from rainbow.store.jobs import JobRecord

WHY = "expected to end sooner there"
LOOKED_AT = 50  # waiting jobs of a cluster
LONGEST = 0.25  # seconds that matching them may hold up the cluster's step


@dataclass(frozen=True, slots=True)
class Rules:
    """When a job is moved; times in seconds, `gain` a part of its time to the end."""

    gain: float
    least: float
    most: int  # such moves of one job
    apart: float  # between two of them
    every: float  # between two looks at a cluster's jobs

    def allows(self, moves: list[Mapping[str, Any]], now: float) -> bool:
        """Return whether a job that made these moves may make another.

        >>> Rules(0.25, 300, 3, 600, 60).allows([{"why": WHY, "at": 0.0}], 599.0)
        False
        """
        own = [move["at"] for move in moves if move["why"] == WHY]
        return len(own) < self.most and now - max(own, default=-inf) >= self.apart

    def pays(self, here: float, there: float, now: float) -> bool:
        """Return whether an end there is worth the move."""
        return there < here - max(self.least, self.gain * (here - now))


@dataclass(frozen=True, slots=True)
class Review:
    """A look at a cluster's jobs: when it began, and the jobs that it was too short for; the next step has those."""

    at: float
    left: tuple[str, ...] = ()


@place("reviews", most="one for a cluster", of="the last look for jobs that would start sooner elsewhere")
class Reviews(ByCluster[Review]):
    """{cluster id: the last look at its jobs}."""


def is_due(service: Service, cluster_id: str, limits: Mapping[str, Any]) -> bool:
    """Return whether it is time to look at a cluster's jobs, or to continue one that was cut short."""
    review = service.state(Reviews).get(cluster_id)
    since = service.clock() - review.at if review else -inf
    rules = limits.get("replace")
    return rules is not None and (bool(review and review.left) or not 0 <= since < rules["every"])


def is_unfinished(service: Service, cluster_id: str) -> bool:
    """Return whether the last look was cut short."""
    review = service.state(Reviews).get(cluster_id)
    return bool(review and review.left)


def move_to_sooner(service: Service, mirror: DepartedMirror) -> bool:
    """Move what ends sooner elsewhere, in one short transaction; return whether anything was moved."""
    before = service.state(Reviews).get(mirror.entry.id)
    due = is_due(service, mirror.entry.id, mirror.limits)
    answer = service.state(Outlook).of(mirror.entry.id, service.clock()) if due else None
    if answer is None or answer.forecast is None:
        if before and before.left:
            service.state(Reviews)[mirror.entry.id] = Review(before.at)
        return False
    begun = before.at if before and before.left else service.clock()
    rules, job_ids = Rules(**mirror.limits["replace"]), _first(mirror, before.left if before else ())
    with service.store.read() as connection:
        looking = _Looking(service, connection, mirror.entry.id, rules, answer)
        gains = sorted(looking.gains(job_ids), reverse=True)
    moved, late = {}, []
    if gains:
        with service.store.write() as connection:
            again = _Looking(service, connection, mirror.entry.id, rules, answer, looking.elsewhere.verdicts)
            moved = dict(again.moved(gains))
            late = [job_id for _, job_id in gains[again.looked :]]
    service.state(Reviews)[mirror.entry.id] = Review(begun, (*late, *job_ids[looking.looked :]))
    for job_id in moved:
        mirror.forget_moved(job_id)
    if moved:
        service.tell(mirror.entry.id, *set(moved.values()))
    return bool(moved)


def _first(mirror: DepartedMirror, remaining: tuple[str, ...]) -> list[str]:
    """Return the jobs that are left, or were submitted first, of those that wait and may move by all in memory."""
    may = [
        (live.record.submitted_at, job_id)
        for job_id, live in mirror.jobs.items()
        if not live.booked and not live.dependencies and not _is_promised(mirror, live.record)
    ]
    known = set(remaining)
    return [job_id for _, job_id in sorted(may) if not remaining or job_id in known][:LOOKED_AT]


def _is_promised(mirror: DepartedMirror, record: JobRecord) -> bool:
    """Return whether a job has a promised start, or space is kept for it; it counts as that until a plan is made."""
    return code_of(record) == "reserved" and (mirror.promised is None or record.id in mirror.promised)


@dataclass(frozen=True, slots=True)
class Better:
    """A job that would gain by a move: where it may go, its ends there, and the cluster where it ends first."""

    record: JobRecord
    going: Destinations
    facts: Facts
    name: str
    finish: float


class _Looking:
    """One look at the jobs of a cluster, in a transaction."""

    def __init__(
        self,
        service: Service,
        connection: sa.Connection,
        cluster_id: str,
        rules: Rules,
        forecast: ClusterForecast,
        verdicts: Any = None,
    ) -> None:
        self._service, self._connection, self._id = service, connection, cluster_id
        self._rules, self._told, self._now, self.monotonic = rules, forecast, service.clock(), service.monotonic
        self.looked = 0  # jobs
        self.elsewhere = Relocation(service, connection, {} if verdicts is None else verdicts, back_after=[WHY])

    def gains(self, job_ids: list[str]) -> Iterator[tuple[float, str]]:
        """Yield the seconds that each job would gain that moves by the rules, until the time is over."""
        began = self.monotonic()
        for job_id in job_ids:
            if self.looked and self.monotonic() - began > LONGEST:
                return
            self.looked += 1
            if better := self.best(job_id):
                yield self._end_here(better.record) - better.finish, job_id

    def moved(self, gains: list[tuple[float, str]]) -> Iterator[tuple[str, str]]:
        """Move jobs while the transaction is short; yield each with the cluster that has it now."""
        began = self.monotonic()
        for _, job_id in gains:
            if self.looked and self.monotonic() - began > SLICE:
                return
            self.looked += 1
            better = self.best(job_id)
            if better and (move := self.carry_out(better)):
                yield job_id, move.record.cluster_id

    def best(self, job_id: str) -> Better | None:
        """Return where a job would end first, if it would gain by a move there."""
        record = jobs.get(self._connection, job_id)
        if record is None or record.cluster_id != self._id or self._end_here(record) == inf:
            return None  # another process may have moved it: what is forecast here is not of it any more
        going = self.elsewhere.going(record) if is_movable(self._connection, record) else None
        if going is None or not self._may_move(going.decision):
            return None
        facts = facts_for(self._service, self._connection, going.arrival(record), going, forecast=True)
        made = facts.forecast
        if made is None:
            return None
        name = min(going.ids.values(), key=lambda one: _finish(made, one), default="")
        pays = name and self._rules.pays(self._end_here(record), _finish(made, name), self._now)
        return Better(record, going, facts, name, _finish(made, name)) if pays else None

    def _may_move(self, decision: Mapping[str, Any]) -> bool:
        return "placed_by" not in decision and self._rules.allows(decision.get("moves", []), self._now)

    def carry_out(self, better: Better) -> Move | None:
        """Move a job and book it where it is now."""
        record, name = better.record, better.name
        ends = {"from": rfc3339(self._end_here(record)), "to": rfc3339(better.finish)}
        return self.elsewhere.place(record, WHY, {name}, better.going, better.facts, expected_end=ends)

    def _end_here(self, record: JobRecord) -> float:
        expected = self._told.expected(record.id)
        return expected.end if expected and expected.how != "running" else inf


def _finish(arriving: Arriving, name: str) -> float:
    if not arriving.ask.whole:
        return inf  # amounts do not say all that it asks for
    row = list(arriving.ids.values()).index(name)
    return float(arriving.found.finish[row])
