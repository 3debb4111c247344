"""Walk 2: a jobspec comes in, a cluster is matched and selected, job, tasks and decision are stored in one go."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, Forbidden, JobspecError, LimitError, NotFound, Refused
from rainbow.jobs import Task
from rainbow.jobspec import Request, parse_jobspec
from rainbow.jobspec.keeping import keeping
from rainbow.matching import Verdict, backends, match, shown, shown_explained
from rainbow.scheduling import Gang, gangs
from rainbow.selection import check_options, reads, select
from rainbow.service import ledger
from rainbow.service.access import Caller, requestor_of
from rainbow.service.admission import admit, check_limits
from rainbow.service.depending import check_dependencies
from rainbow.service.replacing import replace_ancestors
from rainbow.store import clusters, durations, jobs, states, tasks, workers
from rainbow.store.jobs import JobRecord

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.service import Entry, Service


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


# ── match ──


def find(service: Service, who: Caller, asked: Submission) -> tuple[Request, Sequence[Verdict]]:
    """Match a jobspec against every cluster the caller may submit to."""
    request = parse_jobspec(asked.jobspec)
    entries = _usable(service, who, asked.clusters if asked.place is None else [asked.place])
    return request, match(request, [entry.cluster for entry in entries], service.settings.backend)


def _usable(service: Service, who: Caller, names: Sequence[str] | None) -> list[Entry]:
    entries = [e for e in service.catalogue.values() if who.admin or e.id in who.submits]
    if not entries and not who.admin:
        raise Forbidden("no submit token of a cluster was brought")
    if names is None:
        return entries
    known = {entry.cluster.name: entry for entry in entries}
    for name in names:
        if name not in known:
            raise NotFound(f"there is no cluster {name}")
    return [known[name] for name in sorted(set(names))]


def answer(service: Service, who: Caller, asked: Submission) -> dict[str, Any]:
    """Say which clusters could run a jobspec; explained if that was asked for."""
    if not asked.explain:
        return shown(*find(service, who, asked))
    request = parse_jobspec(asked.jobspec)
    found = [entry.cluster for entry in _usable(service, who, asked.clusters)]
    verdicts = match(request, found, service.settings.backend)
    return shown_explained(request, found, verdicts, backends.get(service.settings.backend))


# ── submit ──


def submit(service: Service, who: Caller, asked: Submission) -> tuple[dict[str, Any], bool]:
    """Place a job; return it and whether it is an earlier one sent again. Refused says why no cluster takes it."""
    request, verdicts = find(service, who, asked)
    wanted = _checked_gangs(service, request)
    selector, options = selector_of(service, asked)
    with service.store.write() as connection:
        if earlier := _earlier(connection, asked):
            return earlier, True
        job_id = _new_id()
        check_dependencies(connection, who, request)
        ids = candidate_ids(service, verdicts)
        if reads(selector, options, "nodes_free"):
            clusters.hold(connection, ids)
        given = states_of(service, connection, ids, reads(selector, options, "queue.idle_workers"))
        choice = select(request, verdicts, given, selector, options, seed=job_id)
        decision = {**shown(request, verdicts), "selection": ledger.written(choice), "seed": job_id}
        if asked.place is not None:
            decision["placed_by"] = f"the plan of a batch, which left {asked.place} to choose from"
        if choice.cluster is None:
            raise Refused("no cluster can take this job", **decision)
        verdict = next(v for v in verdicts if v.cluster == choice.cluster)
        record = _record(service, connection, who, asked, request, job_id, verdict)
        others = _allowed(service, who, record.requestor, verdicts)
        decision["again"] = {"clusters": others, "selector": selector, "options": dict(options)}
        key = {"idempotency": _key(asked), "request_digest": asked.digest()} if asked.key else {}
        limits = check_limits(clusters.limits(connection, record.cluster_id, lock=True))
        replace_ancestors(service, connection, who, record)
        admit(connection, record, sum(len(gang.tasks) for gang in wanted), limits)
        kept = {**decision, ledger.LEDGER: ledger.entry(service, selector, options, given)}
        jobs.add(connection, record, _text(asked.jobspec), kept, **key)
        expected = durations.expected(connection, durations.job_key(record.cluster_id, record.requestor, record.name))
        tasks.add(connection, record.cluster_id, _tasks(job_id, wanted, limits["max_retries"], expected))
    service.tell(record.cluster_id)
    return {"id": job_id, "cluster": record.cluster, "state": record.state, "decision": decision}, False


def _allowed(service: Service, who: Caller, requestor: str, verdicts: Sequence[Verdict]) -> list[str]:
    """Name the candidates that the caller's credentials let this requestor use: a job may move among them."""
    known = [v.cluster for v in verdicts if v.matched and v.cluster in service.catalogue]
    allowed = {name: who.submits.get(service.catalogue[name].id) for name in known}
    return [name for name, requestors in allowed.items() if requestors is None or requestor in requestors]


def _checked_gangs(service: Service, request: Request) -> tuple[Gang, ...]:
    count = sum(task.replicas for task in request.tasks)  # before they are written out
    if count > service.settings.limits.tasks:
        raise LimitError(f"{count} tasks, the limit is {service.settings.limits.tasks}", limit="tasks")
    wanted = gangs(request)
    for gang in wanted:
        for task in gang.tasks:
            if not task.spec.command:
                raise JobspecError(f"{task.name} has no command to run", pointer=f"/tasks/{task.index}/command")
    if not wanted:
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


def candidate_ids(service: Service, verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Return {cluster id: name} of the clusters that match."""
    entries = service.catalogue
    return {entries[v.cluster].id: v.cluster for v in verdicts if v.matched and v.cluster in entries}


def states_of(
    service: Service, connection: sa.Connection, ids: Mapping[str, str], idle: bool
) -> dict[str, dict[str, Any]]:
    """Return the variables of every candidate's state; nodes_free as booked, idle workers if they are read."""
    reported, booked = states.get(connection, ids), states.booked(connection, ids)
    queued: Mapping[str, dict[str, int]] = states.queues(connection, ids)
    for cluster_id, count in (workers.idle(connection, ids) if idle else {}).items():
        queued[cluster_id]["idle_workers"] = count
    found: dict[str, dict[str, Any]] = {}
    for cluster_id, name in ids.items():
        values: dict[str, Any] = {f"queue.{key}": value for key, value in queued[cluster_id].items()}
        if cluster_id in reported:
            values |= reported[cluster_id].values
            values["state.age"] = max(0.0, service.clock() - reported[cluster_id].reported_at)
        free = values.get("nodes_free")
        if isinstance(free, (int, float)) and not isinstance(free, bool):
            values["nodes_free"] = free + booked[cluster_id]
        found[name] = values
    return found


def _record(
    service: Service,
    connection: sa.Connection,
    who: Caller,
    asked: Submission,
    request: Request,
    job_id: str,
    verdict: Verdict,
) -> JobRecord:
    cluster = clusters.find(connection, verdict.cluster)
    if cluster is None:  # deleted since it was matched
        raise Conflict(f"cluster {verdict.cluster} is being deleted; submit again")
    requestor = requestor_of(asked.requestor, who.submits.get(cluster.id))
    return JobRecord(
        id=job_id,
        name=asked.name or request.name or "job",
        requestor=requestor,
        cluster_id=cluster.id,
        cluster=cluster.name,
        nodes=verdict.totals.get("nodes", 0),
        submitted_at=service.clock(),
        basis=asked.basis or "",
        tag=asked.tag or (job_id if asked.basis else ""),
    )


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


def _earlier(connection: sa.Connection, asked: Submission) -> dict[str, Any] | None:
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
    decision = ledger.shown(jobs.decision(connection, job_id))
    return {"id": job_id, "cluster": record.cluster, "state": record.state, "decision": decision}
