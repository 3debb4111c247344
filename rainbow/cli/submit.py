"""`rainbow submit`, `rainbow match`: a jobspec file, stdin, or a command and a few numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import click

from rainbow.cli import files, many, printing, sweep
from rainbow.cli.connection import with_tokens
from rainbow.cli.decisions import draw_decision, draw_match
from rainbow.cli.exits import NO_CLUSTER_NOW, UNMATCHED, Exit
from rainbow.cli.explaining import draw_explained
from rainbow.cli.given import Given, JobCommand, job_options
from rainbow.cli.jobs import draw_job, outcome
from rainbow.cli.reading import json_of
from rainbow.cli.strict import check_files, check_read
from rainbow.client import Client, Problem
from rainbow.errors import NotFound
from rainbow.graph import Cluster
from rainbow.jobspec import Request, parse_jobspec


def _job_options(command: Any) -> Any:
    options = [
        click.option("--cluster", "clusters", multiple=True, help="Only this cluster; may be given several times."),
        click.option("--selector", help="How the cluster is chosen: random, constraint, ..."),
        click.option(
            "--selector-options", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A JSON file."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return job_options(command)


def _selector(name: str | None, options: Path | None) -> dict[str, Any] | None:
    if name is None and options is not None:
        raise click.UsageError("--selector-options wants --selector")
    return {"name": name, **({"options": json_of(options)} if options else {})} if name else None


@click.command(cls=JobCommand)
@_job_options
@click.option("--name", help="What the job is called.")
@click.option("--requestor", help="Who it is for.")
@click.option("--basis", help="What it is a version of: it replaces your live jobs of this basis with other tags.")
@click.option("--tag", help="Which version of the basis it is.")
@click.option("--key", help="Idempotency key: submitted twice under one key, it is one job.")
@click.option("--wait", is_flag=True, help="Wait for its end; exit 7 if it does not complete.")
@printing.output_option
@with_tokens
def submit(
    client: Client,
    given: Given,
    clusters: tuple[str, ...],
    selector: str | None,
    selector_options: Path | None,
    name: str | None,
    requestor: str | None,
    basis: str | None,
    tag: str | None,
    key: str | None,
    wait: bool,
    output: str,
) -> None:
    """Submit a jobspec FILE (- for stdin), or a command: rainbow submit -n 2 -c 4 -t 10m -- hostname.

    Several FILEs, or folders of them, are submitted together; each has its own answer.
    """
    among = [{"name": one} for one in clusters] or None
    if given.many:
        common = {"name": name, "requestor": requestor, "selector": _selector(selector, selector_options)}
        _submit_many(client, given, {**common, "clusters": among}, key, output, alone=bool(wait or basis or tag))
    jobspec = given.jobspec()
    try:
        made = client.submit(jobspec, name, requestor, _selector(selector, selector_options), among, key, basis, tag)
    except Problem as problem:
        _show_refusals(problem, output)
        raise
    if not wait:
        printing.show(output, made, lambda console: _draw(console, dict(made)))
        return
    if output == "table":
        _draw(printing.console(), dict(made))
    ended = client.wait(made["id"])
    printing.show(output, ended, lambda console: draw_job(console, ended))
    click.get_current_context().exit(outcome(ended))


def _submit_many(
    client: Client, given: Given, common: dict[str, Any], key: str | None, output: str, *, alone: bool
) -> NoReturn:
    if alone:
        raise click.UsageError("--wait, --basis and --tag are for one jobspec")
    if given.strict:
        check_files(many.paths_of(given.files))
    rows = many.submit_many(client, given.files, {k: v for k, v in common.items() if v is not None}, key)
    printing.show(output, rows, lambda console: many.draw_many(console, rows))
    click.get_current_context().exit(many.exit_of_many(rows))


def _show_refusals(problem: Problem, output: str) -> None:
    if problem.code in (*UNMATCHED, NO_CLUSTER_NOW):
        told = {"detail": problem.detail, **problem.facts}
        printing.show(output, told, lambda console: draw_decision(console, problem.facts))


def _draw(console: Any, made: dict[str, Any]) -> None:
    draw_decision(console, made["decision"])
    console.print(f"job {made['id']} goes to {made['cluster']}")


@click.command(cls=JobCommand)
@_job_options
@click.option("--explain", is_flag=True, help="What was looked for and found where, and the smallest change.")
@click.option(
    "--graph",
    "graphs",
    multiple=True,
    type=files.PATH,
    help="No server: match this graph, or the clusters of this folder; may be given several times.",
)
@printing.output_option
@with_tokens
def match(
    client: Client,
    given: Given,
    clusters: tuple[str, ...],
    selector: str | None,
    selector_options: Path | None,
    explain: bool,
    graphs: tuple[Path, ...],
    output: str,
) -> None:
    """Say which clusters could run a jobspec, and why the others could not; nothing is submitted.

    With --graph no server is asked, and WHAT may be several jobspecs or folders of them.
    """
    draw = draw_explained if explain else draw_match
    if graphs:
        if selector or selector_options:
            raise click.UsageError("--selector is the server's; it has no meaning with --graph")
        among_files = _named(files.clusters_of(graphs), clusters)
        if len(requests := _requests(given)) > 1:
            swept = sweep.sweep(requests, among_files, explain)
            printing.show(output, swept, lambda console: sweep.draw_sweep(console, swept))
            _end(any(row["matched"] for row in swept["jobspecs"]))
        answer: Any = sweep.answer(next(iter(requests.values())), among_files, explain)
    else:
        jobspec = given.jobspec()
        among = [{"name": one} for one in clusters] or None
        answer = client.match(jobspec, _selector(selector, selector_options), among, explain=explain)
    printing.show(output, answer, lambda console: draw(console, dict(answer)))
    _end(bool(answer["candidates"]))


def _end(matched: bool) -> None:
    click.get_current_context().exit(Exit.OK if matched else Exit.NO_MATCH)


def _named(found: list[Cluster], names: tuple[str, ...]) -> list[Cluster]:
    """Keep the clusters that were named, all if none was."""
    known = {cluster.name for cluster in found}
    for name in names:
        if name not in known:
            raise NotFound(f"there is no cluster {name}")
    return [cluster for cluster in found if not names or cluster.name in names]


def _requests(given: Given) -> dict[Path, Request]:
    if paths := given.files:
        found, faults = files.jobspecs_of(paths)
        for fault in faults.values():
            click.echo(f"rainbow: skipped {printing.one_line(str(fault))}", err=True)
        if not found:
            raise click.UsageError("there is no jobspec among these files")
        for path, request in found.items() if given.strict else ():
            check_read(request, str(path))
        return found
    return {Path("-"): parse_jobspec(given.jobspec())}
