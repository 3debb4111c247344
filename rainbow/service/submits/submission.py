"""A submit that is ready to be written: a cluster is selected by what is true then, job and decision are stored."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, NoClusterNow, NotFound, Refused, TooMany, Undecided
from rainbow.jobs import Task
from rainbow.jobspec.keeping import keeping
from rainbow.matching import names_of
from rainbow.scheduling import Gang
from rainbow.scheduling.english import some
from rainbow.selection import Choice, reads, select
from rainbow.service.access import Caller, requestor_of
from rainbow.service.measuring import phase
from rainbow.service.parts import Part
from rainbow.service.submits import ledger, symbols
from rainbow.service.submits.admission import admit, check_limits
from rainbow.service.submits.candidates import states_of
from rainbow.service.submits.depending import check_dependencies
from rainbow.service.submits.instances import STARTS
from rainbow.service.submits.jobspecs import Reading, remember
from rainbow.service.submits.remembering import TOLD, Match
from rainbow.service.submits.replacing import replace_ancestors
from rainbow.store import clusters, durations, events, jobs, records, tasks
from rainbow.store.jobs import JobRecord

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Service
    from rainbow.store.clusters import ClusterRecord

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
    basis: str | None = None  # what the job is a version of: see replacing.py
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
        symbols.check(self.who, self.wanted.request)
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
        record = replace(record, awaits=symbols.find(connection, self.who, record, self.wanted.request) or None)
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
        symbols.keep(connection, record, self.wanted.request)
        remember(record.id, self.wanted)
        records.keep(connection, record.id, ledger.long(parts))
        expected = durations.expected(connection, durations.job_key(record.cluster_id, record.requestor, record.name))
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
