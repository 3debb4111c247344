"""`rainbow receive` and `rainbow report`: for clusters that take whole jobs when they please (policy delegate)."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from rainbow.cli.input.files import FILE, text_of
from rainbow.cli.output import printer
from rainbow.cli.session import with_secret
from rainbow.client import Client, responses
from rainbow.errors import Conflict
from rainbow.state_machine import job_of

PULLS = "pull:"  # how the server knows who pulls
LIVE = frozenset({"ACCEPTED", "RUNNING", "SUSPENDED", "STOPPING"})
TAIL = 4096  # characters of output that are reported


@click.command()
@click.option("--cluster", required=True, help="Cluster to receive jobs for; its policy must be delegate.")
@click.option("-n", "--max-jobs", type=click.IntRange(1, 1_000), default=10, show_default=True)
@click.option("--wait", type=click.FloatRange(0, 30), default=0.0, help="Wait up to this many seconds for a job.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write each job to DIR/ID.json before accepting it.",
)
@click.option("--no-accept", is_flag=True, help="Show the jobs on offer without accepting them.")
@click.option(
    "--as",
    "called",
    default=socket.gethostname,
    help="Name of the receiver. Default: the host name. Run one receiver per name.",
)
@printer.output_option
@with_secret
def receive(
    client: Client,
    cluster: str,
    max_jobs: int,
    wait: float,
    out: Path | None,
    no_accept: bool,
    called: str,
    output: str,
) -> None:
    """Receive whole jobs for a cluster with its own scheduler (policy delegate), and accept them.

    With --out a job is in its file before it is accepted: whatever happens, it is neither lost nor taken twice.
    `rainbow report` says how a job ended.
    """
    received = client.receive(cluster, PULLS + called, max=max_jobs, wait=wait)
    results = _whole(received)
    if out:
        for job in results:
            _write(out, job)
    if results and not no_accept:
        results = _accepted(client, cluster, PULLS + called, received, results, out)
    for job_id in sorted({job_of(stop["id"]) for stop in received["stop"]}):
        click.echo(f"job {job_id} was canceled; stop it, then run `rainbow report --stopped {job_id}`", err=True)
    rows = [(job["id"], job["name"], job["requestor"], len(job["tasks"])) for job in results]
    titles = ["JOB", "NAME", "USER", "TASKS"]
    printer.show(output, results, printer.table(titles, rows))


def _whole(received: responses.Received) -> list[dict[str, Any]]:
    return [
        {**job, "tasks": [task for task in received["tasks"] if task["job"] == job["id"]]}
        for job in received.get("jobs", [])
    ]


def _accepted(
    client: Client,
    cluster: str,
    agent: str,
    received: responses.Received,
    results: Sequence[dict[str, Any]],
    out: Path | None,
) -> list[dict[str, Any]]:
    """Accept every task; return the jobs of which any was accepted. Refused tasks are ignored."""
    references: list[responses.RunRef] = [
        {"id": task["id"], "attempt": task["attempt"]} for task in received["tasks"]
    ]
    answer = client.accept(cluster, agent, references)
    for refusal in answer["refused"]:
        click.echo(f"task {refusal['id']} was not accepted: {refusal['reason']}", err=True)
    accepted = set(answer["accepted"])
    stored = []
    for job in results:
        job["tasks"] = [task for task in job["tasks"] if task["id"] in accepted]
        if job["tasks"]:
            stored.append(job)
        elif out:
            (out / f"{job['id']}.json").unlink(missing_ok=True)
    return stored


def _write(folder: Path, job: Mapping[str, Any]) -> None:
    """Write a job's file, whole and on the disk before this returns."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{job['id']}.draft"
    with draft.open("w", encoding="utf-8") as file:
        json.dump(job, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / f"{job['id']}.json")


@click.command()
@click.argument("job")
@click.option("--cluster", required=True, help="Cluster the job was received from.")
@click.option("--started", is_flag=True, help="The job has started.")
@click.option("--exit-code", type=click.IntRange(0, 255), help="The job exited with this code.")
@click.option("--failed", metavar="WHY", help="The job could not be started.")
@click.option("--stopped", is_flag=True, help="The job was stopped. Unless it was canceled, it returns to the queue.")
@click.option("--written", type=FILE, help="File with the job's output; the end of it is kept.")
@with_secret
def report(
    client: Client,
    job: str,
    cluster: str,
    started: bool,
    exit_code: int | None,
    failed: str | None,
    stopped: bool,
    written: Path | None,
) -> None:
    """Report that a received job has started or ended."""
    chosen = [started, exit_code is not None, failed is not None, stopped]
    if sum(chosen) != 1:
        raise click.UsageError("exactly one of --started, --exit-code, --failed and --stopped is required")
    tasks = [task for task in client.job(job)["tasks"] if task["agent"].startswith(PULLS) and task["state"] in LIVE]
    if not tasks:
        raise Conflict(f"no active task of job {job} was received with `rainbow receive`")
    event = _event(started, exit_code, failed)
    if written:
        event["output"] = text_of(written)[-TAIL:]
    for agent in sorted({task["agent"] for task in tasks}):
        theirs = [task for task in tasks if task["agent"] == agent]
        events: Any = [{"task": task["id"], "attempt": task["attempt"], **event} for task in theirs]
        client.events(cluster, agent, events)
    click.echo(f"job {job}: {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'} reported")


def _event(started: bool, exit_code: int | None, failed: str | None) -> dict[str, Any]:
    if started:
        return {"event": "started"}
    if exit_code is not None:
        return {"event": "ended", "result": "exited", "exit_code": exit_code}
    if failed is not None:
        return {"event": "ended", "result": "failed", "detail": failed}
    return {"event": "ended", "result": "stopped"}
