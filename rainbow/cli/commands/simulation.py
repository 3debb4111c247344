"""`rainbow simulate` and `rainbow policy simulate`: recorded jobs under other clusters, policies and selection."""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from math import inf, isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

import click
from rich.console import Console

from rainbow.cli.commands.policy import policy, rules_of
from rainbow.cli.commands.server_admin import store_options, url_of
from rainbow.cli.exit_codes import Exit
from rainbow.cli.input import settings_file
from rainbow.cli.input.files import clusters_of, naming, text_of
from rainbow.cli.output import printer
from rainbow.errors import PolicyError, RequestError, SelectionError
from rainbow.jobspec.yaml_reader import Limits, load
from rainbow.simulation import (
    Arrival,
    Comparison,
    Figures,
    Governed,
    Outcome,
    World,
    check_variables,
    compare,
    figures,
    from_history,
    machine,
    max_procs,
    offered_load,
    picture,
    read_trace,
    simulate,
)
from rainbow.simulation.comparison import FULL
from rainbow.simulation.figures import NAMES
from rainbow.text import some

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OPTIONS = "/scheduler/algorithms/selection/options"  # of a server's configuration
SCHEDULER = "scheduler"  # the key of a server's configuration: it says how clusters are selected
SECONDS = {"wait", "response", "p95_wait", "longest_wait"}


@dataclass(frozen=True, slots=True)
class Source:
    """What is simulated: windows of jobs, the world as it was, and what reading it left out or assumed."""

    windows: Sequence[Sequence[Arrival]]
    world: World
    notes: Counter[str]


def _source_options(windows: int) -> Callable[[Any], Any]:
    """Give a command its source."""

    def add(command: Callable[..., Any]) -> Any:
        @functools.wraps(command)
        def run(**options: Any) -> Any:
            names = ("trace", "history", "clusters", "cores", "jobs", "windows", "database", "config")
            return command(source=read_source(**{name: options.pop(name) for name in names}), **options)

        for option in (
            click.option("--json", "as_json", is_flag=True, help="Same as -o json."),
            click.option("--seed", type=int, default=0, show_default=True, help="Seed of random choices."),
            click.option(
                "--windows",
                type=click.IntRange(1, 1000),
                default=windows,
                show_default=True,
                help="Number of parts of equal size into which the jobs are divided.",
            ),
            click.option(
                "--jobs", type=click.IntRange(1), help="Number of jobs, the first of the source. Default: all."
            ),
            click.option(
                "--cores",
                type=click.IntRange(1),
                help="Cores of the one machine of a trace. Default: MaxProcs of its header, else its widest job.",
            ),
            click.option(
                "--clusters",
                type=click.Path(exists=True, path_type=Path),
                multiple=True,
                help="Cluster graph or directory of cluster graphs to simulate instead. Repeatable.",
            ),
            click.option(
                "--history",
                metavar="FROM..TO",
                help="Simulate the jobs that a server received in this time (dates or RFC 3339 times).",
            ),
            click.argument("trace", type=FILE, required=False),
        ):
            run = option(run)
        return store_options(run)

    return add


def read_source(
    trace: Path | None,
    history: str | None,
    clusters: Sequence[Path],
    cores: int | None,
    jobs: int | None,
    windows: int,
    database: str | None,
    config: Path | None,
) -> Source:
    """Read a trace or a server's history; a usage error if it is none or both."""
    if (trace is None) == (history is None):
        raise click.UsageError("give a TRACE (*.swf, *.swf.gz) or --history FROM..TO")
    notes: Counter[str] = Counter()
    if trace is not None:
        with naming(trace):
            arrivals = list(read_trace(trace, notes=notes))
            world = World([machine(cores or max_procs(trace) or max((one.slots for one in arrivals), default=1))])
    else:
        arrivals, world = _recorded(str(history), url_of(database, config), notes)
    if clusters:
        world = replace(world, clusters=clusters_of(clusters), recorded=False)
    arrivals = arrivals[:jobs]
    if not arrivals:
        none = f"{trace} has no line of a job" if trace else "none was submitted in that time"
        raise RequestError(f"no job to simulate: {_noted(notes) or none}")
    return Source(_divided(arrivals, windows), world, notes)


def _divided(arrivals: Sequence[Arrival], windows: int) -> list[Sequence[Arrival]]:
    """Divide jobs into windows of equal size, in order; the last jobs that fill none are left out."""
    size = max(1, len(arrivals) // windows)
    return [arrivals[k * size : (k + 1) * size] for k in range(min(windows, len(arrivals) // size))]


def _recorded(history: str, database: str, notes: Counter[str]) -> tuple[list[Arrival], World]:
    from rainbow.service.queries.history import read_history  # the database is the server's alone

    result = read_history(database, *_span(history))
    governed = {name: Governed(*one) for name, one in result.governed.items()}
    return list(from_history(result.rows, notes)), World(result.clusters, governed, recorded=True, rules=result.rules)


def _span(history: str) -> tuple[float, float]:
    """Read FROM..TO; either may be left out.

    >>> _span("..2026-01-01T00:00:00Z")
    (-inf, 1767225600.0)
    """
    begin, dots, end = history.partition("..")
    try:
        span = _moment(begin, -inf), _moment(end, inf)
    except ValueError:
        raise click.UsageError(f"--history must be FROM..TO, two dates or RFC 3339 times, got {history!r}") from None
    if not dots or not span[0] < span[1]:
        raise click.UsageError(f"--history must be FROM..TO, the earlier time first, got {history!r}")
    return span


def _moment(text: str, default: float) -> float:
    return datetime.fromisoformat(text.strip()).timestamp() if text.strip() else default


# ── worlds ──


def world_of(file: Path | None, world: World) -> World:
    """Return a world under a file: settings of a policy ({policy, settings}), or a server's configuration."""
    if file is None:
        return world
    with naming(file):
        document, _ = load(text_of(file), Limits())
    if isinstance(document, Mapping) and SCHEDULER in document:
        rules = rules_of(file)
        return replace(world, selector=rules.selector, options=rules.options, recorded=False)
    options = settings_file.read(file, None)
    governed = Governed(options.policy or "priority", options.settings)
    with options.located():
        try:
            governed.checked()
        except PolicyError as fault:
            fault.pointer = f"{settings_file.SETTINGS}{fault.pointer or ''}"
            raise
    return replace(world, governed={"": governed})


class NotSimulated(click.ClickException):
    """A configuration reads what a simulation does not have."""

    exit_code = Exit.USAGE


def check_reads(file: Path | None, world: World, windows: Sequence[Sequence[Arrival]]) -> None:
    """End with what a configuration's selection reads and a simulation does not have, and where that stands."""
    try:
        check_variables(world, [one for window in windows for one in window])
    except SelectionError as fault:
        raise NotSimulated(f"simulate: {file}: {OPTIONS}{fault.pointer}: {fault.message}") from None


@contextmanager
def _processes(windows: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """Yield a `map` that works window by window in as many processes as there are processors; they give way."""
    with ProcessPoolExecutor(min(windows, os.cpu_count() or 1), initializer=_give_way) as pool:
        yield pool.map


def _give_way() -> None:
    if hasattr(os, "nice"):
        os.nice(10)


# ── simulate ──


@click.command(name="simulate")
@_source_options(windows=1)
@click.option(
    "--policy",
    "file",
    type=FILE,
    help="Settings of a scheduling policy ({policy, settings}), or a server configuration, to simulate under.",
)
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write a picture to: jobs waiting, waits and utilization over time (of the first window).",
)
@printer.output_option
def simulate_command(
    source: Source, file: Path | None, svg: Path | None, seed: int, as_json: bool, output: str
) -> None:
    """Run recorded jobs through matching, selection and scheduling in virtual time: waits, slowdown, utilization.

    TRACE is a workload in the Standard Workload Format (*.swf, *.swf.gz), run on one machine or on --clusters.
    --history takes the jobs, clusters and policies of a server from its database instead.
    """
    world = world_of(file, source.world)
    check_reads(file, world, source.windows)
    with _processes(len(source.windows)) as each:
        outcomes = list(each(functools.partial(_simulated, world, seed), source.windows))
    if svg is not None:
        svg.write_text(picture(outcomes[0], svg.stem))
    shown = _written(outcomes, source.notes)
    printer.show("json" if as_json else output, shown, lambda console: _draw(console, shown))


def _simulated(world: World, seed: int, window: Sequence[Arrival]) -> Outcome:
    return simulate(world, window, seed)


def _written(outcomes: Sequence[Outcome], notes: Mapping[str, int]) -> dict[str, Any]:
    every = [figures(outcome) for outcome in outcomes]
    means = {one.name: fmean(getattr(each, one.name) for each in every) for one in fields(Figures)}
    means["longest_wait"] = max(one.longest_wait for one in every)
    load = fmean(map(offered_load, outcomes))
    full = f"offered load {load:.2f}: above {FULL} the backlog grows for as long as jobs arrive, and waits with it"
    return {
        "windows": len(outcomes),
        "jobs": sum(one.jobs for one in every),
        "figures": {name: means[name] for name in NAMES},
        "offered_load": load,
        "plans": sum(one.plans for one in outcomes),
        "left_out": dict(sum((Counter(one.left_out) for one in outcomes), Counter())),
        "notes": dict(notes),
        "warnings": [full] if load > FULL else [],
    }


def _draw(console: Console, shown: Mapping[str, Any]) -> None:
    console.print(
        printer.table(["FIGURE", "VALUE"], [[name, _said(name, value)] for name, value in shown["figures"].items()])
    )
    console.print(
        f"{some(shown['jobs'], 'job')} counted in {some(shown['windows'], 'window')}, after the first tenth"
    )
    _draw_notes(console, shown)


def _draw_notes(console: Console, shown: Mapping[str, Any]) -> None:
    for reasons in (shown["notes"], shown["left_out"]):
        for reason, count in reasons.items():
            console.print(f"{some(count, 'job')}: {reason}")
    for warning in shown["warnings"]:
        console.print(f"warning: {warning}")


def _noted(notes: Mapping[str, int]) -> str:
    return ", ".join(f"{some(count, 'job')}: {reason}" for reason, count in notes.items())


def _said(name: str, value: float) -> str:
    return f"{value:,.0f} s" if name in SECONDS else f"{value:.1%}" if name == "utilization" else f"{value:,.2f}"


# ── policy simulate ──

_CONDITION = re.compile(r"\s*(\w+)\s*([<>])=?\s*([0-9.]+)\s*$")


def _condition(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, str, float] | None:
    """Read a condition like "slowdown > 1.05"."""
    result = _CONDITION.match(value or "")
    if value is None:
        return None
    if not result or result[1] not in NAMES:
        raise click.BadParameter(
            f"expected FIGURE > RATIO or FIGURE < RATIO, where FIGURE is one of {', '.join(NAMES)}"
        )
    return result[1], result[2], float(result[3])


@policy.command(name="simulate")
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
@_source_options(windows=10)
@click.option(
    "--fail-if",
    "condition",
    metavar="CONDITION",
    callback=_condition,
    help='Exit 1 if the whole 95 % interval of a ratio new/old meets this, as in "slowdown > 1.05".',
)
@printer.output_option
def policy_simulate(
    source: Source,
    old: Path,
    new: Path,
    seed: int,
    as_json: bool,
    output: str,
    condition: tuple[str, str, float] | None,
) -> None:
    """Compare two configurations on recorded jobs: what would change, with 95 % intervals over paired windows.

    OLD and NEW are settings of a scheduling policy ({policy, settings}) or server configurations. TRACE and --history
    are as in `rainbow simulate`. An interval that contains 1 shows no difference.
    """
    both = world_of(old, source.world), world_of(new, source.world)
    for one, world in zip((old, new), both, strict=True):
        check_reads(one, world, source.windows)
    with _processes(len(source.windows)) as each:
        result = compare(*both, source.windows, seed, each)
    shown = _compared(result, source.notes)
    printer.show("json" if as_json else output, shown, lambda console: _draw_comparison(console, result, shown))
    if condition and _holds(result, *condition):
        click.echo(f"rainbow: {condition[0]} {condition[1]} {condition[2]:g} holds for the whole interval", err=True)
        click.get_current_context().exit(Exit.ERROR)


def _holds(comparison: Comparison, name: str, sign: str, bound: float) -> bool:
    ratio = comparison.of(name)
    return ratio.low > bound if sign == ">" else ratio.high < bound


def _compared(comparison: Comparison, notes: Mapping[str, int]) -> dict[str, Any]:
    def ratios(listed: Iterable[Any]) -> dict[str, Any]:
        return {one.name: {**_finite(asdict(one)), "verdict": one.verdict} for one in listed}

    return {
        "windows": comparison.windows,
        "jobs": comparison.jobs,
        "ratios": ratios(comparison.ratios),
        "by": {part: ratios(listed) for part, listed in comparison.by.items()},
        "moved": {name: {"later": later, "earlier": earlier} for name, (later, earlier) in comparison.moved.items()},
        "left_out": dict(comparison.left_out),
        "notes": dict(notes),
        "warnings": list(comparison.warnings),
    }


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and not isfinite(value) else value for key, value in values.items()}


def _draw_comparison(console: Console, comparison: Comparison, shown: Mapping[str, Any]) -> None:
    rows = [
        [
            one.name,
            _said(one.name, one.old),
            _said(one.name, one.new),
            f"{one.ratio:.2f} [{one.low:.2f}, {one.high:.2f}]",
            one.verdict,
        ]
        for one in comparison.ratios
    ]
    console.print(printer.table(["FIGURE", "OLD", "NEW", "NEW/OLD [95 %]", ""], rows))
    moved = sorted(comparison.moved.items(), key=lambda one: -sum(one[1]))[:10]
    if moved:
        console.print(printer.table(["USER", "LATER", "EARLIER"], [[name or "-", *counts] for name, counts in moved]))
    windows = some(comparison.windows, "window")
    console.print(f"{some(comparison.jobs, 'job')} counted in {windows}, after the first tenth of each")
    console.print("later and earlier: ends that differ by over 10 minutes and 10 % of the old response")
    _draw_notes(console, shown)
