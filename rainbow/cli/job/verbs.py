"""`rainbow job cancel|suspend|resume|hold|release|requeue`, of one job, several or many; `rainbow job update`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from rainbow.cli.commands.jobs import job, number_of
from rainbow.cli.commands.logs import logs
from rainbow.cli.exit_codes import Exit
from rainbow.cli.output import printer
from rainbow.cli.output.columns import clock
from rainbow.cli.session import with_tokens
from rainbow.jobspec.times import seconds_of
from rainbow.text import some

if TYPE_CHECKING:
    from rainbow.client import Client

Document = Mapping[str, Any]
__all__ = ["job", "logs"]  # the group with all its commands
# of a verb: what is done, in the past, and its help
VERBS = {
    "cancel": ("canceled", "Cancel jobs: stop running tasks and remove waiting tasks from the queue."),
    "suspend": (
        "suspended",
        "Suspend jobs: pause running tasks, which keep their resources; start no waiting tasks.",
    ),
    "resume": ("resumed", "Resume suspended jobs."),
    "hold": ("held", "Hold jobs: start no waiting tasks; running tasks continue."),
    "release": ("released", "Release held jobs: let them start."),
    "requeue": ("requeued", "Requeue jobs: stop running tasks, which wait to start again."),
}
CODES = {"not-found": Exit.NOT_FOUND, "forbidden": Exit.NOT_ALLOWED}
MOST_SHOWN = 20  # refused jobs that are named


def _changing(verb: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make the command of a verb, with its jobs and filters."""
    text = VERBS[verb][1]
    options = [
        click.argument("jobs", nargs=-1, metavar="JOB..."),
        click.option("-u", "--user", help="Jobs of this user; with other filters your own by default."),
        click.option("-n", "--name", "names", multiple=True, metavar="GLOB", help="Jobs of this name. Repeatable."),
        click.option("--state", "states", multiple=True, help="Jobs in this state. Repeatable."),
        click.option("--cluster", "clusters", multiple=True, help="Jobs at this cluster. Repeatable."),
        click.option("--account", "accounts", multiple=True, help="Jobs of this account. Repeatable."),
        click.option("--older-than", metavar="TIME", help="Jobs submitted longer ago, as 2h or 1-0."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask before jobs chosen by filters are changed."),
        click.option("--dry-run", is_flag=True, help="List the jobs, and change none."),
        click.option("-q", "--quiet", is_flag=True, help="Print nothing where all is done."),
        printer.output_option,
    ]

    def decorate(run: Callable[..., Any]) -> click.Command:
        command: Any = with_tokens(run)
        for option in reversed(options):
            command = option(command)
        return job.command(name=verb, help=text)(command)

    return decorate


def _run(
    client: Client,
    verb: str,
    jobs: Sequence[str],
    older_than: str | None,
    yes: bool,
    dry_run: bool,
    quiet: bool,
    output: str,
    **filters: Any,
) -> None:
    where = _where(older_than, **filters)
    if bool(jobs) is bool(where):
        raise click.UsageError("name JOBs, or choose them by filters; not both, and not neither")
    if len(jobs) == 1 and not dry_run:
        result = getattr(client, verb)(jobs[0])
        line = f"{VERBS[verb][0]} job {number_of(result)} ({printer.clean(result['name'])})"
        _say(quiet, output, result, line)
        return
    if dry_run or (where and not yes):
        answer = client.change_many(verb, jobs or None, where=where or None, dry_run=True)
        chosen = answer.get("jobs", [])
        if dry_run:
            printer.show(output, chosen, lambda console: console.print(_listed(chosen)))
            click.get_current_context().exit(_refused(answer))
        if chosen:
            who = ", ".join(sorted({row["requestor"] for row in chosen}))
            question = f"{verb.capitalize()} {some(len(chosen), 'job')} of {printer.clean(who)}?"
            click.confirm(question, abort=True, err=True)
    answer = client.change_many(verb, jobs or None, where=where or None)
    _say(quiet, output, answer, f"{VERBS[verb][0]} {some(answer['done'], 'job')}")
    click.get_current_context().exit(_refused(answer))


def _say(quiet: bool, output: str, value: Any, line: str) -> None:
    if not quiet or output not in printer.DRAWN:
        printer.show(output, value, lambda console: console.print(line, markup=False, soft_wrap=True))


def _where(older_than: str | None, **filters: Any) -> dict[str, Any]:
    """Return the filters that are given, as the server reads them."""
    named = {"user": filters["user"], "name": [*filters["names"]], "state": [*filters["states"]]}
    named |= {"cluster": [*filters["clusters"]], "account": [*filters["accounts"]]}
    where = {key: value for key, value in named.items() if value}
    if older_than is not None:
        seconds = seconds_of(older_than, plain=60)
        if seconds is None:
            raise click.BadParameter(
                f"{older_than[:40]!r} is no duration: give 90s, 10m, 2h or 1-0", param_hint="--older-than"
            )
        where["until"] = datetime.fromtimestamp(datetime.now(UTC).timestamp() - seconds, UTC).isoformat()
    return where


def _listed(rows: Sequence[Document]) -> Any:
    cells = [[row["number"], row["name"], row["state"], row["cluster"], row["requestor"]] for row in rows]
    return printer.table(["JOB", "NAME", "STATE", "CLUSTER", "USER"], cells)


def _refused(document: Document) -> Exit:
    """Say which jobs were refused, and return the exit code: that of the first of them."""
    for row in document["refused"][:MOST_SHOWN]:
        click.echo(f"rainbow: {printer.one_line(row['text'])}", err=True)
    if (more := len(document["refused"]) - MOST_SHOWN) > 0:
        click.echo(f"rainbow: and {some(more, 'more job')}", err=True)
    return CODES.get(document["refused"][0]["code"], Exit.CONFLICT) if document["refused"] else Exit.OK


@_changing("cancel")
def cancel(client: Client, **options: Any) -> None:
    """Cancel jobs."""
    _run(client, "cancel", **options)


@_changing("suspend")
def suspend(client: Client, **options: Any) -> None:
    """Suspend jobs."""
    _run(client, "suspend", **options)


@_changing("resume")
def resume(client: Client, **options: Any) -> None:
    """Resume jobs."""
    _run(client, "resume", **options)


@_changing("hold")
def hold(client: Client, **options: Any) -> None:
    """Hold jobs."""
    _run(client, "hold", **options)


@_changing("release")
def release(client: Client, **options: Any) -> None:
    """Release jobs."""
    _run(client, "release", **options)


@_changing("requeue")
def requeue(client: Client, **options: Any) -> None:
    """Requeue jobs."""
    _run(client, "requeue", **options)


@job.command()
@click.argument("job_id")
@click.option(
    "-t", "--time", "limit", metavar="TIME", help="New time limit, as 24m, 2h or 1-0; a plain number is minutes."
)
@click.option("-N", "--nodes", type=click.IntRange(1), help="Number of nodes, else of slots, fewer than before.")
@click.option("--without", metavar="TYPE", help="A type, property or subsystem that it no longer asks for.")
@click.option("--cluster", metavar="NAME", help="Cluster where it is to wait instead.")
@click.option("--priority", type=int, help="New priority; a higher one needs the cluster's secret.")
@click.option("-J", "--name", help="New name.")
@printer.output_option
@with_tokens
def update(
    client: Client,
    job_id: str,
    limit: str | None,
    output: str,
    **changes: Any,
) -> None:
    """Change the limit, size, requirements, cluster, priority or name of a job.

    A shorter limit is always possible; a longer one, -N, --without and --cluster only while the job waits.
    """
    seconds = None if limit is None else seconds_of(limit, plain=60)
    if limit is not None and seconds is None:
        raise click.BadParameter(f"{limit[:40]!r} is no duration: give 24m, 2h or 1-0", param_hint="--time")
    changes["time_limit"] = seconds
    if all(value is None for value in changes.values()):
        raise click.UsageError("say what to change: -t, -N, --without, --cluster, --priority or -J")
    before = client.job(job_id, limit=1)
    result = client.update(before["id"], **changes)
    news = (
        (result.get("changes") or [{}])[-1].get("changed", {})
        if result.get("changes") != before.get("changes")
        else {}
    )
    said = ", ".join(
        f"{_WORDS.get(key, key)} {_value(key, old)} -> {_value(key, new)}" for key, (old, new) in news.items()
    )
    line = f"job {number_of(result)}: {said or 'nothing changed'}"
    printer.show(output, result, lambda console: console.print(printer.one_line(line), markup=False, soft_wrap=True))


_WORDS = {"time_limit": "limit"}


def _value(key: str, value: Any) -> str:
    if key == "without":
        return ", ".join(value) or "nothing"
    if key != "time_limit":
        return str(value)
    return clock(value) if value else "none"
