"""`rainbow submit`, `rainbow match`: a jobspec file, stdin, or a command and a few numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rainbow.cli import printing
from rainbow.cli.connection import with_tokens
from rainbow.cli.decisions import draw_decision, draw_match, draw_refusals
from rainbow.cli.exits import UNSATISFIABLE, Exit
from rainbow.cli.jobs import draw_job, outcome
from rainbow.cli.reading import json_of, text_of
from rainbow.client import Client, Problem

Jobspec = str | dict[str, Any]


def _job_options(command: Any) -> Any:
    options = [
        click.argument("what", nargs=-1, metavar="FILE | -- COMMAND..."),
        click.option("-n", "--nodes", type=click.IntRange(1), help="Nodes for the command."),
        click.option("-c", "--cores", type=click.IntRange(1), help="Cores for the command, on every node."),
        click.option("-g", "--gpus", type=click.IntRange(1), help="GPUs for the command, on every node."),
        click.option("-t", "--seconds", type=click.FloatRange(min=0), help="The command's time limit; 0: none."),
        click.option("--cluster", "clusters", multiple=True, help="Only this cluster; may be given several times."),
        click.option("--selector", help="How the cluster is chosen: random, constraint, ..."),
        click.option(
            "--selector-options", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A JSON file."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _jobspec(
    what: tuple[str, ...], nodes: int | None, cores: int | None, gpus: int | None, seconds: float | None
) -> Jobspec:
    if nodes is None and cores is None and gpus is None:
        if len(what) != 1:
            raise click.UsageError("give one jobspec FILE (or - for stdin), or -n/-c/-g and a command after --")
        if what[0] != "-" and not Path(what[0]).is_file():
            raise click.UsageError(f"there is no file {what[0]!r}; a command needs -n, -c or -g")
        return text_of(Path(what[0]))
    if not what:
        raise click.UsageError("-n, -c and -g want a command after --")
    from rainbow.jobspec import jobspec_of

    return jobspec_of(what, nodes=nodes or 0, cores=cores or 1, gpus=gpus or 0, duration=seconds or 0.0)


def _selector(name: str | None, options: Path | None) -> dict[str, Any] | None:
    if name is None and options is not None:
        raise click.UsageError("--selector-options wants --selector")
    return {"name": name, **({"options": json_of(options)} if options else {})} if name else None


@click.command()
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
    what: tuple[str, ...],
    nodes: int | None,
    cores: int | None,
    gpus: int | None,
    seconds: float | None,
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
    """Submit a jobspec FILE (- for stdin), or a command: rainbow submit -n 2 -c 4 -- hostname."""
    jobspec = _jobspec(what, nodes, cores, gpus, seconds)
    among = [{"name": one} for one in clusters] or None
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


def _show_refusals(problem: Problem, output: str) -> None:
    if problem.code == UNSATISFIABLE:
        refusals = problem.facts.get("refusals") or []
        printing.show(
            output, {"detail": problem.detail, **problem.facts}, lambda console: draw_refusals(console, refusals)
        )


def _draw(console: Any, made: dict[str, Any]) -> None:
    draw_decision(console, made["decision"])
    console.print(f"job {made['id']} goes to {made['cluster']}")


@click.command()
@_job_options
@printing.output_option
@with_tokens
def match(
    client: Client,
    what: tuple[str, ...],
    nodes: int | None,
    cores: int | None,
    gpus: int | None,
    seconds: float | None,
    clusters: tuple[str, ...],
    selector: str | None,
    selector_options: Path | None,
    output: str,
) -> None:
    """Say which clusters could run a jobspec, and why the others could not; nothing is submitted."""
    jobspec = _jobspec(what, nodes, cores, gpus, seconds)
    among = [{"name": one} for one in clusters] or None
    answer = client.match(jobspec, _selector(selector, selector_options), among)
    printing.show(output, answer, lambda console: draw_match(console, dict(answer)))
    if not answer["candidates"]:
        click.get_current_context().exit(Exit.NO_MATCH)
