"""`rainbow subsystem`, `rainbow state`, `rainbow worker` and `rainbow fleet`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from rainbow.cli.commands.events import again, watch_option
from rainbow.cli.input.files import FILE, json_of, yaml_of
from rainbow.cli.output import printer
from rainbow.cli.session import of_cluster, with_secret, with_tokens
from rainbow.client import Client


@click.group()
def state() -> None:
    """Manage the key-value state of a cluster used by selection: set, show."""


def _state_of(command: Callable[..., Any]) -> Callable[..., Any]:
    """Read CLUSTER and KEY=VALUE from the words, or the file of the form before, `state set FILE --cluster NAME`."""

    @functools.wraps(command)
    def run(words: tuple[str, ...], named: str | None, file: Path | None, **rest: Any) -> Any:
        if named and len(words) == 1 and "=" not in words[0] and not file:
            click.echo("rainbow: deprecated: state set FILE --cluster NAME; write state set NAME -f FILE", err=True)
            return command(cluster=named, pairs=(), file=FILE.convert(words[0], None, None), **rest)
        cluster, pairs = (named, words) if named else (next(iter(words), None), words[1:])
        if not cluster or bool(pairs) is bool(file):
            raise click.UsageError("give CLUSTER and KEY=VALUE pairs, or CLUSTER and -f FILE")
        return command(cluster=cluster, pairs=pairs, file=file, **rest)

    return run


@state.command(name="set")
@click.argument("words", nargs=-1, metavar="CLUSTER KEY=VALUE...")
@click.option("-f", "--file", type=FILE, help="Replace all by the state of this file, YAML or JSON.")
@click.option("--cluster", "named", help="The cluster, where it is not the first word.")
@_state_of
@printer.output_option
@with_secret
def set_state(client: Client, cluster: str, pairs: Sequence[str], file: Path | None, output: str) -> None:
    """Set variables of a cluster's state: the others stay, and KEY= removes one.

    VALUE is a number, true, false, or text.
    """
    before = client.state(cluster)["state"]
    made = client.put_state(cluster, yaml_of(file)) if file else client.change_state(cluster, _values(pairs))
    changed = [(key, before.get(key), made.get(key)) for key in sorted({*before, *made})]
    text = ", ".join(f"{key} {_said(old)} -> {_said(new)}" for key, old, new in changed if old != new)
    printer.show(output, made, f"state of {cluster}: {printer.one_line(text) or 'nothing changed'}")


def _said(value: Any) -> str:
    return "none" if value is None else printer.words(value)


def _values(pairs: Sequence[str]) -> dict[str, Any]:
    """Read KEY=VALUE as YAML reads values; nothing after the sign removes the variable."""
    from yaml import YAMLError, safe_load  # most commands read no YAML

    values: dict[str, Any] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key:
            raise click.BadParameter(f"{pair[:40]!r} is not KEY=VALUE", param_hint="KEY=VALUE")
        try:
            value = safe_load(text)
        except YAMLError:
            value = text
        plain = isinstance(value, bool | int | float)
        values[key] = value if plain else text or None
    return values


@state.command()
@of_cluster
@printer.output_option
@with_secret
def show(client: Client, cluster: str, output: str) -> None:
    """Show a cluster's state as it was reported, and as selection sees it."""
    result = client.state(cluster)
    rows = [(name, value, result["effective"].get(name)) for name, value in sorted(result["state"].items())]
    table = printer.table(["VARIABLE", "REPORTED", "NOW"], rows)
    printer.show(output, result, table)


@click.group()
def subsystem() -> None:
    """Subsystem graphs of a cluster: register, delete."""


@subsystem.command()
@click.argument("graph", type=FILE)
@click.option("--cluster", required=True, help="Cluster to attach the subsystem to.")
@click.option("--name", required=True, help="Name of the subsystem, such as io, spack or power.")
@printer.output_option
@with_secret
def register(client: Client, cluster: str, graph: Path, name: str, output: str) -> None:
    """Attach the subsystem GRAPH (JSON) to a cluster, replacing any subsystem of the same name."""
    made = client.put_subsystem(cluster, name, json_of(graph))
    printer.show(output, made, printer.facts({"cluster": cluster, **made}))


@subsystem.command()
@click.argument("name")
@click.option("--cluster", required=True, help="Cluster to attach the subsystem to.")
@with_secret
def delete(client: Client, cluster: str, name: str) -> None:
    """Delete a subsystem. Jobs that require it no longer match the cluster."""
    client.delete_subsystem(cluster, name)
    click.echo(f"deleted subsystem {name} of cluster {cluster}")


@click.group()
def worker() -> None:
    """The workers of a cluster: list, show, kinds, timeline, offline, drain, reinstate."""


@worker.command(name="list")
@of_cluster
@watch_option
@printer.output_option
@with_secret
def list_workers(client: Client, cluster: str, watch: bool, output: str) -> None:
    """List the workers of a cluster and their states."""

    def show() -> bool:
        result = client.workers(cluster)
        rows = [
            (one["name"], _state(one), printer.when(one["since"]), one["missed"], _capacity(one)) for one in result
        ]
        table = printer.table(["WORKER", "STATE", "SINCE", "MISSED", "CAPACITY"], rows)
        printer.show(output, result, table)
        return True

    again(client, watch, show)


def _state(one: dict[str, Any]) -> str:
    """Say the state of a worker; one that drains and holds nothing any more is drained."""
    return "DRAINED" if one["state"] == "DRAINING" and not one.get("busy", True) else str(one["state"])


def _capacity(one: dict[str, Any]) -> dict[str, Any]:
    return printer.amounts(one["capacity"], one.get("units") or {})


VERBS = {
    "offline": "Take a worker offline: no new tasks until it is reinstated; running tasks continue (fair_share stops "
    "preemptable shares).",
    "drain": "Drain a worker: running tasks finish, no new tasks until it is reinstated.",
    "reinstate": "Return an offline, drained or quarantined worker to service.",
}


def _add(verb: str, words: str) -> None:
    @worker.command(name=verb, help=words)
    @click.argument("name")
    @click.option("--cluster", required=True)
    @printer.output_option
    @with_secret
    def move(client: Client, cluster: str, name: str, output: str) -> None:
        made = client.move_worker(cluster, name, verb)
        printer.show(output, made, printer.facts(made))


for _verb, _words in VERBS.items():
    _add(_verb, _words)


# ── what workers hold ──


@worker.command(name="show")
@click.argument("name")
@click.option("--cluster", required=True)
@printer.output_option
@with_tokens
def show_worker(client: Client, cluster: str, name: str, output: str) -> None:
    """Show a worker, what is used of it, and the tasks that hold it."""
    result = client.worker(cluster, name)
    units = result["units"] or {}
    answer = {"name": result["name"], "state": result["state"], "since": printer.when(result["since"])}
    answer |= {key: printer.amounts(result[key], units) for key in ("capacity", "used")}
    rows = [
        (one["job"], one["name"], one["requestor"], one["task"], one["state"], printer.when(one["started_at"]))
        for one in result["tasks"]
    ]
    table = printer.table(["JOB", "NAME", "USER", "TASK", "STATE", "SINCE"], rows)
    printer.show(output, result, lambda console: console.print(printer.facts(answer), *[table] * bool(rows)))


@worker.command()
@of_cluster
@printer.output_option
@with_tokens
def kinds(client: Client, cluster: str, output: str) -> None:
    """Count the workers of a cluster by kind: idle, taken, away, and what is used of all."""
    results = client.occupancy(cluster)
    units = results["units"] or {}
    rows = [
        (
            printer.amounts(one["capacity"], units),
            *(one[key] for key in ("nodes", "idle", "taken", "away")),
            *(printer.amounts(one[key], units) for key in ("used", "all")),
        )
        for one in results["kinds"]
    ]
    table = printer.table(["EACH", "NODES", "IDLE", "TAKEN", "AWAY", "USED", "OF"], rows)
    printer.show(output, results, table, results["kinds"])


@worker.command()
@of_cluster
@click.option("--hours", type=click.FloatRange(0, 8784), default=24.0, show_default=True, help="Back, and ahead.")
@printer.output_option
@with_tokens
def timeline(client: Client, cluster: str, hours: float, output: str) -> None:
    """List what ran and runs on each worker of a cluster, and what is planned, the newest first."""
    now = time.time()
    result = client.bars(cluster, now - 3600 * hours, now + 3600 * hours)
    table = printer.table(["NODE", "JOB", "NAME", "USER", "WHAT", "START", "END"], _bars(result))
    lines = [
        dict(zip(("worker", "job", "name", "user", "kind", "start", "end"), one, strict=True))
        for one in _bars(result)
    ]
    printer.show(output, result, table, lines)


def _bars(results: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    for one in results["planned"]:
        times = printer.when(one["start"]), printer.when(one["end"])
        yield "-", one["job"], one["name"], one["requestor"], "planned", *times
    columns = (results[key] for key in ("lane", "job", "user", "kind", "start", "end"))
    for lane, job, user, kind, start, end in zip(*columns, strict=True):
        whose = results["lanes"][lane], *results["jobs"][job], results["users"][user]
        yield *whose, KINDS[kind], printer.when(start), printer.when(end)


# ── all clusters ──

COUNTED = ("state", "cluster", "requestor", "reason")
DRAWN = ("waiting", "running", "nodes", "started")
KINDS = ("completed", "failed", "running")


@click.command()
@click.option("--top", type=click.IntRange(0), help="Name so many clusters (40).")
@click.option("--history", is_flag=True, help="Show the last 24 hours, noted every two minutes, instead.")
@click.option("--cluster", help="With --history: of this cluster alone.")
@click.option("--jobs-by", type=click.Choice(COUNTED), help="Count the jobs that have not ended by this instead.")
@printer.output_option
@with_tokens
def fleet(
    client: Client, top: int | None, history: bool, cluster: str | None, jobs_by: str | None, output: str
) -> None:
    """Count clusters, workers and jobs; name the clusters that need you first, and why."""
    if history:
        answer = client.series(cluster)
        table = printer.table(["TIME", *map(str.upper, DRAWN)], _points(answer))
        printer.show(output, answer, table)
    elif jobs_by:
        counts = client.job_counts(jobs_by)
        printer.show(output, counts, printer.facts(counts or {"jobs": 0}))
    else:
        _show(client.summary(top), output)


def _points(answer: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    begin = datetime.fromisoformat(answer["from"]).timestamp()
    for k, figures in enumerate(zip(*(answer[key] for key in DRAWN), strict=True)):
        if figures[0] is not None:
            yield printer.when(begin + k * answer["every"]), *figures


def _show(answer: dict[str, Any], output: str) -> None:
    shown = {key: answer[key] for key in ("clusters", "states", "workers", "jobs")}
    waiting = {"longest wait since": printer.when(answer["oldest"])} if answer["oldest"] else {}
    rows = [(one["name"], one["state"], one["running"], one["waiting"], one["why"]) for one in answer["first"]]
    table = printer.table(["CLUSTER", "STATE", "RUNNING", "WAITING", "WHY"], rows)

    def draw(console: Any) -> None:
        console.print(printer.facts({**shown, **waiting}))
        if rows:
            console.print(table)
        if answer["more"]:
            console.print(f"{answer['more']} more: rainbow fleet --top {len(rows) + answer['more']}")

    printer.show(output, answer, draw, answer["first"])
