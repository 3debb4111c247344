"""`rainbow history`, `rainbow nodes` and `rainbow top`: the lists of sacct and sinfo, and the largest jobs now."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any

import click
from rich.console import Console

from rainbow.cli.commands.jobs import COLUMNS, LIVE, number_of
from rainbow.cli.input.job_options import point_in_time
from rainbow.cli.output import printer
from rainbow.cli.output.columns import Column, Document, Shape, clock, lasting, list_options, seconds, site_of
from rainbow.cli.session import with_tokens
from rainbow.client import Client
from rainbow.jobspec.batch import read_array
from rainbow.jobspec.hostlist import fold_hosts

# Rainbow's states in the words of sacct
STATES = {
    "UNPLACED": "PENDING",
    "WAITING": "PENDING",
    "RUNNING": "RUNNING",
    "COMPLETED": "COMPLETED",
    "FAILED": "FAILED",
    "CANCELED": "CANCELLED",
    "TIMED_OUT": "TIMEOUT",
    "ASSIGNED": "PENDING",
    "ACCEPTED": "PENDING",
    "SUSPENDED": "SUSPENDED",
    "STOPPING": "COMPLETING",
}


def _summary(job: Document) -> Document:
    result: Document = job.get("summary") or {}
    return result


def state_of(job: Document) -> str:
    """Return a job's state as sacct would call it."""
    counts = _summary(job).get("counts") or {}
    if job["state"] == "FAILED" and counts.get("TIMED_OUT") and not counts.get("FAILED"):
        return "TIMEOUT"
    return STATES.get(job["state"], str(job["state"]))


def code_of(job: Document) -> str:
    """Return the worst exit code of a job as sacct writes it: code:signal.

    >>> code_of({"summary": {"exit_code": 3}}), code_of({"summary": {"exit_code": 137}})
    ('3:0', '0:9')
    >>> code_of({"state": "FAILED", "summary": {"exit_code": None}})  # a program that could not be started has none
    '1:0'
    """
    code = _summary(job).get("exit_code") or int(job.get("state") == "FAILED" == state_of(job))
    return f"0:{code - 128}" if code > 128 else f"{code}:0"


def _when(text: str | None) -> str:
    return "Unknown" if text is None else printer.when(text, "%Y-%m-%dT%H:%M:%S")


def _workers(job: Document) -> str:
    there = (_summary(job).get("site") or {}).get("nodes")
    return fold_hosts(_summary(job).get("workers") or []) or there or "None assigned"


def _raw(job: Document) -> int:
    return int(lasting(job, time.time()) or 0)


HISTORY = [
    Column("JobID", "JOBID", lambda job: job.get("element") or number_of(job)),
    Column("JobName", "JOBNAME", lambda job: job["name"]),
    Column("User", "USER", lambda job: job["requestor"]),
    Column("Cluster", "CLUSTER", lambda job: job["cluster"]),
    Column("State", "STATE", state_of),
    Column("ExitCode", "EXITCODE", code_of),
    Column("Elapsed", "ELAPSED", lambda job: clock(float(_raw(job)))),
    Column("ElapsedRaw", "ELAPSEDRAW", _raw),
    Column("NNodes", "NNODES", lambda job: len(_summary(job).get("workers") or []) or job["nodes"]),
    Column("NTasks", "NTASKS", lambda job: sum((_summary(job).get("counts") or {}).values())),
    Column("Submit", "SUBMIT", lambda job: _when(job["submitted_at"])),
    Column("Start", "START", lambda job: _when(_summary(job).get("started_at"))),
    Column("End", "END", lambda job: _when(job["ended_at"])),
    Column("NodeList", "NODELIST", _workers),
    Column("Partition", "PARTITION", lambda job: (_summary(job).get("site") or {}).get("partition")),
    Column("Site", "SITE", lambda job: site_of(job, _summary(job).get("site"))),
    Column("Priority", "PRIORITY", lambda job: job["priority"]),
    Column("ID", "ID", lambda job: job["id"]),
    Column("Reason", "REASON", lambda job: (job.get("wait") or {}).get("reason") or "None"),
]
SHOWN = ("JobID", "JobName", "User", "Cluster", "State", "ExitCode", "Elapsed", "NNodes", "End")
SPARE = ("End", "NNodes", "User", "JobName")  # at 80 columns the first two are left out


@click.command()
@click.option("-j", "--job", "--jobs", "ids", metavar="JOB[,JOB]", help="Show only these jobs, by their ids.")
@click.option("--elements", is_flag=True, help="Show a line for every task: JOB_1, JOB_2 of an array; with --job.")
@click.option("-S", "--since", "--starttime", "since", callback=point_in_time, help="Show only jobs not ended then.")
@click.option("-E", "--until", "--endtime", "until", callback=point_in_time, help="Show jobs submitted until then.")
@click.option("-u", "--user", "--requestor", "requestor", help="Show only jobs of this user.")
@click.option("--cluster", help="Show only jobs of this cluster.")
@click.option("-s", "--state", "states", metavar="STATE[,STATE]", help="Show only these states of sacct.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Maximum number of jobs.")
@list_options(HISTORY, SHOWN, SPARE)
@with_tokens
def history(
    client: Client,
    shape: Shape,
    ids: str | None,
    elements: bool,
    since: float | None,
    until: float | None,
    states: str | None,
    limit: int,
    **chosen: str | None,
) -> None:
    """List jobs that have ended and those that have not, the newest first, with the columns of sacct.

    An array is one line; --elements lists its elements. A terminal of less than
    110 columns shows fewer of them; --format names those you want.
    """
    if elements and not ids:
        raise click.UsageError("--elements needs --job")
    if ids:
        shown = [client.job(one) for one in ids.split(",") if one]
        rows = [row for job in shown for row in (_elements(job) if elements else [_summed(job)])]
    else:
        requirements = _wanted(states or "")
        every = client.all_jobs(cluster=chosen["cluster"], requestor=chosen["requestor"], summary=True)
        results = (
            job for job in every if _within(job, since, until) and (not requirements or state_of(job) in requirements)
        )
        rows = list(islice(results, limit))
    shape.write(rows)


def _wanted(states: str) -> set[str]:
    """Read states, of sacct or of ours, as sacct's."""
    words = {word.strip().upper() for word in states.split(",") if word.strip()}
    known = {**STATES, **{state: state for state in STATES.values()}}
    if wrong := sorted(words - known.keys()):
        raise click.UsageError(f"unknown state {wrong[0][:40]}; states: {', '.join(sorted(set(STATES.values())))}")
    return {known[word] for word in words}


def _within(job: Document, since: float | None, until: float | None) -> bool:
    ended, submitted = seconds(job["ended_at"]), seconds(job["submitted_at"]) or 0.0
    return (since is None or ended is None or ended >= since) and (until is None or submitted <= until)


def _summed(job: Document) -> dict[str, Any]:
    """Return a job that is shown whole as the list has it."""
    tasks, counts = job["tasks"], dict[str, int]()
    for task in tasks:
        counts[task["state"]] = counts.get(task["state"], 0) + 1
    started = min((task["started_at"] for task in tasks if task["started_at"]), default=None)
    ended = [task for task in tasks if task["exit_code"] is not None]
    failed = [task for task in ended if task["state"] == "FAILED"]  # before what was stopped
    code = max((task["exit_code"] for task in failed or ended), default=None)
    workers = list(dict.fromkeys(name for task in tasks for name in task["placement"] if name))
    paused = min((task["paused"] for task in tasks), default=0.0)
    summary = {"counts": counts, "started_at": started, "exit_code": code, "workers": workers, "paused": paused}
    return {
        **{key: value for key, value in job.items() if key not in ("tasks", "units", "array")},
        "summary": summary,
    }


def _elements(job: Document) -> Iterator[dict[str, Any]]:
    """Yield a row for every task of a job."""
    ids = list(read_array(job["array"], "").ids) if "array" in job else None
    for task in job["tasks"]:
        row = {**_summed({**job, "tasks": [task]}), "state": task["state"], "ended_at": task["ended_at"]}
        index = ids[task["index"]] if ids else task["index"]
        named = {"id": f"{job['id']}_{index}", "element": f"{number_of(job)}_{index}"}
        yield {**row, **named, "name": task["name"]}


# ── nodes ──


def _of(kind: str) -> Any:
    def value(row: Document) -> str:
        total = row["total"].get(kind, 0)
        if not total:
            return "-"
        free, whole = ({kind: row[which].get(kind, 0)} for which in ("free", "total"))
        words = [printer.amounts(each, row.get("units") or {}).get(kind, 0) for each in (free, whole)]
        return f"{words[0]}/{words[1]}"

    return value


NODES = [
    Column("Cluster", "CLUSTER", lambda row: row["cluster"]),
    Column("State", "STATE", lambda row: row["state"]),
    Column("Nodes", "NODES", lambda row: row["nodes"]),
    Column("Cores", "CORES FREE/ALL", _of("core")),
    Column("Memory", "MEMORY FREE/ALL", _of("memory")),
    Column("GPUs", "GPUS FREE/ALL", _of("gpu")),
    Column("NodeList", "NODELIST", lambda row: row["names"]),
]


@click.command()
@click.option("--cluster", "clusters", multiple=True, help="Consider only this cluster. Repeatable.")
@click.option("-t", "--state", help="Only nodes in this state: idle, mixed, allocated, drained or lost")
@list_options(NODES, [column.name for column in NODES])
@with_tokens
def nodes(client: Client, shape: Shape, clusters: tuple[str, ...], state: str | None) -> None:
    """List the nodes of your clusters by state: how many, and what is free of them.

    idle: nothing is taken; mixed: some; allocated: no core is free. Nodes that take nothing now have nothing free.
    """
    rows = [
        row
        for row in client.nodes()
        if (not clusters or row["cluster"] in clusters) and (not state or row["state"] == state.lower())
    ]
    shape.write(rows)


# ── top ──

TOP = [
    *(column for column in NODES if column.name == "Cluster"),
    Column("Nodes", "NODES", lambda row: row["nodes"]),
    *(column for column in NODES if column.name in ("Cores", "Memory", "GPUs")),
    Column("Running", "RUNNING", lambda row: row["running"]),
    Column("Waiting", "WAITING", lambda row: row["waiting"]),
]
BUSY = ("JobID", "Name", "Cluster", "User", "State", "Elapsed", "Nodes", "Reason")


@click.command()
@click.option(
    "-d", "--delay", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds between looks."
)
@click.option("-n", "--count", type=click.IntRange(1), help="Number of looks; on a terminal without end, else 1.")
@click.option("-u", "--user", "--requestor", "requestor", help="Show only jobs of this user.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number of jobs.")
@with_tokens
def top(client: Client, delay: float, count: int | None, requestor: str | None, limit: int) -> None:
    """Show what is free of each cluster and the jobs that take most of them, again and again."""
    console = printer.console()
    looks = count or (None if console.is_terminal else 1)
    for number in range(looks) if looks else repeat(1):
        if number:
            time.sleep(delay)
        jobs = list(client.all_jobs(state=",".join(sorted(LIVE)), requestor=requestor, summary=True))
        if console.is_terminal:
            console.clear()
        _draw(console, TOP, _clusters(client.nodes(), jobs))
        console.print()
        by_name = {column.name: column for column in COLUMNS}
        _draw(console, [by_name[name] for name in BUSY], sorted(jobs, key=_taken, reverse=True)[:limit])


def _draw(console: Console, columns: Sequence[Column], rows: Sequence[Document]) -> None:
    cells = [[column.value(row) for column in columns] for row in rows]
    console.print(printer.table([column.title for column in columns], cells))


def _taken(job: Document) -> tuple[bool, int, float]:
    workers = _summary(job).get("workers") or []
    return job["state"] == "RUNNING", len(workers), lasting(job, time.time()) or 0.0


def _clusters(nodes: Iterable[Document], jobs: Sequence[Document]) -> list[dict[str, Any]]:
    """Add up the nodes of each cluster, whatever their state, and count its jobs."""
    results: dict[str, dict[str, Any]] = {}
    for row in nodes:
        one = results.setdefault(row["cluster"], {"cluster": row["cluster"], "nodes": 0, "free": {}, "total": {}})
        one["nodes"] += row["nodes"]
        one["units"] = row.get("units")
        for which in ("free", "total"):
            for kind, amount in row[which].items():
                one[which][kind] = one[which].get(kind, 0) + amount
    for one in results.values():
        states = [job["state"] for job in jobs if job["cluster"] == one["cluster"]]
        one |= {"running": states.count("RUNNING"), "waiting": len(states) - states.count("RUNNING")}
    return list(results.values())
