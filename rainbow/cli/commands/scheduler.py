"""`rainbow scheduler`: run the scheduler alone; show, plan, step, set, check, changes, timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console

from rainbow.cli.commands.events import again, watch_option
from rainbow.cli.commands.server_admin import store_options, url_of
from rainbow.cli.input import settings_file
from rainbow.cli.input.files import FILE
from rainbow.cli.output import printer
from rainbow.cli.session import of_cluster, with_secret
from rainbow.client import Client
from rainbow.errors import PolicyError
from rainbow.scheduling import Warns, policies


@click.group(invoke_without_command=True)
@store_options
@click.pass_context
def scheduler(context: click.Context, database: str | None, config: Path | None) -> None:
    """Without a subcommand, run the scheduler as a separate process next to `rainbow serve --no-scheduler`, until
    interrupted.

    Several may run on one PostgreSQL; one at a time steps a cluster. The commands are about the scheduling of a
    cluster: show, plan, step, set, check, changes, timeline.
    """
    if context.invoked_subcommand is None:
        from rainbow.api.server import schedule  # the database is the server's alone

        schedule(url_of(database, config), str(config) if config else None)


@scheduler.command()
@of_cluster
@watch_option
@printer.output_option
@with_secret
def show(client: Client, cluster: str, watch: bool, output: str) -> None:
    """Show a cluster's policy, its settings and its figures."""

    def draw() -> bool:
        result = client.scheduler(cluster)
        printer.show(output, result, lambda console: draw_scheduling(console, result))
        return True

    again(client, watch, draw)


@scheduler.command()
@of_cluster
@click.option("--with", "given", type=FILE, help="Suppose the jobs, settings and workers of a YAML or JSON file.")
@printer.output_option
@with_secret
def plan(client: Client, cluster: str, given: Path | None, output: str) -> None:
    """Show what the next scheduling cycle would do (dry run)."""
    result = settings_file.asked(given, lambda what: client.plan(cluster, what)) if given else client.plan(cluster)
    printer.show(output, result, lambda console: _draw_plan(console, result))


@scheduler.command()
@of_cluster
@printer.output_option
@with_secret
def step(client: Client, cluster: str, output: str) -> None:
    """Run one scheduling cycle now, for a server started with --no-loop."""
    result = client.step(cluster)
    printer.show(output, result, printer.facts(result))


def _draw_plan(console: Console, results: Mapping[str, Any]) -> None:
    orders = [(one["order"], one.get("task") or one.get("job"), _where(one)) for one in results["orders"]]
    console.print(printer.table(["ORDER", "TASK", "PLACEMENT OR REASON"], orders))
    console.print()
    waits = [(one["job"], one["reason"], one["text"]) for one in results["waits"]]
    console.print(printer.table(["WAITS", "REASON", "TEXT"], waits))


def _where(order: Mapping[str, Any]) -> str:
    return str(order["why"]) if "why" in order else ", ".join(name for name in order.get("placement", {}) if name)


def _pairs(_: click.Context, option: click.Parameter, inputs: tuple[str, ...]) -> list[tuple[str, str]]:
    """Split NAME=VALUE at the last sign of equality: an expression may hold others."""
    result = []
    for text in inputs:
        name, equals, value = text.rpartition("=")
        if not (equals and name and value):
            raise click.BadParameter(f"invalid value {text!r}: expected {option.metavar}")
        result.append((name, value))
    return result


LIMIT, COUNT = click.IntRange(min=-1), click.IntRange(min=0)
LIMITS = ["throttle", "max_requestors", "max_jobs_per_requestor", "max_waiting_tasks", "max_retries"]
LIMITS += [
    "max_lost",
    "quarantine_after_lost",
    "quarantine_after",
    "quarantine_minutes",
    "task_minutes",
    "allowance_seconds",
]
LIMITS += ["max_reservations_per_requestor", "reservation_days"]


@scheduler.command(name="set")
@of_cluster
@click.option("--policy", help="Scheduling policy, effective at the next scheduling cycle.")
@click.option(
    "--class",
    "classes",
    multiple=True,
    metavar="NAME=PERCENT",
    callback=_pairs,
    help="Classes with their load percentages; replaces the whole list.",
)
@click.option("--default-class", help="Class for users that match no expression.")
@click.option(
    "--requestor",
    "requestors",
    multiple=True,
    metavar="EXPRESSION=CLASS",
    callback=_pairs,
    help="User expressions in order of evaluation; replaces the whole list.",
)
@click.option(
    "--unit",
    help="What percentages are of: a resource type that jobs share, such as core, or whole workers (worker).",
)
@click.option(
    "--rounding", type=click.Choice(["exact", "classic"]), help="Rounding of load_based shares: exact or classic."
)
@click.option(
    "--rebalance-threshold",
    type=click.FloatRange(min=0),
    help="Rebalance when the imbalance exceeds this many percentage points; 0 disables rebalancing.",
)
@click.option(
    "--rebalance-minimum-duration",
    type=click.FloatRange(min=0),
    help="Minutes the imbalance must exceed the threshold before rebalancing.",
)
@click.option(
    "--visibility",
    type=click.Choice(["all", "own"]),
    help="Jobs that a token of some users sees: all of the cluster, or their own.",
)
@click.option(
    "--throttle",
    type=LIMIT,
    help="Maximum number of waiting and running tasks; 0 rejects all jobs, -1 means no limit.",
)
@click.option("--max-requestors", type=LIMIT, help="Maximum number of users with active jobs; -1 means no limit.")
@click.option(
    "--max-jobs-per-requestor", type=LIMIT, help="Maximum number of active jobs per user; -1 means no limit."
)
@click.option("--max-waiting-tasks", type=LIMIT, help="Maximum number of waiting tasks; -1 means no limit.")
@click.option("--max-retries", type=COUNT, help="Number of times a failed or timed-out task is retried.")
@click.option("--max-lost", type=COUNT, help="Most lost attempts of a task before it has failed; 0 is no limit.")
@click.option("--quarantine-after-lost", type=COUNT, help="Losses in a row that put a worker away; 0: never.")
@click.option(
    "--quarantine-after",
    type=COUNT,
    help="Quarantine a worker after this many consecutive failed starts; 0 disables quarantine.",
)
@click.option("--quarantine-minutes", type=COUNT, help="Minutes a quarantined worker receives no tasks.")
@click.option(
    "--task-minutes",
    type=COUNT,
    help="Default time limit, in minutes, of tasks without a duration; 0 means no limit.",
)
@click.option(
    "--allowance-seconds",
    type=COUNT,
    help="Grace period, in seconds, after a task's time limit before it is stopped.",
)
@click.option(
    "--max-reservations-per-requestor",
    type=LIMIT,
    help="Maximum number of advance reservations per user; -1 means no limit.",
)
@click.option("--reservation-days", type=COUNT, help="Maximum length of a reservation in days; 0 means no limit.")
@click.option(
    "--replace/--no-replace", default=None, help="Move waiting jobs to where they are expected to end sooner."
)
@click.option(
    "--settings",
    "file",
    type=FILE,
    help="YAML or JSON file with settings, or {policy, settings}; other options override it.",
)
@printer.output_option
@with_secret
def set_scheduler(client: Client, cluster: str, output: str, **options: Any) -> None:
    """Change a cluster's policy, settings, limits or visibility. Options not given keep their value."""
    file, policy = options.pop("file"), options.pop("policy")
    written = settings_file.read(file, policy) if file else None
    own, policy = (written.settings, written.policy) if written else ({}, policy)
    change = {key: value for key, value in _change(own, policy, **options) if value}
    if not change:
        raise click.UsageError("nothing to change: give at least one option")
    before = client.scheduler(cluster)
    with written.located() if written else nullcontext():
        made = client.set_scheduler(cluster, change)
    printer.show(output, made, lambda console: _draw_change(console, cluster, before, made))


def _draw_change(console: Console, cluster: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Show in a line each what is another now; of another policy its name alone, for all its settings are new."""
    parts = [("policy", before["policy"], after["policy"]), ("visibility", before["visibility"], after["visibility"])]
    for section in ("limits", *(("settings",) if before["policy"] == after["policy"] else ())):
        parts += [(key, before[section].get(key), value) for key, value in after[section].items()]
        parts += [(key, value, None) for key, value in before[section].items() if key not in after[section]]
    changed = [(key, old, new) for key, old, new in parts if old != new]
    for key, old, new in changed:
        said = f"{key} of {cluster}: {printer.words(old)} -> {printer.words(new)}"
        console.print(printer.one_line(said), markup=False, soft_wrap=True)
    if not changed:
        console.print(f"{cluster}: nothing changed", markup=False)
    _draw_warnings(console, after["warnings"], "")


def _change(own: Mapping[str, Any], policy: str | None, **options: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a change from the options."""
    yield "policy", policy
    yield "visibility", options.pop("visibility")
    limits, sooner = {key: options.pop(key) for key in LIMITS}, options.pop("replace")
    replace: dict[str, Any] = {} if sooner is None else {"replace": {} if sooner else None}
    yield "limits", {**{key: value for key, value in limits.items() if value is not None}, **replace}
    classes, requestors = options.pop("classes"), options.pop("requestors")
    named = {
        **options,
        "classes": {name: _number(percent) for name, percent in classes} or None,
        "requestors": [{"match": match, "class": name} for match, name in requestors] or None,
    }
    yield "settings", {**own, **{key: value for key, value in named.items() if value is not None}}


def _number(text: str) -> float:
    try:
        return float(text) if not text.isdecimal() else int(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number") from None


@scheduler.command()
@of_cluster
@click.option("--settings", "file", type=FILE, help="Check this YAML or JSON file instead of what is set.")
@click.option("--policy", help="Policy whose settings FILE contains, if FILE does not name it.")
@printer.output_option
@with_secret
def check(client: Client, cluster: str, file: Path | None, policy: str | None, output: str) -> None:
    """Check settings against the cluster, and change nothing: faults, and names that it does not have.

    Exits 1 if there is a warning.
    """
    result = client.scheduler(cluster)
    warnings = result["warnings"]
    if file is not None:
        warnings = _warnings(settings_file.read(file, policy), result["policy"], client, cluster)
    printer.show(output, {"warnings": warnings}, lambda console: _draw_warnings(console, warnings), warnings)
    if warnings:
        raise SystemExit(1)


def _warnings(written: settings_file.SettingsFile, policy: str, client: Client, cluster: str) -> list[Any]:
    """Return what is doubtful about a file of settings; PolicyError says where it is wrong."""
    chosen = policies.get(written.policy or policy)
    with written.located():
        try:
            checked = chosen.check(written.settings)
        except PolicyError as fault:
            fault.pointer = f"{settings_file.SETTINGS}{fault.pointer or ''}"
            raise
    workers = [worker["id"] for worker in client.workers(cluster)]
    return list(chosen.warnings(checked, (), workers)) if isinstance(chosen, Warns) else []


def _draw_warnings(console: Console, warnings: Sequence[Mapping[str, Any]], none: str = "no warnings") -> None:
    for warning in warnings:
        console.print(printer.clean(f"warning: {warning['text']}"), soft_wrap=True)
    if not warnings and none:
        console.print(none)


@scheduler.command()
@of_cluster
@printer.output_option
@with_secret
def changes(client: Client, cluster: str, output: str) -> None:
    """Show the change history of a cluster's policy, settings and limits, newest first.

    Settings that end with their policy are listed with -o json.
    """
    result = client.scheduler_changes(cluster)
    switched = {one["changed_at"] for one in result if one["what"] == "policy"}
    rows = [
        (printer.when(one["changed_at"]), one["who"], one["what"], one["from"], one["to"])
        for one in result
        if one["to"] is not None or one["changed_at"] not in switched  # settings that only the policy before had
    ]
    printer.show(output, result, printer.table(["WHEN", "WHO", "WHAT", "FROM", "TO"], rows))


@scheduler.command()
@of_cluster
@click.option("--svg", type=click.File("w"), help="Write a Gantt chart to this file (- for stdout).")
@printer.output_option
@with_secret
def timeline(client: Client, cluster: str, svg: TextIO | None, output: str) -> None:
    """Show planned resource use over time for each worker."""
    result = client.timeline(cluster)
    if svg is not None:
        svg.write(result["svg"])
    else:
        printer.show(output, result, lambda console: _draw_timeline(console, result["text"]), result["lines"])


def _draw_timeline(console: Console, text: str) -> None:
    if text:
        console.print("WORKER TYPE of CAPACITY  SECONDS FROM NOW:IN USE FROM THEN ON", style="bold", soft_wrap=True)
    console.print(printer.clean(text) if text else "no resources are in use or reserved", soft_wrap=True)


MOST, ALWAYS = 20, 3  # lines of a list; columns of it that are shown whatever they say
TITLES = ["CLASS", "LOAD %", "RUNNING", "WAITING", "ENTITLEMENT", "LOANED", "UNUSED"]
COLUMNS = ["percent", "running", "waiting", "target", "loaned", "unused"]


def draw_scheduling(console: Console, results: Mapping[str, Any]) -> None:
    """Draw the table of the founding text with the numbers of the moment."""
    figures = dict(results["figures"])
    classes = figures.pop("classes", {}) if results["policy"] == "load_based" else {}
    tables = {name: figures.pop(name) for name in list(figures) if _alike(figures[name])}
    lists = {name: figures.pop(name) for name in list(figures) if _listed(figures[name])}
    rest = {key: value for key, value in results.items() if key not in ("figures", "settings", "limits", "warnings")}
    console.print(printer.facts({**rest, **results.get("settings", {}), **results.get("limits", {}), **figures}))
    if classes:
        rows = [[name, *(row[column] for column in COLUMNS)] for name, row in classes.items()]
        console.print()
        console.print(printer.table(TITLES, rows))
    for name, part in tables.items():
        _draw_part(console, name, part)
    for name, lines in lists.items():
        _draw_list(console, name, lines)
    if results.get("warnings"):
        _draw_warnings(console, results["warnings"])


def _draw_part(console: Console, name: str, part: Mapping[str, Mapping[str, Any]]) -> None:
    titles = list(next(iter(part.values())))
    console.print()
    console.print(printer.table([name, *titles], [[key, *line.values()] for key, line in part.items()]))


def _alike(part: Any) -> bool:
    """Whether something is a mapping of lines that have the same columns."""
    lines = list(part.values()) if isinstance(part, Mapping) else []
    return bool(lines) and all(isinstance(line, Mapping) and list(line) == list(lines[0]) for line in lines)


def _draw_list(console: Console, name: str, lines: Sequence[Mapping[str, Any]]) -> None:
    """Draw the first lines of a list; after the first columns, what is 0 in every line says nothing."""
    shown = lines[:MOST]
    every = list(dict.fromkeys(title for line in shown for title in line))
    titles = [title for k, title in enumerate(every) if k < ALWAYS or any(line.get(title) for line in shown)]
    console.print()
    console.print(f"{printer.clean(name)}:", style="bold")
    console.print(printer.table(titles, [[line.get(title) for title in titles] for line in shown]))
    if len(lines) > MOST:
        console.print(f"and {len(lines) - MOST} more")


def _listed(part: Any) -> bool:
    """Whether something is a list of mappings."""
    return isinstance(part, list) and bool(part) and all(isinstance(line, Mapping) for line in part)
