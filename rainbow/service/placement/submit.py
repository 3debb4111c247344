"""A submit: match, select, and one write transaction."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rainbow.errors import (
    Conflict,
    JobspecError,
    LimitError,
    NoClusterNow,
    NotFound,
    RainbowError,
    Refused,
    TooMany,
    Undecided,
)
from rainbow.jobspec import Request, parse_jobspec
from rainbow.jobspec.storable import keeping
from rainbow.matching import backends, match, names_of, shown, shown_explained
from rainbow.scheduling import Gang
from rainbow.selection import Choice, check_options, reads, reads_states, select
from rainbow.service.core.access import Caller, requestor_of
from rainbow.service.core.counters import count, phase
from rainbow.service.core.limits import admit, check_limits
from rainbow.service.jobs.dependency_targets import check_dependencies
from rainbow.service.jobs.jobspecs import Reading, read_request, remember
from rainbow.service.jobs.lifecycle import STARTS
from rainbow.service.placement import ledger, named_dependencies
from rainbow.service.placement.candidates import Part, barred, reach_of, snapshot, states_of
from rainbow.service.placement.match_cache import TOLD, Found, Match, Matches
from rainbow.service.placement.named_dependencies import replace_ancestors
from rainbow.state_machine import Task
from rainbow.store import clusters, events, jobs, statistics, tasks
from rainbow.store.jobs import JobRecord
from rainbow.text import some

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.engine import Work


States = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Submission:
    """What a submit brings: the jobspec, and what may stand beside it in an envelope."""

    jobspec: str | bytes | Mapping[str, Any]
    selector: str | None = None
    options: Mapping[str, Any] | None = None
    clusters: Sequence[str] | None = None  # only these; None: all the caller may use
    name: str | None = None
    requestor: str | None = None
    basis: str | None = None  # what the job is a version of: see named_dependencies.py
    tag: str | None = None  # which version
    key: str | None = None  # Idempotency-Key
    credentials: Sequence[str] = field(default_factory=tuple)  # digest of who asks, part of the key
    explain: bool = False  # of match: say what was looked for and found, and what would do
    place: str | None = None  # only this one of them, by the plan of a batch; no part of what was asked

    def digest(self) -> str:
        """Return what tells two requests apart."""
        parts = [self.jobspec, self.selector, self.options, self.clusters, self.name, self.requestor]
        parts += [self.basis, self.tag] if self.basis or self.tag else []
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Outdated(Conflict):
    """The graphs of the cluster that was selected changed after they were matched."""

    def __init__(self, cluster: str) -> None:
        super().__init__(f"the graphs of cluster {cluster} keep changing; submit again")
        self.cluster = cluster


@dataclass
class Placement:
    """One submit: what was found without writing, and the part of it that writes."""

    service: Service
    who: Caller
    asked: Submission
    wanted: Reading
    found: Match
    selector: str
    options: Mapping[str, Any]
    snapshot: Part | None = None  # what is kept of the states if the selector reads none
    barred: Mapping[str, str] = field(default_factory=dict)  # clusters without the queue or class it asks for: why
    drained: Mapping[str, str] = field(default_factory=dict)  # clusters that match, and take no jobs now: why
    cluster_id: str | None = None  # where it was placed

    def write(self, connection: sa.Connection) -> tuple[dict[str, Any], bool]:
        """Choose a cluster by what is true now and store the job; or return the one sent before under its key."""
        if earlier := earlier_job(connection, self.who, self.asked):
            return earlier, True
        job_id = _new_id()
        check_dependencies(connection, self.who, self.wanted.request)
        named_dependencies.check(self.who, self.wanted.request)
        states, choice = self._choose(connection, job_id)
        told = self.found.told(self.wanted.request, choice.cluster)
        decision = {**told, "selection": ledger.told(choice, self.found), "seed": job_id}
        if self.barred:
            decision["barred"] = dict(self.barred)
        if self.asked.place is not None:
            decision["placed_by"] = f"the plan of a batch, which left {self.asked.place} to choose from"
        if choice.cluster is None:
            raise self._refusal(choice, decision)
        cluster = _taking(connection, choice.cluster)
        self._check_matched(cluster)
        record = self._record(connection, job_id, cluster)
        record = replace(
            record, awaits=named_dependencies.find(connection, self.who, record, self.wanted.request) or None
        )
        decision["again"] = self._again(record.requestor)
        parts = {**self._given(states), **ledger.longer(choice, self.found, self.selector)}
        self._store(connection, record, check_limits(cluster.limits), decision, parts)
        self.cluster_id = record.cluster_id
        return {"id": job_id, "cluster": record.cluster, "state": record.state, "decision": decision}, False

    def _refusal(self, choice: Choice, decision: dict[str, Any]) -> Refused:
        """Return why the job has no cluster: none matches, or none takes it now, and what dropped each."""
        named = self.found.candidates[:TOLD]
        dropped = {**{one.cluster: choice.drops.get(one.cluster, choice.reason) for one in named}, **self.drained}
        if not dropped:
            return self._unmatched(decision)
        count = len(self.found.candidates) + len(self.drained)
        text = f"{some(count, 'cluster')} could run this job, none takes it now: {_first(dropped)}"
        return NoClusterNow(text, dropped=dropped, **decision)

    def _check_matched(self, cluster: ClusterRecord) -> None:
        """Raise Outdated if another process replaced the graphs that were matched."""
        matched = self.found.reach.entry(cluster.name)
        if (matched.id, matched.revision) != (cluster.id, cluster.revision):
            raise Outdated(cluster.name)

    def _unmatched(self, decision: Mapping[str, Any]) -> Refused:
        """Return why no cluster matches: none can ever take the job, or none is known to."""
        names = names_of(self.found.undecided)
        if not names:
            return Refused("no cluster can take this job", **decision)
        told = ", ".join(names[:TOLD]) + (f" and {len(names) - TOLD} more" if len(names) > TOLD else "")
        limit = self.service.settings.limits.match_seconds
        text = f"no cluster is known to match: {len(names)} undecided after {limit:g} s ({told})"
        return Undecided(f"{text}; ask for less, name one cluster, or have limits.match_seconds raised", **decision)

    def _choose(self, connection: sa.Connection, job_id: str) -> tuple[States, Choice]:
        selector, options, found = self.selector, self.options, self.found
        states = {} if self.snapshot else self._states(connection)
        with phase("select"):
            return states, select(self.wanted.request, found.verdicts, states, selector, options, seed=job_id)

    def _states(self, connection: sa.Connection) -> States:
        idle = reads(self.selector, self.options, "queue.idle_workers")
        return states_of(self.service, connection, self.found.ids, idle)

    def _given(self, states: States) -> dict[str, Part]:
        """Return what the selection was given, as the ledger keeps it."""
        policy = Part.of([self.selector, self.options])
        return {"policy": policy, "states": self.snapshot or Part.of(states), "graphs": self.found.reach.graphs}

    def _record(self, connection: sa.Connection, job_id: str, cluster: ClusterRecord) -> JobRecord:
        asked = self.asked
        requestor = requestor_of(asked.requestor, self.who.submits.get(cluster.id))
        self._check_live(connection, cluster.id, requestor)
        return JobRecord(
            id=job_id,
            name=asked.name or self.wanted.request.name or "job",
            requestor=requestor,
            cluster_id=cluster.id,
            cluster=cluster.name,
            nodes=self.found.verdict(cluster.name).totals.get("nodes", 0),
            submitted_at=self.service.clock(),
            basis=asked.basis or "",
            tag=asked.tag or (job_id if asked.basis else ""),
        )

    def _check_live(self, connection: sa.Connection, cluster_id: str, requestor: str) -> None:
        most = self.service.settings.limits.live
        if most and jobs.live_of(connection, cluster_id, requestor) >= most:
            raise TooMany(f"{requestor} has {most} live jobs there, the limit", retry_after=30, limit="live")

    def _again(self, requestor: str) -> dict[str, Any]:
        """Say where else the job may go, by the caller's credentials for this requestor, and how it is chosen.

        Without `clusters` it is to any candidate, as nearly always: one token, or the administrator's.
        """
        how = {"selector": self.selector, "options": dict(self.options)}
        known = self.found.allowed.get(requestor) or self.found.allowed.put(requestor, self._allowed(requestor))
        return how if len(known) == len(self.found.candidates) else {"clusters": known, **how}

    def _allowed(self, requestor: str) -> list[str]:
        of = {name: self.who.submits.get(cluster_id) for cluster_id, name in self.found.ids.items()}
        return [name for name, requestors in of.items() if requestors is None or requestor in requestors]

    def _store(
        self,
        connection: sa.Connection,
        record: JobRecord,
        limits: Mapping[str, int],
        decision: dict[str, Any],
        parts: Mapping[str, Part],
    ) -> None:
        asked = self.asked
        key = {"idempotency": _key(asked), "request_digest": asked.digest()} if asked.key else {}
        replace_ancestors(self.service, connection, self.who, record)
        admit(connection, record, sum(len(gang.tasks) for gang in self.wanted.gangs), limits)
        kept = {**decision, ledger.LEDGER: ledger.entry(parts)}
        jobs.add(connection, record, _text(asked.jobspec), kept, **key)
        named_dependencies.keep(connection, record, self.wanted.request)
        remember(record.id, self.wanted)
        jobs.keep_records(connection, record.id, ledger.long(parts))
        expected = statistics.expected_durations(
            connection, statistics.job_key(record.cluster_id, record.requestor, record.name)
        )
        retries = STARTS if self.wanted.request.service else limits["max_retries"]
        tasks.add(connection, record.cluster_id, _tasks(record.id, self.wanted.gangs, retries, expected))
        told = {"job": record.id, "state": str(record.state), "cluster": record.cluster}
        events.add(connection, record.submitted_at, record.cluster_id, "job", **told)


def _first(dropped: Mapping[str, str]) -> str:
    shown = [f"{name}: {why}" for name, why in list(dropped.items())[:3]]
    return "; ".join([*shown, *([f"and {len(dropped) - 3} more"] if len(dropped) > 3 else [])])


def _taking(connection: sa.Connection, name: str) -> ClusterRecord:
    """Return the cluster that was selected; Conflict if it takes no jobs any more since it was matched."""
    cluster = clusters.find(connection, name)
    if cluster is None or cluster.draining_at is not None:
        raise Conflict(f"cluster {name} is being deleted; submit again")
    if cluster.drained_at is not None:
        raise Conflict(f"cluster {name} was drained a moment ago; submit again")
    return cluster


def _tasks(job_id: str, wanted: Sequence[Gang], retries: int, expected: Mapping[str, float]) -> list[Task]:
    return [
        Task(
            f"{job_id}-{task.index}",
            job_id,
            task.index,
            gang.number,
            task.name,
            retries_left=retries,
            expected=expected.get(task.name, 0.0),
        )
        for gang in wanted
        for task in gang.tasks
    ]


def _new_id() -> str:
    """Make a job id: ids sort by time."""
    return f"{time.time_ns():016x}{secrets.token_hex(4)}"


def _text(jobspec: str | bytes | Mapping[str, Any]) -> Any:
    return jobspec.decode() if isinstance(jobspec, bytes) else keeping(jobspec)


def _key(asked: Submission) -> str:
    return hashlib.sha256(json.dumps([asked.key, sorted(asked.credentials)]).encode()).hexdigest()


def earlier_job(connection: sa.Connection, who: Caller, asked: Submission) -> dict[str, Any] | None:
    """Return the job that was submitted under the same key; Conflict if that was another request."""
    found = jobs.by_idempotency(connection, _key(asked)) if asked.key else None
    if found is None:
        return None
    job_id, digest = found
    if digest != asked.digest():
        raise Conflict("this Idempotency-Key was used for another request")
    record = jobs.get(connection, job_id)
    if record is None or not who.sees(record.cluster_id):  # of what was brought then something may have ended
        raise NotFound(f"there is no job {job_id}")
    decision = ledger.shown(jobs.decision(connection, job_id))
    return {"id": job_id, "cluster": record.cluster, "state": record.state, "decision": decision}


ATTEMPTS = 3  # of a submit whose cluster gets other graphs while it is matched
Placed = tuple[dict[str, Any], bool] | RainbowError  # a job and whether it was sent before, or why there is none


# ── match ──


def find_for(service: Service, who: Caller, asked: Submission) -> Found:
    """Match a jobspec against every cluster the caller may submit to, or those asked for."""
    among = reach_of(service, who, asked.clusters if asked.place is None else [asked.place])
    settings = service.settings
    found = service.state(Matches).find(asked.jobspec, among, settings.backend, settings.budget())
    for verdict, times in found.match.counts.items():
        count("rainbow_matches", verdict, times)
    return found


def answer(service: Service, who: Caller, asked: Submission) -> dict[str, Any]:
    """Say which clusters could run a jobspec; explained if that was asked for."""
    if not asked.explain:
        found = find_for(service, who, asked)
        return shown(found.request, found.match.verdicts)
    request = parse_jobspec(asked.jobspec)
    among = reach_of(service, who, asked.clusters).clusters
    settings = service.settings
    verdicts = match(request, among, settings.backend, settings.budget())
    return shown_explained(request, among, verdicts, backends.get(settings.backend), settings.budget())


# ── submit ──


def submit(service: Service, who: Caller, asked: Submission) -> tuple[dict[str, Any], bool]:
    """Place a job; return it and whether it is an earlier one sent again. Refused says why no cluster takes it."""
    [placed] = submit_all(service, [(who, asked)])
    if isinstance(placed, RainbowError):
        raise placed
    return placed


def submit_all(service: Service, many: Sequence[tuple[Caller, Submission]]) -> list[Placed]:
    """Place several jobs, each or not, in order; what became of each. One wait for the disk for all of them."""
    answers = _attempt(service, dict(enumerate(many)))
    for _ in range(ATTEMPTS - 1):
        outdated = {k: found.cluster for k, found in answers.items() if isinstance(found, Outdated)}
        if not outdated:
            break
        for cluster in sorted(set(outdated.values())):
            service.compile(cluster)
        answers |= _attempt(service, {k: many[k] for k in outdated})
    for found in answers.values():
        count("rainbow_submits", _told_of(found))
    return [answers[k] for k in range(len(many))]


def _attempt(service: Service, many: Mapping[int, tuple[Caller, Submission]]) -> dict[int, Placed]:
    """Match each, then place all that matched in one transaction's wait."""
    answers: dict[int, Placed] = {}
    prepared: dict[int, Placement] = {}
    for k, (who, asked) in many.items():
        try:
            prepared[k] = _prepare(service, who, asked)
        except RainbowError as fault:
            answers[k] = fault
    with phase("store"):
        works = service.store.all_together([each.write for each in prepared.values()])
    for k, work in zip(prepared, works, strict=True):
        answers[k] = _outcome(prepared[k], work)
    if told := {each.cluster_id for each in prepared.values() if each.cluster_id}:
        service.tell(*told, offers=False)  # a step offers what it starts
    return answers


def _told_of(found: Placed) -> str:
    """Return what the metrics call an outcome."""
    if isinstance(found, RainbowError):
        return found.code
    return "again" if found[1] else "placed"


def _outcome(placement: Placement, work: Work[tuple[dict[str, Any], bool]]) -> Placed:
    if work.fault is None and work.result is not None:
        return work.result
    placement.cluster_id = None
    if isinstance(work.fault, RainbowError):
        return work.fault
    raise work.fault or AssertionError("a part has a result or a fault")


def _prepare(service: Service, who: Caller, asked: Submission) -> Placement:
    """Do all that needs no writing: parse, match, check."""
    found, without = find_open(service, who, asked)
    wanted = _checked(service, found.request)
    selector, options = selector_of(service, asked)
    drained = {} if found.match.candidates else _drained(service, found)
    kept = None if reads_states(selector) else snapshot(service, found.match.reach)
    return Placement(service, who, asked, wanted, found.match, selector, options, kept, without, drained)


def find_open(service: Service, who: Caller, asked: Submission) -> tuple[Found, dict[str, str]]:
    """Match a jobspec against the clusters that have the queue and class it names; say why not the others.

    JobspecError where every cluster that matches is one of these.
    """
    found = find_for(service, who, asked)
    if not found.request.attributes.get("system"):
        return found, {}
    with service.store.read() as connection:
        without = barred(connection, found.request, found.match.ids)
    if not without:
        return found, {}
    if len(without) == len(found.match.candidates):
        raise next(iter(without.values()))
    others = [name for name in found.match.reach.places if name not in without]
    told = {name: fault.message for name, fault in without.items()}
    return find_for(service, who, replace(asked, clusters=others, place=None)), told


def _drained(service: Service, found: Found) -> dict[str, str]:
    """Say why not of the clusters that match and are drained: they could run the job, and will again."""
    entries = found.match.reach.drained
    verdicts = match(found.request, [entry.cluster for entry in entries], service.settings.backend) if entries else ()
    why = "drained: it takes nothing new until it is reinstated"
    return {verdict.cluster: why for verdict in verdicts if verdict.matched}


def _checked(service: Service, request: Request) -> Reading:
    count = sum(task.replicas for task in request.tasks)  # before they are written out
    if count > service.settings.limits.tasks:
        raise LimitError(f"{count} tasks, the limit is {service.settings.limits.tasks}", limit="tasks")
    for pointer, text in request.unfit:
        raise JobspecError(f"{pointer.rpartition('/')[2]} {text}", pointer=pointer)
    wanted = read_request(request)
    for gang in wanted.gangs:
        for task in gang.tasks:
            if not task.spec.command:
                raise JobspecError(f"{task.name} has no command to run", pointer=f"/tasks/{task.index}/command")
    if not wanted.gangs:
        raise JobspecError("there is no task to run", pointer="/tasks")
    return wanted


def selector_of(service: Service, asked: Submission) -> tuple[str, Mapping[str, Any]]:
    """Return the request's own selector, for this request alone, or the server's."""
    settings = service.settings  # once: they may be exchanged at any moment
    if asked.selector is None:
        return settings.selector, settings.selector_options
    same = asked.selector == settings.selector
    options = asked.options if asked.options is not None else settings.selector_options if same else {}
    check_options(asked.selector, options)
    return asked.selector, options
