"""`rainbow job logs`, `rainbow run` and `rainbow attach`: what tasks write, and a job followed to its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from rainbow.cli.commands.jobs import WAITS, exit_code_of, job, number_of
from rainbow.cli.commands.submit import job_and_cluster_options, ready, refusals_shown, tell
from rainbow.cli.input.job_options import JobCommand, JobSource
from rainbow.cli.output import printer
from rainbow.cli.session import first_time, login, with_tokens
from rainbow.client import Client
from rainbow.errors import NotFound
from rainbow.jobspec.batch import read_array

Document = Mapping[str, Any]
NOT_APART = "no standard error apart: name a file for it (-e FILE) to have it apart; else it is in the output"
CUT = "... some output left out"


@job.command()
@click.argument("job_id")
@click.option(
    "-f", "--follow", is_flag=True, help="Continue until the job has ended, with --task until that task has."
)
@click.option("--task", metavar="K|NAME", help="Only this task, by number (of an array: its id) or name.")
@click.option("--err", is_flag=True, help="Standard error, where the job names a file for it (-e).")
@with_tokens
def logs(client: Client, job_id: str, follow: bool, task: str | None, err: bool) -> None:
    """Print what a job's tasks have written: the end of it, as much as the cluster's agent and the server keep."""
    writer, result = Writer(task, "errors" if err else "output"), dict[str, Any]()
    for result in client.follow(job_id) if follow else [client.job(job_id)]:
        writer.write(result)
        if task is not None and all(one["ended_at"] for one in writer.chosen(result)):
            break
    if err and not any(one["errors"] for one in result.get("tasks", ())):
        tell([NOT_APART])


class Writer:
    """Writes what is new of the tasks' output, or errors; where there are several tasks, under their names."""

    def __init__(self, task: str | None = None, stream: str = "output") -> None:
        self._task = task
        self._stream = stream
        self._written: dict[int, str] = {}
        self._last: int | None = None

    def write(self, document: Document) -> None:
        """Write what this state of the job adds."""
        chosen = self.chosen(document)
        for one in chosen:
            if more := newer(self._written.get(one["index"], ""), one[self._stream]):
                self._name(one, several=len(document["tasks"]) > 1 and self._task is None)
                click.echo(printer.clean(more), nl=False)
                self._written[one["index"]] = one[self._stream]

    def chosen(self, document: Document) -> list[Document]:
        """Return the tasks whose output is written."""
        tasks: list[Document] = document["tasks"]
        if self._task is None:
            return tasks
        ids = list(read_array(document["array"], "").ids) if "array" in document else range(len(tasks))
        chosen = [one for one in tasks if self._task in (str(ids[one["index"]]), one["name"])]
        if not chosen and tasks:
            named = document.get("array") or ", ".join(one["name"] for one in tasks[:5])
            raise NotFound(f"the job has no task {self._task}; there are {len(tasks)}: {named}")
        return chosen

    def _name(self, one: Document, *, several: bool) -> None:
        if several and self._last != one["index"]:
            before = self._written.get(self._last, "") if self._last is not None else ""
            click.echo(("" if before.endswith("\n") or not before else "\n") + f"── {printer.clean(one['name'])}")
        self._last = one["index"]


def newer(before: str, now: str) -> str:
    r"""Return what has been written since, of a text that keeps the end only.

    >>> newer("a\nb\n", "a\nb\nc\n"), newer("a\nb\n", "b\nc\n"), newer("a\n", "c\n"), newer("a\n", "a\n")
    ('c\n', 'c\n', '... some output left out\nc\n', '')
    """
    if now.startswith(before):
        return now[len(before) :]
    for start in _line_starts(before):
        if now.startswith(before[start:]):
            return now[len(before) - start :]
    return f"{CUT}\n{now}"


def _line_starts(text: str) -> Iterator[int]:
    at = text.find("\n") + 1
    while 0 < at < len(text):
        yield at
        at = text.find("\n", at) + 1


@click.command(cls=JobCommand)
@job_and_cluster_options
@click.option("-J", "--name", "--job-name", "name", help="Name of the job.")
@click.option(
    "--user",
    "--requestor",
    "requestor",
    help="User the job is for; your login by default, where the token allows it.",
)
@click.option("--queue", is_flag=True, help="Wait for a cluster where some match and none takes the job now.")
@with_tokens
def run(
    client: Client,
    given: JobSource,
    clusters: tuple[str, ...],
    selector: dict[str, Any] | None,
    backend: str | None,
    name: str | None,
    requestor: str | None,
    queue: bool,
) -> None:
    """Submit one job, print what it writes, and exit with its exit code, as srun does: rainbow run -n 4 -- ./a.out.

    ^C cancels the job. Without an exit code of its own (it was canceled, or never began) the exit is 7.
    """
    jobspec = ready(client, given.jobspec())
    tell([*given.notes, *(words for what, words in given.news.items() if first_time(what))])
    among = [{"name": one} for one in clusters] or None
    with refusals_shown("table", given.files):
        made = client.submit(
            *(jobspec, name, requestor, selector, among),
            queue=queue or None,
            backend=backend,
            login=None if requestor else login(),
        )
    tell(
        [
            f"submitted job {number_of(made)}"
            + (f" to cluster {made['cluster']}" if made["cluster"] else ", which waits for a cluster")
        ]
    )
    try:
        ended = _to_its_end(client, made["id"])
    except KeyboardInterrupt:
        client.cancel(made["id"])
        tell([f"job {number_of(made)} canceled"])
        raise
    _exit_as(ended)


def _exit_as(ended: Document) -> None:
    """Exit with a job's exit code, and say how it ended if that was not as it should."""
    if ended["state"] != "COMPLETED":
        tell(
            [
                f"job {number_of(ended)} is {ended['state']}",
                *(one["detail"] for one in ended["tasks"] if one["detail"]),
            ]
        )
    click.get_current_context().exit(exit_code_of(ended))


@click.command()
@click.argument("job_id")
@with_tokens
def attach(client: Client, job_id: str) -> None:
    """Follow a job that waits or runs as `rainbow run` does: print what it writes and exit with its exit code.

    ^C leaves the job as it is.
    """
    _exit_as(_to_its_end(client, job_id))


def _to_its_end(client: Client, job_id: str) -> dict[str, Any]:
    """Print what a job writes and, whenever that changes, why it waits; return it when it has ended."""
    writer, said, result = Writer(), "", dict[str, Any]()
    for result in client.follow(job_id):
        why = str((result.get("wait") or {}).get("text") or "") if result["state"] in WAITS else said
        if why and why != said:
            tell([why])
        said = why or said
        writer.write(result)
    return result
