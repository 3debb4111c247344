"""Submit a job: select a cluster of those that fit, and write job, tasks and decision in one transaction."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from rainbow.errors import JobspecError, LimitError, NoClusterNow, Refused, TooMany, Unavailable
from rainbow.jobspec import Request
from rainbow.jobspec.validation import keeping
from rainbow.outcome import note_object
from rainbow.selection import Choice, read_of, reads_states
from rainbow.selection.choice import is_number
from rainbow.selection.variables import ACCOUNT, FORECAST
from rainbow.service.accounts import account_cache
from rainbow.service.accounts import admission as accounts
from rainbow.service.core.access import ANONYMOUS, Caller, requestor_of
from rainbow.service.core.limits import admit, limits_of
from rainbow.service.jobs import numbers
from rainbow.service.jobs.dependencies import (
    check_dependencies,
    check_scopes,
    jobs_before,
    record_symbols,
    replace_ancestors,
    replace_waiting,
)
from rainbow.service.jobs.jobspecs import Reading, by_id, first_tasks, read_request, remember
from rainbow.service.placement import candidates, ledger, refusal, site_checks
from rainbow.service.placement.arrival import Arrival
from rainbow.service.placement.candidates import DigestedText
from rainbow.service.placement.facts import FREE, Facts, decide, facts_for, read_stored
from rainbow.service.placement.match_cache import Match
from rainbow.service.placement.staged_tasks import LARGE, Staged, stage
from rainbow.service.placement.submission import Submission, earlier_job, find_open, key_of, queues, selector_of
from rainbow.state_machine import JobState, Task
from rainbow.store import events, jobs, statistics, tasks
from rainbow.store.engine import NeedsExclusiveWrite, is_beside
from rainbow.store.jobs import JobRecord
from rainbow.transitions import STARTS

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service
    from rainbow.store.clusters import ClusterRecord


LONGEST_NAME = 100  # characters of a name that nobody gave
States = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Decision:
    """What selection said of a job, what it was given, and the decision as it is answered."""

    job: str
    facts: Facts
    choice: Choice
    answer: dict[str, Any]


@dataclass
class SubmitTransaction:
    """One submit: what was found without writing, and the part of it that writes."""

    service: Service
    who: Caller
    submission: Submission
    reading: Reading
    match: Match
    selector: str
    options: Mapping[str, Any]
    snapshot: DigestedText | None = None  # what is kept of the states if the selector reads none
    excluded: Mapping[str, str] = field(default_factory=dict)  # clusters without the queue or class it asks for: why
    drained: Mapping[str, str] = field(default_factory=dict)  # clusters that match, and take no jobs now: why
    checks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what sites have said of it before
    queues: bool = False  # waits where clusters match and none takes it now
    cluster_id: str | None = None  # where it was placed
    staged: Staged | None = None  # where its tasks are stored before the job is
    shares_turn: bool = False  # it writes beside other servers: of one cluster, whose row it has locked
    number: int = 0  # the first of its numbers

    def write(self, connection: sa.Connection) -> tuple[dict[str, Any], bool]:
        """Choose a cluster by what is true now and store the job; or return the one sent before under its key."""
        self.shares_turn = is_beside(connection)
        if earlier := earlier_job(connection, self.who, self.submission):
            return earlier, True
        decided = self.decide_new(connection, self.staged.job if self.staged else new_id())
        if decided.choice.cluster is not None:
            return refusal.answer_of(*self._take(connection, decided)), False
        if self.shares_turn:
            raise NeedsExclusiveWrite
        why = self.refusal(decided)
        if self.queues and isinstance(why, NoClusterNow):
            return refusal.answer_of(*self._queue(connection, decided, why)), False
        raise why

    @property
    def is_of_one_cluster(self) -> bool:
        """Whether all it writes is of the chosen cluster, and nothing it reads is counted over several."""
        accounts_ = self.service.state(account_cache.KnownAccounts)
        named = self.submission.basis or self.reading.request.dependencies
        whole = named or self.staged or accounts_.tree.accounts or accounts_.qos
        return not (whole or read_of(self.selector, self.options, FORECAST))

    def decide_new(self, connection: sa.Connection, job_id: str) -> Decision:
        """Return what selection says of a new job, without writing."""
        check_dependencies(connection, self.who, self.reading.request)
        check_scopes(self.who, self.reading.request)
        return self._decide(connection, job_id)

    def prestore(self) -> None:
        """Store the tasks of a large job where it would go by what is true now: `write` makes the job of them."""
        if self.size <= LARGE:
            return
        job_id = new_id()
        with self.service.store.read() as connection:
            if earlier_job(connection, self.who, self.submission):
                return
            name = self.decide_new(connection, job_id).choice.cluster
            if name is None:
                return  # `write` says why, or lets it wait
            cluster = refusal.taking(connection, name)
            record = self._record(connection, job_id, cluster, None)
            limits = limits_of(cluster.limits)
            if not self.submission.basis:  # what it replaces makes room
                admit(connection, record, self.size, limits)
            new = self._first_tasks(connection, record, limits)
        self.staged = stage(self.service, Staged(job_id, cluster.id, record.account), new)

    def take_numbers(self) -> None:
        """Give it its numbers, before anything is written; what is refused later leaves a gap."""
        self.number = numbers.take(self.service, max(1, self._elements))

    @property
    def _elements(self) -> int:
        array = self.reading.request.array
        return len(array.ids) if array else 0

    @property
    def size(self) -> int:
        """How many tasks it has."""
        return sum(len(gang.tasks) for gang in self.reading.gangs)

    def _first_tasks(self, connection: sa.Connection, record: JobRecord, limits: Mapping[str, int]) -> Iterator[Task]:
        key = statistics.job_key(record.cluster_id, record.requestor, record.name)
        expected = statistics.expected_durations(connection, key)
        retries = STARTS if self.reading.request.service else limits["max_retries"]
        return first_tasks(record.id, self.reading.gangs, retries, expected, record.account)

    def place(self, connection: sa.Connection, waiting: JobRecord) -> JobRecord:
        """Place a job that waits for a cluster; the refusal says why it still waits."""
        return self._take(connection, self.check_now(connection, waiting.id), waiting)[0]

    def check_now(self, connection: sa.Connection, job_id: str) -> Decision:
        """Return what selection says of a job, without writing; raise the refusal if no cluster takes it now."""
        decided = self._decide(connection, job_id)
        if decided.choice.cluster is None:
            raise self.refusal(decided)
        return decided

    def expected(self, connection: sa.Connection, job_id: str) -> list[tuple[float, str, str, int]]:
        """Return (start, name, id, nodes) of the clusters that selection would take once enough nodes are free there.

        The start is infinite where no forecast says it.
        """
        job = replace(self.arrival(connection), job=job_id)
        facts = facts_for(self.service, connection, job, self.match, forecast=True)
        start = facts.forecast.starts if facts.forecast else {}
        result = []
        for cluster_id, name in self.match.ids.items():
            nodes, free = self.match.verdict(name).totals.get("nodes", 0), facts.values[name].get(FREE)
            if not nodes or not is_number(free) or name in facts.absent:
                continue
            enough = replace(facts, values={**facts.values, name: {**facts.values[name], FREE: max(free, nodes)}})
            if decide(job, [self.match.verdict(name)], enough, job_id)[0].cluster == name:
                result.append((start.get(name, inf), name, cluster_id, nodes))
        return result

    def _decide(self, connection: sa.Connection, job_id: str) -> Decision:
        facts, choice, left_out = self._choose(connection, job_id)
        answer = self.match.as_decision(self.reading.request, choice.cluster)
        decision = {**answer, "selection": ledger.selection_record(choice, self.match), "seed": job_id}
        if facts.model is not None:
            decision["model"] = facts.model.as_answer(choice.cluster)
        if self.excluded:
            decision["barred"] = dict(self.excluded)
        if left_out:
            decision["unattended"] = [*left_out]
        if check := self.checks.get(choice.cluster or ""):
            decision["check"] = dict(check)
        if self.submission.place is not None:
            decision["placed_by"] = f"the plan of a batch, which left {self.submission.place} to choose from"
        return Decision(job_id, facts, choice, decision)

    def _take(
        self, connection: sa.Connection, decided: Decision, waiting: JobRecord | None = None
    ) -> tuple[JobRecord, dict[str, Any]]:
        """Store a job, new or waiting for it, at the cluster that was chosen."""
        name, among = decided.choice.cluster or "", self.match.ids if self.shares_turn else ()
        cluster = refusal.taking(connection, name, lock_of=among)
        self._check_matched(cluster)
        self._check_states(connection, cluster, decided.facts)
        refusal.check_processes(self.service, self.reading.request, self.match.reach.entry(cluster.name).cluster)
        record = self._record(connection, decided.job, cluster, waiting)
        if self.shares_turn and (record.account or record.qos):  # since the last submit here there are such
            raise NeedsExclusiveWrite
        answers = [*decided.answer["warnings"], *refusal.counts_less(cluster, self.reading.request)]
        decision = {**decided.answer, "warnings": answers, "again": self._again(record.requestor)}
        self._store(connection, record, cluster, self._kept(decided, decision), waiting is None)
        if decided.facts.forecast is not None:
            decided.facts.forecast.book(cluster.id)
        self.cluster_id = record.cluster_id
        return record, decision

    def _queue(
        self, connection: sa.Connection, decided: Decision, why: NoClusterNow
    ) -> tuple[JobRecord, dict[str, Any]]:
        """Store a job that waits for a cluster."""
        service, request, reach = self.service, self.submission, self.match.reach
        for name in list(self.match.ids.values())[:1]:  # where it may be placed later
            refusal.check_processes(service, self.reading.request, reach.entry(name).cluster)
        homes = [*self.match.ids, *(entry.id for entry in reach.drained if entry.cluster.name in self.drained)]
        requestor = refusal.requestor_for(request.requestor, request.login, self.who, homes)
        refusal.check_room(service, connection, requestor)
        record = self._new(connection, decided.job, requestor)
        wait = refusal.wait_of(why, record.submitted_at)
        record = replace(record, state=JobState.UNPLACED, wait=wait, awaits=self._awaits(connection, record))
        stored, texts = self._kept(decided, decided.answer)
        replace_waiting(service, connection, record)
        self._add(connection, record, stored)
        jobs.keep_records(connection, record.id, texts)
        ids = refusal.open_to(reach, self.who, requestor, named=request.clusters is not None)
        refusal.enter(connection, record, homes[0], ids, (request.selector, request.options, request.backend))
        return record, decided.answer

    def _kept(self, decided: Decision, decision: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return a decision as it is stored, and the long texts that are kept beside it."""
        parts = {
            **self._given(decided.facts),
            **ledger.longer(decided.choice, self.match, (self.selector, self.options)),
        }
        return {**decision, ledger.LEDGER: ledger.entry(parts)}, ledger.long(parts)

    def refusal(self, decided: Decision) -> Refused:
        """Return why a job has no cluster."""
        seconds = self.service.settings.limits.match_seconds
        return refusal.refusal(self.match, decided.choice, self.drained, decided.answer, seconds)

    def _check_matched(self, cluster: ClusterRecord) -> None:
        """Raise Outdated if another process replaced the graphs that were matched."""
        matched = self.match.reach.entry(cluster.name)
        if (matched.id, matched.revision) != (cluster.id, cluster.revision):
            raise refusal.Outdated(cluster.name)

    def _check_states(self, connection: sa.Connection, cluster: ClusterRecord, facts: Facts) -> None:
        """Raise NeedsExclusiveWrite if another server has changed what was chosen by, before the lock."""
        if self.shares_turn and facts.stored is not None:
            now = read_stored(self.service, connection, self.arrival(connection), {cluster.id: cluster.name})
            if now.made(cluster.name) != facts.stored.made(cluster.name):
                raise refusal.overtaken(self.match.ids)

    def _choose(self, connection: sa.Connection, job_id: str) -> tuple[Facts, Choice, Sequence[str]]:
        job = replace(self.arrival(connection), job=job_id)
        for again in (False, True):
            facts = facts_for(self.service, connection, job, self.match, in_full=self.match.fits_in_answer)
            choice, left_out = decide(job, self.match.candidates, facts, job_id)
            if again or candidates.is_true(self.service, connection, facts.stored, self.match.reach, choice.cluster):
                break
        return facts, choice, left_out

    def arrival(self, connection: sa.Connection) -> Arrival:
        """Return the job as a decision about it sees it; its account where that is read."""
        user, account = self._user, ""
        if read_of(self.selector, self.options, ACCOUNT):
            request, named = self.reading.request, self.submission.account
            account = accounts.account_of(self.service, connection, self.who, user, request, named)
        waits = {name: said["wait"] for name, said in self.checks.items() if "wait" in said}
        return Arrival(self.reading, user, self._name, self.selector, self.options, account, waits)

    @property
    def _user(self) -> str:
        """Whom it is for, before it is known which cluster's token says so."""
        request, allowed = self.submission, next((self.who.submits.get(one) for one in self.match.ids), None)
        login = allowed[0] if allowed and request.login not in allowed else request.login
        return request.requestor or login or ANONYMOUS

    def ask_sites(self) -> None:
        """Let the sites among the candidates say whether they would take it: what they refuse matches no more."""
        if sites := site_checks.sites_among(self.service, self.match):
            self.match, self.checks = site_checks.checked(self.service, self.match, self.reading, self._user, sites)

    @property
    def _name(self) -> str:
        """The name that was asked for, else the program of the first task, as srun names its jobs."""
        program = "".join(filter(str.isprintable, self.reading.request.tasks[0].command[0].rpartition("/")[2]))
        return self.submission.name or self.reading.request.name or program[:LONGEST_NAME] or "job"

    def _given(self, facts: Facts) -> dict[str, DigestedText]:
        """Return what the selection was given, as the ledger keeps it."""
        options = {"policy": DigestedText.of([self.selector, self.options]), **self.match.reach.graph_parts}
        if facts.board is not None and self.snapshot is None:
            columns = facts.forecast.columns(facts.values) if facts.forecast else None
            answer = {} if columns is None else {"arriving": DigestedText.of(columns)}
            return {**options, **answer, **self.service.state(ledger.Frames).parts(facts.board)}
        return {**options, "states": self.snapshot or DigestedText.of(facts.values)}

    def _record(
        self, connection: sa.Connection, job_id: str, cluster: ClusterRecord, waiting: JobRecord | None
    ) -> JobRecord:
        requestor = requestor_of(self.submission.requestor, self.who.submits.get(cluster.id), self.submission.login)
        self._check_live(connection, cluster.id, requestor)
        nodes = self.match.verdict(cluster.name).totals.get("nodes", 0)
        if waiting is not None:
            return replace(waiting.moved(cluster.id, cluster.name, nodes), state=JobState.WAITING, wait=None)
        record = self._new(connection, job_id, requestor, (cluster.id, cluster.name, nodes))
        awaits = self._awaits(connection, record)
        return replace(record, awaits=awaits) if awaits else record

    def _new(
        self, connection: sa.Connection, job_id: str, requestor: str, where: tuple[str, str, int] = ("", "", 0)
    ) -> JobRecord:
        query, request = self.submission, self.reading.request
        return JobRecord(
            id=job_id,
            name=self._name,
            requestor=requestor,
            cluster_id=where[0],
            cluster=where[1],
            nodes=where[2],
            submitted_at=self.service.clock(),
            held_at=self.service.clock() if self.reading.request.held else None,
            basis=query.basis or "",
            tag=query.tag or (job_id if query.basis else ""),
            number=self.number,
            elements=self._elements,
            **accounts.rights_of(self.service, connection, self.who, requestor, request, query.account),
        )

    def _awaits(self, connection: sa.Connection, record: JobRecord) -> list[str] | None:
        return jobs_before(connection, self.who, record, self.reading.request) or None

    def _check_live(self, connection: sa.Connection, cluster_id: str, requestor: str) -> None:
        most = self.service.settings.limits.live
        if most and jobs.live_of(connection, cluster_id, requestor) >= most:
            raise TooMany(
                f"{requestor} already has {most} active jobs on this cluster, the limit", retry_after=30, limit="live"
            )

    def _again(self, requestor: str) -> dict[str, Any]:
        """Say where else the job may go, by the caller's credentials for this requestor, and how it is chosen.

        Without `clusters` it is to any candidate, as nearly always: one token, or the administrator's.
        """
        how = {"selector": self.selector, "options": dict(self.options)}
        known = self.match.allowed.get(requestor) or self.match.allowed.put(requestor, self._allowed(requestor))
        return how if len(known) == len(self.match.candidates) else {"clusters": known, **how}

    def _allowed(self, requestor: str) -> list[str]:
        of = {name: self.who.submits.get(cluster_id) for cluster_id, name in self.match.ids.items()}
        return [name for name, requestors in of.items() if requestors is None or requestor in requestors]

    def _store(
        self,
        connection: sa.Connection,
        record: JobRecord,
        cluster: ClusterRecord,
        decision: tuple[dict[str, Any], dict[str, str]],
        new: bool,
    ) -> None:
        limits, (stored, texts) = limits_of(cluster.limits), decision
        replace_ancestors(self.service, connection, self.who, record)
        admit(connection, record, self.size, limits)
        retries = STARTS if self.reading.request.service else limits["max_retries"]
        record, budgets = accounts.admit(self.service, connection, record, self.reading, self.match, retries)
        if new:
            self._add(connection, record, stored)
        else:
            jobs.place(connection, record, stored, cluster.epoch)
        if budgets is not None:
            budgets.write(connection, record)
        jobs.keep_records(connection, record.id, texts)
        if self.staged is None:
            tasks.add(connection, record.cluster_id, self._first_tasks(connection, record, limits))
        elif (self.staged.cluster_id, self.staged.account) != (record.cluster_id, record.account):
            tasks.move(connection, record.id, record.cluster_id, record.account)  # another is chosen by now
        answer = {"job": record.id, "state": str(record.state), "cluster": record.cluster}
        events.add(connection, self.service.clock(), record.cluster_id, "job", **answer)

    def _add(self, connection: sa.Connection, record: JobRecord, decision: Mapping[str, Any]) -> None:
        request = self.submission
        key = {"idempotency": key_of(request), "request_digest": request.digest()} if request.key else {}
        if self.staged is not None and record.state is JobState.UNPLACED:  # its tasks are stored when it is placed
            jobs.remove_staged(connection, record.id, self.size + 1)
            self.staged = None
        note_object(f"job {record.id}", record.cluster_id)
        became = jobs.add(connection, record, _text(request.jobspec), decision, staged=self.staged is not None, **key)
        if not became:
            raise Unavailable("the store forgot a large job while its tasks were stored; try again", retry_after=1)
        record_symbols(connection, record, self.reading.request)
        remember(record.id, self.reading)


def new_id() -> str:
    """Make a job id: ids sort by time."""
    return f"{time.time_ns():016x}{secrets.token_hex(4)}"


def _text(jobspec: str | bytes | Mapping[str, Any]) -> Any:
    return jobspec.decode() if isinstance(jobspec, bytes) else keeping(jobspec)


def prepare(service: Service, who: Caller, submission: Submission) -> SubmitTransaction:
    """Do all that needs no writing: parse, match, check."""
    result, without = find_open(service, who, submission)
    reading = _with_ids(service, _checked(service, result.request))
    selector, options = selector_of(service, submission)
    drained = {} if result.match.candidates else refusal.drained(service, result)
    stored = None if reads_states(selector) else candidates.snapshot(service, result.match.reach)
    if stored is None:
        candidates.look_ahead(service, result.match.ids)
    new = SubmitTransaction(
        service, who, submission, reading, result.match, selector, options, stored, without, drained
    )
    new.queues = queues(service, submission)
    new.ask_sites()
    return new


def _with_ids(service: Service, reading: Reading) -> Reading:
    if not reading.request.dependencies:
        return reading
    with service.store.read() as connection:
        return by_id(connection, reading)


def _checked(service: Service, request: Request) -> Reading:
    count = sum(task.replicas for task in request.tasks)  # before they are written out
    if count > service.settings.limits.tasks:
        raise LimitError(f"{count} tasks, the limit is {service.settings.limits.tasks}", limit="tasks")
    for pointer, text in request.unfit:
        raise JobspecError(f"{pointer.rpartition('/')[2]} {text}", pointer=pointer)
    reading = read_request(request)
    for gang in reading.gangs:
        for task in gang.tasks:
            if not task.spec.command:
                raise JobspecError(f"{task.name} has no command to run", pointer=f"/tasks/{task.index}/command")
    if not reading.gangs:
        raise JobspecError("there is no task to run", pointer="/tasks")
    return reading
