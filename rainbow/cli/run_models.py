"""`rainbow model`: fit, show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click
from rich.console import Console

from rainbow.cli.exit_codes import Exit
from rainbow.cli.output import printer
from rainbow.cli.session import with_tokens
from rainbow.client import Client

WIDTH, HEIGHT = 60, 16  # of the plot, in characters

since_option = click.option("--since", metavar="DAY", help="First day of the runs, such as 2030-01-31.")
group_option = click.option(
    "--group",
    "keys",
    metavar="KEYS",
    help="Keys of like runs: `name`, `requestor`, `parameter.KEY`. Default: `name,requestor,parameter.package`.",
)
by_option = click.option(
    "--by", metavar="VARIABLE", help="One of the cluster's state, or parameter.KEY. Default: memory_per_node."
)


@click.group()
def model() -> None:
    """Linear models of run times, learned from finished runs: fit, show."""


@model.command()
@since_option
@group_option
@by_option
@printer.output_option
@with_tokens
def fit(client: Client, since: str | None, keys: str | None, by: str | None, output: str) -> None:
    """Fit a line to the runs of each group, and say which are used and how far they err."""
    result = client.models(since=since, group=keys, by=by)
    rows = [[one["group"], one["runs"], "yes" if one["used"] else "no", one["text"]] for one in result]
    printer.show(output, result, printer.table(["GROUP", "RUNS", "USED", "MODEL"], rows, wraps=True))


@model.command()
@click.argument("group")
@since_option
@group_option
@by_option
@printer.output_option
@with_tokens
def show(client: Client, group: str, since: str | None, keys: str | None, by: str | None, output: str) -> None:
    """Show the line of a GROUP, as `fit` names it, its error, and a plot of runs, line and band."""
    every = client.models(since=since, group=keys, by=by)
    result = next((one for one in every if one["group"] == group), None)
    if result is None:
        click.echo(
            f"rainbow: no runs of group {group}; there are: {', '.join(one['group'] for one in every)}", err=True
        )
        raise SystemExit(Exit.NOT_FOUND)
    printer.show(output, result, lambda console: _draw(console, result))


def _draw(console: Console, results: Mapping[str, Any]) -> None:
    numbers = {key: value for key, value in results.items() if key not in ("points", "text")}
    console.print(printer.clean(results["text"]), soft_wrap=True)
    if results["used"]:
        console.print(printer.facts(numbers))
        for line in _plot(results):
            console.print(printer.clean(line), soft_wrap=True)


def _plot(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield a plot: o is a run, * the line, : the ends of the band."""
    points, low, high = results["points"], results["lowest"], results["highest"]
    top = max(seconds for _, seconds in points)
    rows = [[" "] * WIDTH for _ in range(HEIGHT)]

    def put(value: float, seconds: float, mark: str) -> None:
        across = round((value - low) / ((high - low) or 1) * (WIDTH - 1))
        up = round(seconds / (top or 1) * (HEIGHT - 1))
        if 0 <= up < HEIGHT:
            rows[HEIGHT - 1 - up][across] = mark

    for k in range(WIDTH):
        value = low + (high - low) * k / (WIDTH - 1)
        line = results["slope"] * value + results["intercept"]
        for seconds, mark in ((line + results["below"], ":"), (line + results["above"], ":"), (line, "*")):
            put(value, seconds, mark)
    for value, seconds in points:
        put(value, seconds, "o")
    yield f"{top:.4g} s"
    yield from (f"|{''.join(row)}" for row in rows)
    yield f"+{'-' * WIDTH}"
    yield f" {low:g}{f'{high:g}'.rjust(WIDTH - len(f'{low:g}'))}  {results['by']}"
