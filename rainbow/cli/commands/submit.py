"""`rainbow submit`: one jobspec or many."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.console import Console

from rainbow.cli.commands.jobs import draw_job, number_of, outcome
from rainbow.cli.exit_codes import NO_CLUSTER_NOW, UNMATCHED, Exit
from rainbow.cli.input import files
from rainbow.cli.input.files import text_of, yaml_of
from rainbow.cli.input.job_options import JobCommand, JobSource, Jobspec, check_files, job_options
from rainbow.cli.output import printer, progress
from rainbow.cli.output.columns import moment
from rainbow.cli.output.decisions import draw_decision, draw_warnings
from rainbow.cli.session import first_time, login, with_tokens
from rainbow.text import some

if TYPE_CHECKING:
    from rainbow.client import Client

TOGETHER = 100  # jobs in one call
BY_JOB = ("after", "afterany", "afterok", "afternotok")
WHOLE_ID = 24  # characters
Row = dict[str, Any]


def paths_of(what: Sequence[Path]) -> list[Path]:
    """List the jobspecs of these files and folders."""
    return [path for options in what for path in files.jobspec_files(options)]


def submit_many(client: Client, what: Sequence[Path], common: Mapping[str, Any], key: str | None) -> list[Row]:
    """Submit every jobspec of these files and folders; return what became of each, in their order."""
    paths = paths_of(what)
    parts = [(start, paths[start : start + TOGETHER]) for start in range(0, len(paths), TOGETHER)]
    rows: list[Row] = []
    for start, part in progress.counted("submitting", parts, lambda each: len(each[1])):
        jobs = [{"jobspec": text_of(path), **common} for path in part]
        reported = client.submit_batch(jobs, idempotency_key=f"{key}/{start}" if key else None)
        rows += [{"jobspec": str(path), **answer} for path, answer in zip(part, reported["answers"], strict=True)]
    return rows


def draw_many(console: Console, rows: Sequence[Row]) -> None:
    """Show a line per jobspec, and how many went where."""
    shown = [(row["jobspec"], row.get("number") or row.get("id"), row.get("cluster"), _why_not(row)) for row in rows]
    console.print(printer.table(["JOBSPEC", "JOB", "CLUSTER", "NOT PLACED BECAUSE"], shown))
    for row in rows:
        draw_warnings(console, row.get("decision") or {}, f"{row['jobspec']}: ")
    console.print(printer.words(Counter(_went_to(row) for row in rows)))


def _why_not(row: Row) -> str:
    return str(row.get("detail") or (row.get("wait") or {}).get("text", ""))


def _went_to(row: Row) -> str:
    return str(row.get("cluster") or ("unplaced" if "id" in row else "refused"))


def exit_of_many(rows: Sequence[Row]) -> Exit:
    """Return 0 if all were placed, 3 if no cluster takes some, 1 if anything else is wrong with some."""
    refused = {row.get("code") for row in rows if "id" not in row}
    if not refused:
        return Exit.OK
    return Exit.NO_MATCH if refused and refused <= {*UNMATCHED} else Exit.ERROR


def clusters_and_selector(command: Any) -> Any:
    """Give a command the options that say among which clusters, and how, one is chosen."""
    options = [
        click.option("--cluster", "clusters", multiple=True, help="Consider only this cluster. Repeatable."),
        click.option("--selector", help="Selector that chooses the cluster, such as random or constraint."),
        click.option(
            "--selector-options",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="YAML or JSON file with the selector's options.",
        ),
        click.option("--backend", help="How graphs are matched: index, networkx, ...; else as the server is set."),
    ]
    for option in reversed(options):
        command = option(command)
    return job_options(command)


def job_and_cluster_options(command: Any) -> Any:
    """Give the command the options of a job, and where it may go: `given`, `clusters`, `selector`, `backend`."""

    @functools.wraps(command)
    def run(selector: str | None, selector_options: Path | None, **rest: Any) -> Any:
        return command(selector=selector_given(selector, selector_options), **rest)

    return clusters_and_selector(run)


def selector_given(name: str | None, options: Path | None) -> dict[str, Any] | None:
    """Return the selector that the options of a command name; None: the server's."""
    if name is None and options is not None:
        raise click.UsageError("--selector-options requires --selector")
    return {"name": name, **({"options": yaml_of(options)} if options else {})} if name else None


@click.command(cls=JobCommand)
@clusters_and_selector
@click.option("-J", "--name", "--job-name", "name", help="Name of the job; that of its program by default.")
@click.option(
    "--user",
    "--requestor",
    "requestor",
    help="User the job is for; your login by default, where the token allows it.",
)
@click.option(
    "--basis",
    help="Work item this job is a version of; submitting a new --tag cancels your active jobs with older tags.",
)
@click.option("--tag", help="Version of the --basis.")
@click.option("--queue", is_flag=True, help="Wait for a cluster where some match and none takes the job now.")
@click.option("--key", help="Idempotency key: repeating a submit with the same key returns the same job.")
@click.option("--eta", is_flag=True, help="Show when the job would start and end on each cluster; submit nothing.")
@click.option("--wait", is_flag=True, help="Wait until the job ends; exit 7 if it does not complete successfully.")
@click.option("--why", is_flag=True, help="Also show which clusters fit, and how one of them was chosen.")
@click.option("--parsable", is_flag=True, help="Print the job's number alone.")
@click.option("--quiet", is_flag=True, help="Print nothing where the job is submitted.")
@printer.answer_or_file_option
@with_tokens
def submit(
    client: Client,
    given: JobSource,
    clusters: tuple[str, ...],
    selector: str | None,
    selector_options: Path | None,
    backend: str | None,
    name: str | None,
    requestor: str | None,
    basis: str | None,
    tag: str | None,
    key: str | None,
    queue: bool,
    eta: bool,
    wait: bool,
    why: bool,
    parsable: bool,
    quiet: bool,
    output: str,
) -> None:
    """Submit a jobspec FILE (- for stdin), a batch SCRIPT, or a command: rainbow submit -N 2 -c 4 -t 10m -- hostname.

    A SCRIPT begins with #!; its #SBATCH lines are read as sbatch reads them. Several FILEs, or folders of them, are
    submitted together; each has its own answer.
    """
    among, who = [{"name": one} for one in clusters] or None, None if requestor else login()
    if eta and given.many:
        raise click.UsageError("--eta accepts only one jobspec")
    if given.many:
        common: dict[str, Any] = {
            "name": name,
            "requestor": requestor,
            "login": who,
            "selector": selector_given(selector, selector_options),
        }
        common |= {"queue": queue or None, "backend": backend}
        _submit_many(client, given, {**common, "clusters": among}, key, output, alone=bool(wait or basis or tag))
    jobspec = ready(client, given.jobspec())
    if eta:
        result = client.eta_of(jobspec, name=name, requestor=requestor, clusters=among, login=who)
        printer.show(output, result, lambda console: draw_etas(console, result))
        click.get_current_context().exit(Exit.OK if result["candidates"] else Exit.NO_MATCH)
    tell([*given.notes, *(words for what, words in given.news.items() if first_time(what))])
    with refusals_shown(output, given.files):
        chosen = selector_given(selector, selector_options)
        how: dict[str, Any] = {"basis": basis, "tag": tag, "queue": queue or None, "backend": backend, "login": who}
        made = client.submit(jobspec, name, requestor, chosen, among, key, **how)
    if not wait:
        if parsable:
            click.echo(number_of(made))
        elif not quiet or output not in printer.DRAWN:
            printer.show(output, made, lambda console: _draw(console, made, why=why))
        return
    if output in printer.DRAWN:
        _draw(printer.console(), made, why=why)
    ended = wait_for(client, made)
    printer.show(output, ended, lambda console: draw_job(console, ended))
    click.get_current_context().exit(outcome(ended))


def draw_etas(console: Console, results: Mapping[str, Any]) -> None:
    """Show when a job would start and end on each cluster, the first to end first."""
    now = time.time()
    rows = [
        (
            one["cluster"],
            moment(one["start"], now),
            moment(one["finish"], now),
            f"{moment(one['low'], now)} to {moment(one['high'], now)}" if one["low"] else None,
            one["text"] or ("" if one["known"] else "by its totals: amounts do not say all it asks for"),
        )
        for one in results["candidates"]
    ]
    console.print(printer.table(["CLUSTER", "STARTS", "ENDS", "8 IN 10 END", "NOTE"], rows))
    if results["refusals"]:
        console.print(f"{some(len(results['refusals']), 'cluster')} cannot run it; see rainbow match", markup=False)


def tell(notes: Sequence[str]) -> None:
    """Say on stderr what is carried in another form, or read in another way than some expect."""
    for note in notes:
        click.echo(f"rainbow: {printer.one_line(note)}", err=True)


def wait_for(client: Client, made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job that was submitted here when it has ended; Ctrl-C ends the waiting alone, and says so."""
    try:
        return dict(client.wait(made["id"]))
    except KeyboardInterrupt:
        name = number_of(made)
        tell([f"job {name} continues; rainbow job cancel {name} ends it"])
        raise


def ready(client: Client, jobspec: Jobspec) -> Jobspec:
    """Return a jobspec that was written here with whole ids for the jobs it depends on."""
    if isinstance(jobspec, str):
        return jobspec
    for one in jobspec["attributes"]["system"].get("dependencies", ()):
        if one["scheme"] in BY_JOB and len(one["value"]) < WHOLE_ID:
            one["value"] = client.job(one["value"])["id"]
    return jobspec


def _submit_many(
    client: Client, options: JobSource, common: dict[str, Any], key: str | None, output: str, *, alone: bool
) -> NoReturn:
    if alone:
        raise click.UsageError("--wait, --basis and --tag accept only one jobspec")
    if options.strict:
        check_files(paths_of(options.files))
    rows = submit_many(client, options.files, {k: v for k, v in common.items() if v is not None}, key)
    printer.show(output, rows, lambda console: draw_many(console, rows))
    click.get_current_context().exit(exit_of_many(rows))


@contextmanager
def refusals_shown(output: str, jobspecs: Sequence[Path] = ()) -> Iterator[None]:
    """Show why no cluster takes a job, and name the file of a jobspec that is refused at a place in it."""
    from rainbow.client import Problem

    try:
        yield
    except Problem as problem:
        if problem.code in (*UNMATCHED, NO_CLUSTER_NOW):
            facts = problem.facts
            printer.show(output, {"detail": problem.detail, **facts}, lambda console: draw_decision(console, facts))
        if problem.line is not None and jobspecs:
            problem.detail = f"{jobspecs[0]}: {problem.detail}"
        raise


def _draw(console: Console, made: Mapping[str, Any], *, why: bool) -> None:
    """Say in one line what was submitted, and warnings; `why`: and how the cluster was chosen."""
    if why:
        draw_decision(console, made["decision"])
    else:
        draw_warnings(console, made["decision"])
    wait = printer.clean((made.get("wait") or {}).get("text", ""))
    where = f"to cluster {made['cluster']}" if made["cluster"] else f"which waits for a cluster: {wait}"
    name = f" ({printer.one_line(made['name'])})" if made.get("name") else ""
    console.print(f"submitted job {number_of(made)}{name} {where}", markup=False, soft_wrap=True)
