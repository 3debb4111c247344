"""Stored jobs as the rows of Slurm's commands: chosen by the store, each with its tasks."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from rainbow.jobspec.batch import index_at
from rainbow.jobspec.handover import least
from rainbow.jobspec.hostlist import expand_hosts
from rainbow.jobspec.request import SLOT, Request
from rainbow.jobspec.script_variables import MIB, numbered_file
from rainbow.service.clusters import inventory
from rainbow.service.jobs.jobspecs import reading_of
from rainbow.service.jobs.lifecycle import may_run, sees
from rainbow.service.scheduler.reasons import reasons_of
from rainbow.slurm.job_rows import JobRow, NodeRow, code_and_signal, end_reason, state_of, wait_reason, whole_state
from rainbow.state_machine import Task, ran_for
from rainbow.store import jobs, tasks
from rainbow.store.jobs import PENDING, JobRecord
from rainbow.store.names.numbers import element_number
from rainbow.text import natural

if TYPE_CHECKING:
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service

MOST_JOBS = 10_000  # in one answer
MOST_NODES = 10_000
_COLUMNS = jobs.SEEN.selected_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Which jobs are wanted. `ids` None: of any; `ended_since`, `until`: not ended before, submitted until then."""

    ids: Collection[str] | None = None
    names: Collection[str] = ()
    users: Collection[str] = ()
    accounts: Collection[str] = ()
    clusters: Collection[str] = ()
    ended_since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks: the login that a command says, with its numbers on that machine."""

    user: str
    uid: int
    gid: int


def job_rows(service: Service, who: Caller, requirement: RowFilter, viewer: Viewer) -> list[JobRow]:
    """Return the rows of the jobs that are wanted and exist for a caller, the oldest first: one for each element."""
    with service.store.read() as connection:
        records = [one for one in _records(connection, requirement) if sees(connection, who, one)]
        by_job = _tasks(connection, [record.id for record in records])
        requests = {record.id: reading_of(connection, record).request for record in records}
    waiting = [one for one in records if one.state in PENDING and not _all_started(by_job.get(one.id, ()))]
    reasons = reasons_of(service, waiting) if waiting else {}
    now = service.clock()
    result = list[JobRow]()
    for record in sorted(records, key=lambda one: one.id):
        code = str((reasons.get(record.id) or {}).get("reason", ""))
        result += _rows_of(record, requests[record.id], by_job.get(record.id, []), code, viewer, now)
    return result


def _all_started(own: Sequence[Task]) -> bool:
    return bool(own) and all(task.started_at is not None for task in own)


def _records(connection: sa.Connection, requirement: RowFilter) -> list[JobRecord]:
    query = jobs.SEEN
    if requirement.ids is not None:
        return jobs.some(connection, requirement.ids)
    for column, values in (
        ("name", requirement.names),
        ("requestor", requirement.users),
        ("account", requirement.accounts),
    ):
        query = query.where(_COLUMNS[column].in_(values)) if values else query
    if requirement.clusters:
        query = query.where(_COLUMNS["cluster"].in_(requirement.clusters))
    if requirement.until is not None:
        query = query.where(_COLUMNS["submitted_at"] <= requirement.until)
    parts = [query]
    if requirement.ended_since is not None:  # each by an index of its own
        parts = [
            query.where(_COLUMNS["state"].in_(PENDING)),
            query.where(_COLUMNS["ended_at"] >= requirement.ended_since),
        ]
    result = dict[str, JobRecord]()
    for part in parts:
        rows = connection.execute(part.order_by(_COLUMNS["id"].desc()).limit(MOST_JOBS))
        result |= {row.id: jobs.record_of(row) for row in rows}
    return list(result.values())


def _tasks(connection: sa.Connection, job_ids: Sequence[str]) -> dict[str, list[Task]]:
    result: dict[str, list[Task]] = {}
    for task in tasks.of_job(connection, *job_ids):
        result.setdefault(task.job, []).append(task)
    return result


def _rows_of(
    record: JobRecord, request: Request, own: Sequence[Task], code: str, viewer: Viewer, now: float
) -> Iterator[JobRow]:
    common = _common(record, request, viewer)
    if request.array is None or not record.elements:
        yield _whole(record, request, own, code, common, now)
        return
    by_place = {task.index: task for task in own}
    for place in range(record.elements):
        task = by_place.get(place)
        one = {**common, "index": index_at(request.array, place), "at_once": request.array.at_once, "place": place}
        one["number"] = element_number(record.number, record.elements, place)
        one |= _files(request, record, one["number"], str(one["index"]), one["folder"])
        if task is None:  # no cluster has it yet, or ever had
            state = "CANCELLED" if record.ended_at is not None else "PENDING"
            reason = wait_reason(code, held=record.is_halted) if state == "PENDING" else "None"
            yield JobRow(**one, state=state, reason=reason, end=record.ended_at)
        else:
            yield JobRow(**{**one, **_of_tasks([task], state_of(task.state, task.cause), record, code, now)})


def _whole(
    record: JobRecord, request: Request, own: Sequence[Task], code: str, common: Mapping[str, Any], now: float
) -> JobRow:
    """Return the row of a job that is no array, of all its tasks."""
    states = [state_of(task.state, task.cause) for task in own]
    ended = record.state not in PENDING
    alone = "CANCELLED" if ended else "PENDING"  # no cluster has it yet, or ever had
    state = whole_state(states, None if ended else "unended") if states else alone
    results = _of_tasks(own, state, record, code, now)
    files = _files(request, record, record.number, "", common["folder"])
    return JobRow(**{**common, "number": record.number, **files, **results, "end": record.ended_at})


def _of_tasks(own: Sequence[Task], state: str, record: JobRecord, code: str, now: float) -> dict[str, Any]:
    """Return what tasks say of a row: its state, code, times and place."""
    begun = min((task.started_at for task in own if task.started_at is not None), default=None)
    over = [task.ended_at for task in own if task.ended_at is not None]
    codes = [task.exit_code for task in own if task.exit_code]
    exit_code, signal = code_and_signal(max(codes, default=0), state)
    nodes = sorted({node for task in own for node in _nodes(task)} if begun is not None else (), key=natural)
    cores = sum(int(held.get("core", 0)) for task in own for held in task.placement.values())
    gpus = sum(int(held.get("gpu", 0)) for task in own for held in task.placement.values())
    if state == "PENDING":
        site = next((str(task.pending["code"]) for task in own if task.pending and task.pending.get("code")), "")
        reason = site if site.isalnum() else wait_reason(code, held=record.is_halted)
    else:
        reason = end_reason(state, begun=begun is not None or bool(codes))
    results: dict[str, Any] = {
        "state": state,
        "reason": reason,
        "code": exit_code,
        "signal": signal,
        "start": begun,
        "end": max(over) if over and len(over) == len(own) else None,
        "run": max((ran_for(task, task.ended_at or now) for task in own if task.started_at is not None), default=0.0),
        "nodes": nodes,
        "restarts": max(0, *(task.attempt - 1 for task in own)) if own else 0,
    }
    results |= {"node_count": len(nodes)} if nodes else {}
    results |= {"cores": cores} if cores and begun is not None else {}
    partition = next((str(task.site["partition"]) for task in own if task.site and task.site.get("partition")), "")
    results |= {"partition": partition} if partition else {}
    return results | ({"gpus": gpus} if gpus else {})


def _nodes(task: Task) -> list[str]:
    placed = [name for name in task.placement if name]
    if placed or not task.site or not task.site.get("nodes"):
        return placed
    return expand_hosts(str(task.site["nodes"]), MOST_NODES) or []


def _common(record: JobRecord, request: Request, viewer: Viewer) -> dict[str, Any]:
    """Return what a job asks for, and whose it is."""
    system = request.attributes.get("system")
    system = system if isinstance(system, Mapping) else {}
    site = request.attributes.get("site")
    slurm = (site.get("slurm") if isinstance(site, Mapping) else None) or {}
    own = record.requestor == viewer.user
    folder, trees = request.cwd or request.submitted_from or "/", request.resources
    elements = max(1, record.elements)
    tasks_ = max(1, least(trees, SLOT))
    begin = next((float(one.value) for one in request.dependencies if one.scheme == "begin-time"), None)
    return {
        "number": record.number,
        "array": record.number,
        "job": record.id,
        "name": record.name,
        "user": record.requestor,
        "uid": viewer.uid if own else _uid_of(record.requestor),
        "gid": viewer.gid if own else _uid_of(record.requestor),
        "account": record.account or str(slurm.get("account") or ""),
        "qos": record.qos or str(slurm.get("qos") or ""),
        "cluster": record.cluster,
        "partition": str(slurm.get("partition") or "") or record.cluster or "(null)",
        "node_count": max(1, record.nodes // elements),
        "cores": max(1, least(trees, "core")),
        "tasks": tasks_,
        "memory": least(trees, "memory") // MIB if least(trees, "memory") >= MIB else 0,
        "gpus": least(trees, "gpu"),
        "submit": record.submitted_at,
        "begin": begin,
        "limit": may_run(request, {"task_minutes": 0}),
        "priority": record.priority,
        "comment": str(system.get("comment") or ""),
        "folder": folder,
        "command": posixpath.join(folder, request.tasks[0].command[0]) if request.script else _first_word(request),
        "dependency": ",".join(
            f"{one.scheme}:{one.value}(unfulfilled)" for one in request.dependencies if one.scheme.startswith("after")
        ),
        "requeue": bool(system.get("requeue")),
    }


def _first_word(request: Request) -> str:
    return request.tasks[0].command[0] if request.tasks and request.tasks[0].command else ""


def _uid_of(user: str) -> int:
    """Return the number of a user, as this machine knows it; 0 where it does not."""
    import pwd

    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return 0


def _files(request: Request, record: JobRecord, number: int, index: str, folder: str) -> dict[str, str]:
    """Return where a job reads and writes."""
    system = request.attributes.get("system")
    system = system if isinstance(system, Mapping) else {}
    result = {}
    for name in ("output", "error", "input"):
        if system.get(name):
            path = numbered_file(str(system[name]), number, record.number)
            path = (
                path.replace("%a", index or "4294967294").replace("%x", record.name).replace("%u", record.requestor)
            )
            result[name] = posixpath.join(folder, path)
    return result


_WORDS = {"allocated": "allocated", "mixed": "mixed", "idle": "idle", "maintenance": "maint", "reserved": "resv"}


def node_rows(service: Service, who: Caller) -> list[NodeRow]:
    """Return the nodes of the caller's clusters by state."""
    result = []
    for row in inventory.nodes(service, who):
        total, free, many = row["total"], row["free"], max(1, row["nodes"])
        state = _WORDS.get(row["state"], "drained" if "drain" in row["state"] else "down")
        memory = int(total.get("memory", 0)) // many
        memory = memory // MIB if row.get("units", {}).get("memory") == "B" else memory
        result.append(
            NodeRow(
                partition=row["cluster"],
                state=state,
                names=expand_hosts(row["names"], MOST_NODES) or [],
                total=int(total.get("core", 0)),
                free=int(free.get("core", 0)),
                memory=memory,
                gpus=int(total.get("gpu", 0)) // many,
                up=state not in ("down", "drained"),
            )
        )
    return result
