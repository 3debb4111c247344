"""Walk 2: a jobspec comes in, a cluster is matched and selected, job, tasks and decision are stored in one go."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, Forbidden, JobspecError, LimitError, NotFound, Refused
from rainbow.jobs import Task
from rainbow.jobspec import Request, parse_jobspec
from rainbow.jobspec.keeping import keeping
from rainbow.matching import Verdict, backends, match, shown, shown_explained
from rainbow.scheduling import Gang, gangs
from rainbow.selection import Choice, check_options, select
from rainbow.service.access import Caller, requestor_of
from rainbow.store import clusters, jobs, states, tasks
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
    key: str | None = None  # Idempotency-Key
    credentials: Sequence[str] = field(default_factory=tuple)  # digest of who asks, part of the key
    explain: bool = False  # of match: say what was looked for and found, and what would do

    def digest(self) -> str:
        """Return what tells two requests apart."""
        parts = [self.jobspec, self.selector, self.options, self.clusters, self.name, self.requestor]
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# ── match ──


def find(service: Service, who: Caller, asked: Submission) -> tuple[Request, Sequence[Verdict]]:
    """Match a jobspec against every cluster the caller may submit to."""
    request = parse_jobspec(asked.jobspec)
    entries = _usable(service, who, asked.clusters)
    return request, match(request, [entry.cluster for entry in entries], service.settings.backend)


def _usable(service: Service, who: Caller, names: Sequence[str] | None) -> list[Entry]:
    entries = _known(service, who)
    if not entries and not who.admin:
        raise Forbidden("no submit token of a cluster was brought")
    if names is None:
        return entries
    known = {entry.cluster.name: entry for entry in entries}
    for name in names:
        if name not in known:
            raise NotFound(f"there is no cluster {name}")
    return [known[name] for name in sorted(set(names))]


def _known(service: Service, who: Caller) -> list[Entry]:
    """Return the clusters the caller may submit to; those another process has registered are compiled now."""
    if who.admin:
        return list(service.catalogue.values())
    found = [entry for entry in service.catalogue.values() if entry.id in who.submits]
    if missing := set(who.submits) - {entry.id for entry in found}:
        with service.store.read() as connection:
            names = clusters.names(connection, missing)
        found += [entry for name in names.values() if (entry := service.compile(name))]
    return found


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
    selector, options = _selector(service, asked)

    def place(connection: sa.Connection) -> tuple[dict[str, Any], bool]:
        if earlier := _earlier(connection, asked):
            return earlier, True
        job_id = _new_id()
        choice = select(request, verdicts, _states(service, connection, verdicts), selector, options, seed=job_id)
        decision = {**shown(request, verdicts), "selection": _choice(choice), "seed": job_id}
        if choice.cluster is None:
            raise Refused("no cluster can take this job", **decision)
        verdict = next(v for v in verdicts if v.cluster == choice.cluster)
        record = _record(service, connection, who, asked, request, job_id, verdict)
        key = {"idempotency": _key(asked), "request_digest": asked.digest()} if asked.key else {}
        jobs.add(connection, record, _text(asked.jobspec), decision, **key)
        tasks.add(connection, record.cluster_id, _tasks(job_id, wanted))
        told = {"id": job_id, "cluster": record.cluster, "state": record.state, "decision": decision}
        placed.append(record.cluster_id)
        return told, False

    placed: list[str] = []
    answer = service.store.together(place)
    service.tell(*placed)
    return answer


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


def _selector(service: Service, asked: Submission) -> tuple[str, Mapping[str, Any]]:
    """Return the request's own selector, for this request alone, or the server's."""
    if asked.selector is None:
        return service.settings.selector, service.settings.selector_options
    same = asked.selector == service.settings.selector
    options = asked.options if asked.options is not None else service.settings.selector_options if same else {}
    check_options(asked.selector, options)
    return asked.selector, options


def _states(service: Service, connection: sa.Connection, verdicts: Sequence[Verdict]) -> dict[str, dict[str, Any]]:
    """Return the variables of every candidate's state; nodes_free as booked."""
    ids = {
        service.catalogue[v.cluster].id: v.cluster for v in verdicts if v.matched and v.cluster in service.catalogue
    }
    reported, booked = states.get(connection, ids), states.booked(connection, ids)
    queued = states.queues(connection, ids)
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


def _choice(choice: Choice) -> dict[str, Any]:
    written = asdict(choice)
    written["steps"] = [{**step, "values": dict(step["values"])} for step in written["steps"]]
    return json.loads(json.dumps(written))  # type: ignore[no-any-return]


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
    )


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
    decision = jobs.decision(connection, job_id)
    return {"id": job_id, "cluster": record.cluster, "state": record.state, "decision": decision}
