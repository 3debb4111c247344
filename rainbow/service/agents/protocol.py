"""The agent's verbs: receive, accept, report events, heartbeat."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rainbow import transitions
from rainbow.errors import Conflict
from rainbow.forecast import Key
from rainbow.jobspec.batch import index_at, started
from rainbow.jobspec.handover import starts_once
from rainbow.jobspec.request import Request
from rainbow.jobspec.script_variables import Standing, numbered_file, script_variables
from rainbow.matching import at_numbers, meet, numbered, stated_units
from rainbow.scheduling import processes, traits_of
from rainbow.service.agents.liveness import beat, count_losses, count_start, record_agent
from rainbow.service.agents.unit_of_work import UnitOfWork
from rainbow.service.core.access import Caller
from rainbow.service.core.event_stream import one_of_few
from rainbow.service.core.heartbeats import PULLS
from rainbow.service.core.limits import limits_of
from rainbow.service.core.pubsub import Pause, awaited_by, checks_of
from rainbow.service.jobs.jobspecs import handed_over, reading
from rainbow.service.jobs.lifecycle import is_overdue, may_run, settle
from rainbow.service.jobs.numbers import note_site
from rainbow.service.placement.site_checks import KEPT
from rainbow.state_machine import BOOKED, ENDED, Task, TaskState, ran_for
from rainbow.store import clusters, jobs, statistics, tasks, workers
from rainbow.store.names.numbers import element_number
from rainbow.store.statistics import Ran
from rainbow.transitions import transition

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.service.core.service import Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.jobs import JobRecord


T = TaskState
HELD = (T.ACCEPTED, T.RUNNING, T.SUSPENDED, T.STOPPING)


def receive(service: Service, who: Caller, name: str, agent: str, most: int, seconds: float) -> dict[str, Any]:
    """Offer the tasks that are assigned and not accepted; wait for some if there are none.

    Who pulls (`PULLS`) is offered whole jobs, at most so many, with their jobspecs.
    """
    began = service.clock()
    result, pause, _ = look(service, who, name, agent, most, seconds)
    if pause is None:
        return result
    # an agent that finds all places taken asks again later, and keeps nobody's thread
    with one_of_few("waiting", "", *[service.settings.limits.waiting] * 2):
        while pause is not None:
            service.news.wait_for(pause)
            result, pause, _ = look(service, who, name, agent, most, seconds - (service.clock() - began))
    return result


def look(
    service: Service, who: Caller, name: str, agent: str, most: int, seconds: float
) -> tuple[dict[str, Any], Pause | None, str]:
    """Offer what there is, and say how to wait for more (at most some seconds) if that is nothing.

    Returns the answer, the pause, and the cluster's id.
    """
    since = service.news.now()
    record, serves, checks = record_agent(service, who, name, agent)
    if agent.startswith(PULLS) and not traits_of(record.policy).hands_over:
        raise Conflict(
            f"cluster {name} uses policy {record.policy}; whole jobs are handed out only under policy delegate"
        )
    topics = awaited_by(record.id, agent, serves)
    pause = service.news.pause(topics, min(seconds, service.settings.limits.wait), since)
    results = _offered(service, record, agent, serves, most)
    if checks and (questions := _questions(service, record.id)):
        results["checks"] = questions
    done = _says_something(results) or seconds <= 0 or service.ending
    return results, None if done else pause, record.id


def _offered(
    service: Service, record: ClusterRecord, agent: str, serves: Collection[str] | None, most: int
) -> dict[str, Any]:
    most, pulls = min(most, service.settings.limits.offers), agent.startswith(PULLS)
    with service.store.read() as connection:
        assigned, runs = tasks.anything(connection, record.id, agent)  # mostly neither
        offers = _offers(connection, service, record, serves, most, whole=pulls) if most > 0 and assigned else []
        answer = _orders_to(connection, record.id, agent) if runs else dict(NOTHING)
        whole = _jobs(connection, offers) if pulls else {}
    return {"tasks": offers, **answer, "lease": service.settings.lease, "grace": service.settings.grace, **whole}


NOTHING: Mapping[str, list[dict[str, Any]]] = {"stop": [], "suspend": [], "resume": [], "withdraw": []}


def _says_something(results: Mapping[str, Any]) -> bool:
    return any(results.get(key) for key in ("tasks", "checks", *NOTHING))


def _questions(service: Service, cluster_id: str) -> list[dict[str, Any]]:
    """Return the jobs about which the site is to be asked whether it would take them, as offers without a command."""
    with service.store.read() as connection:
        checks = workers.open_checks(connection, cluster_id, service.clock() - KEPT)
    plain = {"attempt": 0, "job": "", "name": "", "command": [], "placement": {}, "units": {}}
    return [{**plain, "id": check.id, **check.question} for check in checks]


def _offers(
    connection: sa.Connection,
    service: Service,
    cluster: ClusterRecord,
    serves: Collection[str] | None,
    most: int,
    *,
    whole: bool,
) -> list[dict[str, Any]]:
    assigned = tasks.assigned_to(connection, cluster.id, serves, None if whole else most)
    if whole:
        first = set(list(dict.fromkeys(task.job for task in assigned))[:most])
        assigned = [task for task in assigned if task.job in first]
    limits = limits_of(clusters.limits(connection, cluster.id)) if assigned else {}
    units = stated_units(service.entry(cluster).cluster) if assigned else {}
    same = {"units": units, "output": service.settings.limits.output}
    named = {record.id: record for record in jobs.some(connection, {task.job for task in assigned})}
    offers = [
        {**_offer(connection, task, named[task.job], cluster.worker_type, limits, units), **same} for task in assigned
    ]
    for offer, task in zip(offers, assigned, strict=True):
        if task.held and (binding := numbered(service.entry(cluster).cluster, task.held)):
            offer["binding"] = binding
    if whole or not traits_of(cluster.policy).hands_over:
        return offers
    requests = [_numbered_request(_request(connection, task), named[task.job], task) for task in assigned]
    return [{**offer, **request} for offer, request in zip(offers, requests, strict=True)]


def _numbered_request(request: dict[str, Any], record: JobRecord, task: Task) -> dict[str, Any]:
    """Write our numbers into the files of a job that is handed over: they have the same names everywhere."""
    system = request["request"]["system"]
    files = {key: _numbered(str(system[key]), record, task) for key in FILES if system.get(key)}
    return {**request, "request": {**request["request"], "system": {**system, **files}}}


def _request(connection: sa.Connection, task: Task) -> dict[str, Any]:
    request, job = reading(connection, task.job), jobs.get(connection, task.job)
    name, requestor = (job.name, job.requestor) if job else ("", "")
    return handed_over(request, task.gang, task.index, name, requestor)


def _jobs(connection: sa.Connection, offers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the jobs of these offers as they were submitted, in order."""
    results = (jobs.get(connection, job_id) for job_id in dict.fromkeys(offer["job"] for offer in offers))
    answers = [
        {"id": job.id, "name": job.name, "requestor": job.requestor, "jobspec": jobs.jobspec(connection, job.id)}
        for job in results
        if job
    ]
    return {"jobs": answers}


def _offer(
    connection: sa.Connection,
    task: Task,
    record: JobRecord,
    worker_type: str,
    limits: Mapping[str, int],
    units: Mapping[str, str],
) -> dict[str, Any]:
    query = reading(connection, task.job)
    request, spec = query.request, query.tasks[task.index].spec
    command, environment = started(request, spec, task.index)
    return {
        "id": task.id,
        "attempt": task.attempt,
        "job": task.job,
        "name": task.name,
        "command": command,
        "cwd": request.cwd,
        "submitted_from": request.submitted_from,
        "files": {key: _numbered(path, record, task) for key, path in _files(request).items()},
        "environment": environment,
        "variables": _variables(request, record, task, units),
        **_umask(request),
        "duration": may_run(request, limits),
        "processes": processes(spec, task.slots, task.placement, worker_type),
        "placement": task.placement,
    }


def _own_number(record: JobRecord, task: Task) -> int:
    return element_number(record.number, record.elements, task.index)


def _numbered(path: str, record: JobRecord, task: Task) -> str:
    return numbered_file(path, _own_number(record, task), record.number) if record.number else path


def _variables(request: Request, record: JobRecord, task: Task, units: Mapping[str, str]) -> dict[str, str]:
    """Return what the task sees of its job; a command sees its number alone."""
    own = {"RAINBOW_JOB_ID": str(_own_number(record, task))} if record.number else {}
    if not request.script and request.array is None:
        return own
    standing = Standing(
        number=_own_number(record, task),
        name=record.name,
        user=record.requestor,
        cluster=record.cluster,
        slots=task.slots,
        attempt=task.attempt,
        placement=task.placement,
        units=units,
        array=record.number,
        index=index_at(request.array, task.index) if request.array else None,
        account=record.account,
        qos=record.qos,
    )
    return {**own, **script_variables(request, standing)}


def _umask(request: Request) -> dict[str, str]:
    """Return the umask of the submit, where it is known."""
    system = request.attributes.get("system")
    said = system.get("umask") if isinstance(system, Mapping) else None
    return {"umask": str(said)} if said is not None and re.fullmatch("0?[0-7]{3}", str(said)) else {}


FILES = ("output", "error", "input")


def _files(request: Request) -> dict[str, str]:
    """Return the files that a task reads and writes, as the job names them."""
    system = request.attributes.get("system")
    options = system if isinstance(system, Mapping) else {}
    return {key: str(options[key]) for key in FILES if options.get(key)}


def _orders_to(connection: sa.Connection, cluster_id: str, agent: str) -> dict[str, list[dict[str, Any]]]:
    """Return the orders to an agent: which tasks must stop, be held, may continue, or should be given back."""
    named = tasks.orders_to(connection, cluster_id, agent)
    return {key: [_reference(task) for task in result] for key, result in named.items()}


def _reference(task: Task) -> dict[str, Any]:
    """Name a task and its attempt; of one that is preempted the signal that it gets first, and for how long."""
    how = task.preempted if task.state is T.STOPPING and task.preempted else {}
    return {"id": task.id, "attempt": task.attempt, **{key: how[key] for key in ("signal", "grace") if key in how}}


def accept(
    service: Service, who: Caller, name: str, agent: str, requirements: Sequence[Mapping[str, Any]], seq: int = 0
) -> dict[str, Any]:
    """Give assigned tasks to an agent; what it has accepted before is accepted again."""
    record, *_ = record_agent(service, who, name, agent, seq)
    accepted: list[str] = []
    refused: list[dict[str, str]] = []
    now = service.clock()
    with service.store.write() as connection:
        desk = UnitOfWork(connection, record.id, requirements, "id")
        for ref in requirements:
            reason = _accept(desk, agent, ref, now)
            if reason:
                refused.append({"id": str(ref["id"]), "reason": reason})
            else:
                accepted.append(ref["id"])
        desk.write(now)
    service.tell(record.id)
    return {"accepted": accepted, "refused": refused}


def _accept(desk: UnitOfWork, agent: str, ref: Mapping[str, Any], now: float) -> str:
    """Accept one task; return why not, or an empty text."""
    task = desk.tasks.get(ref["id"])
    if task is None or task.attempt != ref["attempt"]:
        return "no longer offered"
    if task.state in (T.ACCEPTED, T.RUNNING, T.SUSPENDED) and task.agent == agent:
        return ""
    if task.state is not T.ASSIGNED:
        return f"it is {task.state}"
    desk.put(transition(task, transitions.Accepted(agent), now))
    desk.has_accepted(task.job)
    return ""


def record_events(
    service: Service, who: Caller, name: str, agent: str, events: Sequence[Mapping[str, Any]], seq: int = 0
) -> dict[str, Any]:
    """Store what happened to tasks, in order; what is no longer the agent's is stale."""
    record, *_ = record_agent(service, who, name, agent, seq)
    recorded: list[str] = []
    stale: list[str] = []
    answers, events = _parted(events)
    if answers:
        recorded += _record_checks(service, record.id, answers)
    if not events:
        return {"recorded": recorded, "stale": stale}
    with service.store.write() as connection:
        desk = UnitOfWork(connection, record.id, events, "task")
        before = dict(desk.tasks)
        for event in events:
            (recorded if _happened(service, desk, record, agent, event) else stale).append(event["task"])
        _count_losses(desk, events, recorded, before, service.clock())
        desk.write(service.clock())
        for job_id in sorted({desk.tasks[task_id].job for task_id in recorded}):
            settle(connection, job_id, service.clock())
    service.tell(record.id)
    return {"recorded": recorded, "stale": stale}


def _parted(events: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Tell answers about jobs to come from what happened to tasks."""
    parts: tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]] = ([], [])
    for event in events:
        parts[event["event"] != "checked"].append(event)
    return parts


def _record_checks(service: Service, cluster_id: str, answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Store what a site has said of jobs to come; it may be too late."""
    now = service.clock()
    with service.store.write() as connection:
        for event in answers:
            said = {"refused": str(event.get("text") or ""), "wait": (event.get("facts") or {}).get("wait")}
            workers.answer_check(connection, cluster_id, event["task"], said, now)
    service.news.tell(checks_of(cluster_id))
    return [event["task"] for event in answers]


def _count_losses(
    desk: UnitOfWork,
    events: Sequence[Mapping[str, Any]],
    recorded: Sequence[str],
    before: Mapping[str, Task],
    now: float,
) -> None:
    """Count what was lost on which worker; where a task ends as it should, tasks are not getting lost."""
    ends = [event for event in events if event["event"] == "ended" and event["task"] in recorded]
    gone = [before[name] for name in recorded if desk.tasks[name].losses != before[name].losses]
    good = [before[event["task"]] for event in ends if event.get("result") not in ("lost", "stopped", "failed")]
    if good:
        names = {name for task in good for name in task.placement if name}
        workers.forget_losses(desk.connection, desk.cluster_id, names)
    if gone:
        count_losses(desk.connection, desk.cluster_id, gone, desk.limits, now)


def _happened(
    service: Service, desk: UnitOfWork, cluster: ClusterRecord, agent: str, event: Mapping[str, Any]
) -> bool:
    """Note one event; False if the task is not this agent's any more."""
    task = desk.tasks.get(event["task"])
    if task is None or task.attempt != event["attempt"]:
        return False
    if task.agent != agent or task.state not in HELD:
        return task.agent == agent and task.state in ENDED  # told before
    if event["event"] == "ended":
        desk.put(_ended(service, desk, task, event))
    elif event["event"] == "site":
        note_site(service, desk.connection)
        desk.put(transition(task, _TOLD["site"](event, 0), service.clock()))
    elif event["event"] == "placed":
        _placed(service.entry(cluster).cluster, desk, task, event.get("binding") or {}, service.clock())
    else:
        answer = _TOLD[event["event"]](event, service.settings.limits.output)
        desk.put(transition(task, answer, service.clock()))
    return True


_TOLD: Mapping[str, Callable[[Mapping[str, Any], int], transitions.Event]] = {
    "started": lambda event, _: transitions.Started(),
    "suspended": lambda event, _: transitions.Suspended(_detail(event)),
    "resumed": lambda event, _: transitions.Resumed(),
    "unable": lambda event, _: transitions.Unable(_detail(event)),
    "output": lambda event, most: transitions.Output(
        str(event.get("output") or "")[-most:], str(event.get("errors") or "")[-most:]
    ),
    "site": lambda event, _: transitions.AtSite(
        str(event.get("number") or ""),
        str(event.get("partition") or ""),
        str(event.get("nodes") or ""),
        _detail(event),
    ),
    "pending": lambda event, _: transitions.Pending(
        event.get("code") or "", event.get("text") or "", event.get("facts") or {}
    ),
}


def _placed(
    cluster: Cluster, desk: UnitOfWork, task: Task, options: Mapping[str, Mapping[str, str]], now: float
) -> None:
    """Book what a site gave a task; what was booked there for others, and not given to them, floats until it is."""
    held, amounts = at_numbers(cluster, options), list(task.placement.values())
    if not held or len(held) != len(task.placement) or any(each != amounts[0] for each in amounts):
        return
    for booked in tasks.of_cluster(desk.connection, desk.cluster_id, BOOKED):
        other = desk.tasks.get(booked.id, booked)
        also = [worker for worker, paths in (other.held or {}).items() if meet(paths, held.get(worker, ()))]
        if also and other.id != task.id and other.state in BOOKED:
            floats: dict[str, list[str]] = {worker: [] for worker in also}
            desk.put(replace(other, held={**(other.held or {}), **floats}))
    workers.forget_certificate(desk.connection, task.id)
    desk.put(transition(task, transitions.Placed(dict.fromkeys(held, amounts[0]), held), now))


def _detail(event: Mapping[str, Any]) -> str:
    return str(event.get("detail") or "")[: transitions.LONGEST_DETAIL]


def _ended(service: Service, desk: UnitOfWork, task: Task, event: Mapping[str, Any]) -> Task:
    now, job = service.clock(), desk.job(task.job)
    canceled = job is not None and job.canceled_at is not None
    result = str(event.get("result") or "exited")
    if result == "stopped" and not canceled and is_overdue(desk.connection, task, desk.limits, now):
        result = "timed_out"
    request = reading(desk.connection, task.job).request
    end = transitions.Ended(
        result,
        event.get("exit_code"),
        output=str(event.get("output") or "")[-service.settings.limits.output :],
        errors=str(event.get("errors") or "")[-service.settings.limits.output :],
        detail=_detail(event),
        cause=str(event.get("cause") or ""),
        canceled=canceled,
        service=bool(request.service),
        max_lost=desk.limits["max_lost"],
        once=starts_once(request),
    )
    after = transition(task, end, now)
    if job is not None and result in BY_ITSELF and (after.state in ENDED or not end.service):
        _learn(desk, job, task, end, now)
    return after


BY_ITSELF = ("exited", "failed", "timed_out")


def _learn(desk: UnitOfWork, job: JobRecord, task: Task, end: transitions.Ended, now: float) -> None:
    """Remember how long a task ran, and which workers could not start one."""
    if desk.limits["quarantine_after"] > 0:
        count_start(desk, task, started=end.result != "failed", now=now)
    if task.started_at is not None and (end.good or end.result == "timed_out"):
        key = statistics.job_key(job.cluster_id, job.requestor, job.name)
        seconds = ran_for(task, now)
        statistics.learn_duration(desk.connection, key, task.name, seconds, now)
        limit = may_run(reading(desk.connection, task.job).request, desk.limits)
        alike = Key(job.cluster_id, job.requestor, job.name, task.name, task.slots)
        desk.ran.append(Ran(alike, seconds, limit))


def heartbeat(
    service: Service,
    who: Caller,
    name: str,
    agent: str,
    up: Sequence[str] | None,
    running: Sequence[Mapping[str, Any]],
    seq: int = 0,
    load: Mapping[str, float] | None = None,
    *,
    keeps: bool = False,
    checks: bool = False,
) -> dict[str, Any]:
    """Renew an agent's lease; tell it what must stop and what is no longer its own."""
    record = beat(service, who, name, agent, up, seq, load, keeps=keeps, checks=checks)
    with service.store.read() as connection:
        known = UnitOfWork(connection, record.id, running, "id").tasks
        answer = _orders_to(connection, record.id, agent)
    stale = [ref["id"] for ref in running if not _is_held(known.get(ref["id"]), agent, ref)]
    return {**answer, "stale": stale, "lease": service.settings.lease, "grace": service.settings.grace}


def _is_held(task: Task | None, agent: str, ref: Mapping[str, Any]) -> bool:
    fresh = task is not None and task.attempt == ref["attempt"] and task.agent == agent
    return fresh and task is not None and task.state in HELD
