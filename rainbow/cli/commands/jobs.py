"""`rainbow jobs`, `rainbow job last|show|eta|why|certificate|replay|wait`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from rainbow.certificate.document import read_certificate
from rainbow.cli.commands.events import again, watch_option
from rainbow.cli.exit_codes import Exit
from rainbow.cli.input.job_options import point_in_time
from rainbow.cli.output import printer
from rainbow.cli.output.columns import (
    Column,
    Shape,
    band,
    clock,
    expected,
    is_over,
    lasting,
    list_options,
    moment,
    progress,
    site_of,
)
from rainbow.cli.output.decisions import draw_decision, draw_replay, draw_rows, draw_steps
from rainbow.cli.session import with_tokens
from rainbow.job_names import LAST
from rainbow.jobspec.hostlist import fold_hosts
from rainbow.state_machine import JobState
from rainbow.text import in_time, rfc3339, some

if TYPE_CHECKING:
    from rainbow.client import Client

Document = Mapping[str, Any]
LIVE = {JobState.UNPLACED, JobState.WAITING, JobState.RUNNING}
WAITS = {JobState.UNPLACED, JobState.WAITING}  # what a job waited for is kept, and of no interest once it runs


def _waits_or_runs(job: Document) -> str:
    """Say why a job waits, else where it runs, as squeue does; of an array also how far it has come."""
    workers = (job.get("summary") or {}).get("workers") or []
    there = _waits(job) or (f"on {fold_hosts(workers)}" if workers and job["state"] in LIVE else "")
    return "; ".join(filter(None, (there, progress(job))))


def number_of(job: Document) -> str:
    """Return how people name a job: by its number, or where a former server gave none by its id."""
    return str(job.get("number") or job["id"])


def _nodes(job: Document) -> int | None:
    return len((job.get("summary") or {}).get("workers") or []) or job["nodes"] or None


COLUMNS = [
    Column("JobID", "JOB", lambda job: number_of(job)),
    Column("Name", "NAME", lambda job: job["name"]),
    Column("State", "STATE", lambda job: job["state"]),
    Column("Cluster", "CLUSTER", lambda job: job["cluster"]),
    Column("User", "USER", lambda job: job["requestor"]),
    Column("Submitted", "SUBMITTED", lambda job: printer.when(job["submitted_at"])),
    Column("Elapsed", "ELAPSED", lambda job: clock(lasting(job, time.time()))),
    Column("Nodes", "NODES", _nodes),
    Column("Tasks", "TASKS", progress),
    Column("Site", "SITE", lambda job: site_of(job, (job.get("summary") or {}).get("site"))),
    Column("ID", "ID", lambda job: job["id"]),
    Column("Reason", "REASON OR NODES", _waits_or_runs),
    Column("Expected", "EXPECTED", lambda job: expected(job.get("eta"), time.time()) or None),
]
SHOWN_TASKS = 10  # of a job in a table, unless more are asked for
PAGE = 1_000  # the most tasks that a server shows at once
SHOWN = ("JobID", "Name", "State", "Cluster", "User", "Elapsed", "Nodes", "Reason")


def _states(_: click.Context, option: click.Parameter, values: Sequence[str]) -> list[str]:
    """Read states, each of them several by commas."""
    result = [word.strip().upper() for text in values for word in text.split(",") if word.strip()]
    if unknown := next((word for word in result if word not in JobState.__members__), None):
        known = ", ".join(JobState).lower()
        raise click.BadParameter(f"unknown job state {unknown[:40]!r}; expected one of {known}", param=option)
    return result


@click.command()
@click.option("-u", "--user", "--requestor", multiple=True, help="Jobs of this user. All filters are repeatable.")
@click.option("-n", "--name", multiple=True, metavar="GLOB", help="Jobs of this name, as 'sweep-*'.")
@click.option("-j", "--job", "--jobs", "ids", multiple=True, metavar="JOB[,JOB]", help="These jobs, ended or not.")
@click.option(
    "-t",
    "--state",
    multiple=True,
    callback=_states,
    metavar="STATE[,STATE]",
    help="Jobs in this state; by default those that have not ended.",
)
@click.option("-a", "--all", "every", is_flag=True, help="Include jobs that have ended.")
@click.option("--cluster", multiple=True, help="Jobs at this cluster.")
@click.option("--account", multiple=True, help="Jobs of this account.")
@click.option("--reason", multiple=True, help="Jobs that wait for this reason, as dependency or resources.")
@click.option("-S", "--since", callback=point_in_time, help="Jobs that had not ended then, as now-2hours.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Maximum number of jobs.")
@watch_option
@list_options(COLUMNS, SHOWN, short=())  # -n is a name, as of the verbs
@with_tokens
def jobs(
    client: Client,
    limit: int,
    watch: bool,
    shape: Shape,
    every: bool,
    ids: Sequence[str],
    state: list[str],
    since: float | None,
    **filters: Sequence[str],
) -> None:
    """List the jobs that have not ended, the newest first; an array is one line.

    Jobs that all filters choose are shown; of one filter several values are joined by "or".
    """
    named = [one for text in ids for one in text.split(",") if one]
    ended = every or named or since is not None
    where: dict[str, Any] = {**filters, "id": named, "since": since and rfc3339(since)}
    where["state"] = state or ([] if ended else sorted(LIVE))
    where = {key: value for key, value in where.items() if value}

    def show() -> bool:
        shape.write(list(islice(client.all_jobs(summary=True, **where), limit)))
        return True

    again(client, watch, show)


def _waits(job: Document) -> str:
    wait = job.get("wait") or {}
    said = job["state"] in WAITS or (job["state"] in LIVE and wait.get("reason") == "suspended")
    return str(wait.get("text") or "") if said else ""


@click.group()
def job() -> None:
    """Show, explain and change jobs."""


@job.command()
@with_tokens
def last(client: Client) -> None:
    """Print the number of your newest job: rainbow job why $(rainbow job last)."""
    newest = client.find_job(LAST)
    click.echo(number_of(newest))


@job.command()
@click.argument("job_id")
@click.option(
    "--limit",
    type=click.IntRange(1, PAGE),
    help=f"Maximum number of tasks; {SHOWN_TASKS} by default, in JSON {PAGE}.",
)
@click.option("--after", type=click.IntRange(0), help="Show the tasks after the one with this index.")
@click.option("--held", is_flag=True, help="Also show which cores, GPUs and memory each task holds.")
@click.option("--jobspec", "submitted", flag_value="jobspec", help="Print the jobspec as it was submitted.")
@click.option("--script", "submitted", flag_value="script", help="Print the batch script.")
@watch_option
@printer.output_option
@with_tokens
def show(
    client: Client,
    job_id: str,
    limit: int | None,
    after: int | None,
    held: bool,
    submitted: str | None,
    watch: bool,
    output: str,
) -> None:
    """Show what a job is and how it is: definition, state, tasks, recent output. Tasks that failed come first."""
    if submitted:
        _print_submitted(client, job_id, submitted, output)
        return
    most = limit or (SHOWN_TASKS if output in printer.DRAWN else PAGE)

    def draw() -> bool:
        result = client.job(job_id, limit=most, after=after)
        printer.show(output, result, lambda console: draw_job(console, result, held=held))
        return result["state"] in LIVE

    again(client, watch, draw)


def _print_submitted(client: Client, job_id: str, what: str, output: str) -> None:
    """Print a jobspec or a script: for people as it was written, a mapping as YAML."""
    answer = client.jobspec(job_id) if what == "jobspec" else client.script(job_id)
    text, drawn = answer[what], output in printer.DRAWN
    if drawn and isinstance(text, str):
        click.echo(text.rstrip("\n"))
    else:
        printer.show("yaml" if drawn else output, text if drawn else answer, "")
    if answer["environment_hidden"]:
        click.echo("rainbow: values of environment variables are shown only to the job's user", err=True)


@job.command()
@click.argument("job_id")
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
@printer.output_option
@with_tokens
def eta(client: Client, job_id: str, as_json: bool, output: str) -> None:
    """Show when a job is expected to start and end, how sure that is, and what is ahead of it."""
    result = client.eta(job_id)
    printer.show("json" if as_json else output, result, lambda console: _draw_eta(console, result))


@job.command()
@click.argument("job_id")
@printer.output_option
@with_tokens
def why(client: Client, job_id: str, output: str) -> None:
    """Show in one line where a job is and why, then how it was placed and whether it can ever run."""
    result = client.why(job_id, verify=True)
    printer.show(output, result, lambda console: _draw_why(console, result))


@job.command()
@click.argument("job_id")
@click.option("--task", type=click.IntRange(min=0), help="The index of a task, where tasks start by themselves.")
@printer.output_option
@with_tokens
def certificate(client: Client, job_id: str, task: int | None, output: str) -> None:
    """Show the rows that prove a job's start; with -o json for `rainbow verify`."""
    result = client.certificate(job_id, task)
    printer.show(output, result, lambda console: _draw_certificate(console, result))


@job.command()
@click.argument("job_id")
@printer.output_option
@with_tokens
def replay(client: Client, job_id: str, output: str) -> None:
    """Replay a job's recorded cluster selection. Exits 1 if the result differs."""
    result = client.replay(job_id)
    printer.show(output, result, lambda console: draw_replay(console, result))
    click.get_current_context().exit(Exit.OK if result["equal"] else Exit.ERROR)


@job.command()
@click.argument("job_id")
@click.option("--timeout", type=click.FloatRange(min=0), help="Give up after this many seconds and exit with 75.")
@printer.output_option
@with_tokens
def wait(client: Client, job_id: str, timeout: float | None, output: str) -> None:
    """Wait for a job to end. Exits 7 if it fails or is canceled."""
    result = client.wait(job_id, timeout)
    printer.show(output, result, lambda console: draw_job(console, result))
    click.get_current_context().exit(outcome(result))


def outcome(job: Document) -> Exit:
    """Return the exit code for a job that has ended."""
    return Exit.OK if job["state"] == JobState.COMPLETED else Exit.JOB_FAILED


def exit_code_of(job: Document) -> int:
    """Return the first exit code of its tasks that is not 0; else as the job has ended."""
    codes = (task["exit_code"] for task in job["tasks"])
    return next((code for code in codes if code), int(outcome(job)))


def _held(task: Document) -> str:
    """Say which vertices a task holds, worker by worker; "" where only amounts are known, or it holds nothing."""
    whole = {name: ",".join(path or "all of it" for path in paths) for name, paths in (task["held"] or {}).items()}
    return "; ".join(f"{name or printer.CLUSTER_WIDE} {paths}" for name, paths in whole.items())


def _where(task: Document, job: Document) -> str:
    """Say what a task is on, and how its site calls it: oak:530 batch n[1-2]."""
    placed, site = printer.held(task, job.get("units")), site_of(job, task.get("site"))
    return "; ".join(part for part in (printer.words(placed) if placed else "", site) if part) or "-"


def draw_job(console: Console, job: Document, *, held: bool = False) -> None:
    """Show a job: its headline, its definition, its tasks and what they wrote last; `held`: and what they hold."""
    number = number_of(job)
    head = Text("job ") + Text(number, style="bold") + Text(f"  {printer.one_line(job['name'])}  ")
    console.print(head + printer.cell(job["state"]) + f" {printer.one_line(_whereabouts(job))}", soft_wrap=True)
    if said := printer.one_line(_waits(job) or job.get("headline") or ""):
        console.print(Text(f"  {said}"), soft_wrap=True)
    answer = {"id": job["id"], "user": job["requestor"], **_defined(job, number), **_expected(job)}
    console.print(printer.facts({f"  {name}": value for name, value in answer.items() if value}))
    bad = {one["id"] for one in job.get("failed", ())}
    shown = [*job.get("failed", ()), *(one for one in job["tasks"] if one["id"] not in bad)]
    titles = ["TASK", "STATE", "EXIT", "ON", *(["HOLDS"] if held else []), "DETAIL"]
    rows = [
        [
            *(one.get("element") or one["name"], one["state"], one["exit_code"], _where(one, job)),
            *([_held(one)] if held else []),
            one["detail"] or (one.get("site") or {}).get("detail", ""),
        ]
        for one in shown
    ]
    console.print()
    console.print(printer.table(titles, rows))
    for one in shown:
        if one["output"]:
            console.print(Text(f"── output of {printer.clean(one['name'])}", style="dim"))
            console.print(Text(printer.clean(one["output"].rstrip("\n"))))
    if job.get("next") is not None:
        console.print(Text(_more(job), style="dim"))


def _whereabouts(job: Document) -> str:
    """Say where a job is and since when: "on desk, n0 core 0-1, since 16:02"."""
    parts = [f"on {job['cluster']}"] if job["cluster"] else []
    begun = [one for one in job["tasks"] if one["started_at"] and not one["ended_at"]]
    if len(begun) == 1:
        parts += [_held(begun[0])] if begun[0].get("held") else []
    elif begun:
        parts.append(f"{len({name for one in begun for name in one['placement'] if name})} nodes")
    since = min((one["started_at"] for one in begun), default=job["ended_at"] or job["submitted_at"])
    word = "since" if begun else "ended" if job["ended_at"] else "submitted"
    return ", ".join([*parts, f"{word} {moment(since, time.time())}"])


def _defined(job: Document, number: str) -> dict[str, Any]:
    """Return the lines of a definition; nothing for what it leaves open, and from a server that says none."""
    definition = job.get("definition")
    if not definition:
        return {}
    single, limit = definition["command"], definition["limits"]["time"]
    lines: dict[str, Any] = {"command": shlex.join(single)} if single else {}
    lines |= {} if single else {f"task {one['name']}": _kind(one) for one in definition["tasks"]}
    if definition["script"]:
        lines["script"] = f"rainbow job show {number} --script"
    lines |= {"in": definition["directory"], "asks for": definition["resources"]["text"]}
    lines["time limit"] = in_time(limit) if limit else "none of its own"
    lines["not before"] = printer.when(definition["limits"]["begin"]) if definition["limits"]["begin"] else ""
    lines |= {"after": _relatives(definition["after"]), "before": _relatives(definition["before"])}
    lines["environment"] = ", ".join(definition["environment"])
    lines |= {"account": job.get("account"), "QOS": job.get("qos")}
    lines |= {f"to {name}": value for name, value in definition["output"].items()}
    lines["output"] = f"rainbow job logs {number}"
    return lines


def _kind(task: Document) -> str:
    after = f", after {', '.join(task['after'])}" if task["after"] else ""
    return f"{shlex.join(task['command'])}  ({task['resources'] or 'all of it'}{after})"


def _relatives(jobs: Sequence[Document]) -> str:
    return "; ".join(
        f"job {one['number'] or one['id']} ({one['name']}), {one['state'].lower()}" if one["state"] else one["id"]
        for one in jobs
    )


def _more(job: Document) -> str:
    """Say how many tasks there are beside those shown, and how to see them."""
    whole = sum(job["counts"].values())
    states = ", ".join(f"{count} {state}" for state, count in sorted(job["counts"].items()))
    more = f"rainbow job show {number_of(job)} --after {job['next']}"
    return f"{len(job['tasks'])} of {whole} tasks shown ({states}); see more with {more}"


def _draw_certificate(console: Console, document: Document) -> None:
    if "rows" in document:
        draw_rows(console, read_certificate(document), document["requests"])
    else:
        console.print(
            printer.facts({"rows": f"{document['count']}: their SHA-256 is kept", "sha256": document["sha256"]})
        )


def _draw_why(console: Console, document: Document) -> None:
    waits = (document.get("wait") or {}) if document["state"] in WAITS else {}
    console.print(Text(printer.one_line(document.get("answer") or document["state"])), soft_wrap=True)
    for line in _now(document.get("now") or {}):
        console.print(Text(line), soft_wrap=True)
    account: Document = {
        key: document[key]["text"] for key in ("verified", "account", "preempted") if document.get(key)
    }
    answer = {
        "job": number_of(document),
        **_waiting(waits, document.get("verify") or {}),
        **_expected(document),
        **account,
    }
    console.print(printer.facts(answer))
    draw_decision(console, document["decision"])
    if document["decision"].get("candidates"):  # else there was nothing to select from: the reason is above
        draw_steps(console, document["decision"].get("selection") or {})
    _draw_moves(console, document["decision"].get("moves") or [])


def _now(now: Document) -> Iterator[str]:
    """Yield the lines about the plan that says why a job waits, and what would start it."""
    if not now:
        return
    ahead = f"{some(now['ahead'], 'job')} ahead; " if now.get("ahead") is not None else ""
    yield f"  {ahead}plan {now['plan']} of {now['at'][11:19]}"
    if changes := now["changes"]:
        yield "  starts now with"
        wide = max(len(one["text"]) for one in changes)
        for one in changes:
            yield f"    {printer.clean(one['text']):<{wide}}  {printer.clean(shlex.join(one['command']))}"
    elif not now["searched"]["complete"]:
        yield "  the search for what would start it now was cut short; ask again"


def _expected(job: Document) -> dict[str, str]:
    """Return when a job that waits is expected, if that is known."""
    said = expected(job.get("eta"), time.time()) if job["state"] in WAITS else ""
    return {"eta": said} if said else {}


KEPT_UNLESS = "kept unless a worker fails or a higher priority comes"
HOW = {
    "running": "its tasks run; the end is that of runs like it",
    "ahead": "the policy's plans, run ahead of time",
    "one-pass": "the earliest time with room, after the plans that were run ahead",
    "unknown": "unknown",
}


def _draw_eta(console: Console, document: Document) -> None:
    now = time.time()
    answer = {"job": number_of(document), "state": document["state"], "cluster": document["cluster"]}
    answer["start"] = (
        expected({**document, "how": "ahead"}, now) if document["how"] in ("ahead", "one-pass") else None
    )
    if document.get("promised"):
        answer["promised"] = f"{moment(document['promised'], now)}, {KEPT_UNLESS}"
    moving = ", moving with the start" if answer["start"] else ""
    answer["end"] = None if is_over(document["end"], now) else f"expected {moment(document['end'], now)}{moving}"
    from rainbow.client.wait import ENDED

    by = [] if document["state"] in ENDED else [HOW[document["how"]]]
    answer["by"] = ": ".join([*by, *([document["text"]] if document["text"] and not answer["start"] else [])])
    if before := document.get("ahead"):
        answer["ahead"] = f"{some(before['jobs'], 'job')}, {before['core_hours']:g} core-hours"
    if (first := document.get("first")) and first["start"]:
        answer["at first"] = f"expected {moment(first['start'], now)}, {band(first, now)}"
    console.print(printer.facts({key: value for key, value in answer.items() if value is not None}))


def _draw_moves(console: Console, moves: Sequence[Document]) -> None:
    """Show where a job was before, since when it is elsewhere, and why; "" is a cluster one may not see."""
    if moves:
        rows = [(one["from"] or "-", one["to"] or "-", printer.when(one["at"]), one["why"]) for one in moves]
        console.print(printer.table(["MOVED FROM", "TO", "WHEN", "BECAUSE"], rows))


def _waiting(wait: Document, verified: Document) -> dict[str, str]:
    """Say since when a job waits, when it is expected to start, and whether it can start at all."""
    reported: dict[str, str] = {}
    if wait:
        reported["since"] = printer.when(wait.get("since"))
        facts = wait.get("facts") or {}
        if facts.get("promised"):
            reported["promised start"] = f"{printer.when(facts['promised'])}, {KEPT_UNLESS}"
        elif facts.get("start") is not None:
            reported["planned start"] = f"{printer.when(facts['start'])}, by time limits; it may move"
        if broken := facts.get("broken"):
            reported["broken promise"] = f"{printer.when(broken['old'])}, because {broken['text']}"
    for question, words, yes in (
        ("ever", "can ever run", "yes"),
        ("now", "can run now", "yes, were it alone in the queue"),
    ):
        answer = verified.get(question)
        reported |= {words: yes if answer["can"] else f"no: {answer['text']}"} if answer else {}
    return reported
