"""A submit that is ready to be written: a cluster is selected by what is true then, job and decision are stored."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, NotFound, Refused, TooMany
from rainbow.jobs import Task
from rainbow.jobspec.keeping import keeping
from rainbow.scheduling import Gang
from rainbow.selection import Choice, select
from rainbow.service.access import Caller, requestor_of
from rainbow.service.booking import states_of
from rainbow.service.deciding import Basis, written
from rainbow.service.deciding import record as note
from rainbow.service.measuring import phase
from rainbow.service.remembering import Match
from rainbow.store import clusters, events, jobs, tasks
from rainbow.store.clusters import ClusterRecord
from rainbow.store.jobs import JobRecord

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Service


@dataclass(frozen=True, slots=True)
class Submission:
    """What a submit brings: the jobspec, and what may stand beside it in an envelope."""

    jobspec: str | bytes | Mapping[str, Any]
    selector: str | None = None
    options: Mapping[str, Any] | None = None
    clusters: Sequence[str] | None = None  # only these; None: all the caller may use
    name: str | None = None
    requestor: str | None = None
    key: str | None = None  # Idempotency-Key
    credentials: Sequence[str] = field(default_factory=tuple)  # digest of who asks, part of the key
    explain: bool = False  # of match: say what was looked for and found, and what would do

    def digest(self) -> str:
        """Return what tells two requests apart."""
        parts = [self.jobspec, self.selector, self.options, self.clusters, self.name, self.requestor]
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass
class Placement:
    """One submit: what was found without writing, and the part of it that writes."""

    service: Service
    who: Caller
    asked: Submission
    found: Match
    wanted: Sequence[Gang]
    basis: Basis
    cluster_id: str | None = None  # where it was placed

    def write(self, connection: sa.Connection) -> tuple[dict[str, Any], bool]:
        """Choose a cluster by what is true now and store the job; or return the one sent before under its key."""
        if earlier := earlier_job(connection, self.asked):
            return earlier, True
        job_id = _new_id()
        states, choice = self._choose(connection, job_id)
        decision = {**self.found.told, "selection": written(choice), "seed": job_id}
        if choice.cluster is None:
            raise Refused("no cluster can take this job", **decision)
        cluster = clusters.find(connection, choice.cluster)
        if cluster is None or cluster.draining_at is not None:  # deleted since it was matched
            raise Conflict(f"cluster {choice.cluster} is being deleted; submit again")
        record = self._record(connection, job_id, cluster)
        self._store(connection, record, decision)
        note(self.service, connection, self.basis, states, cluster, job_id)
        self.cluster_id = record.cluster_id
        return {"id": job_id, "cluster": record.cluster, "state": record.state, "decision": decision}, False

    def _choose(self, connection: sa.Connection, job_id: str) -> tuple[dict[str, dict[str, Any]], Choice]:
        basis = self.basis
        # `random` reads no state, and reading those of 10,000 clusters is most of the work of a submit
        states = {} if basis.selector == "random" else states_of(self.service, connection, self.found.verdicts)
        with phase("select"):
            choice = select(
                self.found.request, self.found.verdicts, states, basis.selector, basis.options, seed=job_id
            )
        return states, choice

    def _record(self, connection: sa.Connection, job_id: str, cluster: ClusterRecord) -> JobRecord:
        requestor = requestor_of(self.asked.requestor, self.who.submits.get(cluster.id))
        most = self.service.settings.limits.live
        if most and jobs.live_of(connection, cluster.id, requestor) >= most:
            raise TooMany(f"{requestor} has {most} live jobs there, the limit", retry_after=30, limit="live")
        return JobRecord(
            id=job_id,
            name=self.asked.name or self.found.request.name or "job",
            requestor=requestor,
            cluster_id=cluster.id,
            cluster=cluster.name,
            nodes=self.found.verdicts[self.found.places[cluster.name]].totals.get("nodes", 0),
            submitted_at=self.service.clock(),
        )

    def _store(self, connection: sa.Connection, record: JobRecord, decision: dict[str, Any]) -> None:
        asked = self.asked
        key = {"idempotency": _key(asked), "request_digest": asked.digest()} if asked.key else {}
        jobs.add(connection, record, _text(asked.jobspec), decision, **key)
        tasks.add(connection, record.cluster_id, _tasks(record.id, self.wanted))
        told = {"job": record.id, "state": str(record.state), "cluster": record.cluster}
        events.add(connection, record.submitted_at, record.cluster_id, "job", **told)


def _tasks(job_id: str, wanted: Sequence[Gang]) -> list[Task]:
    return [
        Task(f"{job_id}-{task.index}", job_id, task.index, gang.number, task.name)
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


def earlier_job(connection: sa.Connection, asked: Submission) -> dict[str, Any] | None:
    """Return the job that was submitted under the same key; Conflict if that was another request."""
    found = jobs.by_idempotency(connection, _key(asked)) if asked.key else None
    if found is None:
        return None
    job_id, digest = found
    if digest != asked.digest():
        raise Conflict("this Idempotency-Key was used for another request")
    record = jobs.get(connection, job_id)
    if record is None:
        raise NotFound(f"there is no job {job_id}")
    decision = jobs.decision(connection, job_id)
    return {"id": job_id, "cluster": record.cluster, "state": record.state, "decision": decision}
