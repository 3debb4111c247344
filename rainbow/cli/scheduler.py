"""`rainbow scheduler`: show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console

from rainbow.cli import printing
from rainbow.cli.connection import with_secret
from rainbow.client import Client


@click.group()
def scheduler() -> None:
    """The scheduling policy of a cluster: show."""


@scheduler.command()
@click.option("--cluster", required=True)
@printing.output_option
@with_secret
def show(client: Client, cluster: str, output: str) -> None:
    """Show a cluster's policy, its settings and its figures."""
    found = client.scheduler(cluster)
    printing.show(output, found, lambda console: _draw(console, found))


def _draw(console: Console, found: Mapping[str, Any]) -> None:
    """Draw what is set, then every part of the figures whose lines are alike as a table."""
    figures = found.get("figures") or {}
    tables = {"class": figures} if _alike(figures) else {name: part for name, part in figures.items() if _alike(part)}
    rest = {} if _alike(figures) else {name: part for name, part in figures.items() if name not in tables}
    console.print(printing.facts({**found, "figures": rest}))
    for name, part in tables.items():
        titles = list(next(iter(part.values())))
        console.print()
        console.print(printing.table([name, *titles], [[key, *line.values()] for key, line in part.items()]))


def _alike(part: Any) -> bool:
    """Whether something is a mapping of lines that have the same columns."""
    lines = list(part.values()) if isinstance(part, Mapping) else []
    return bool(lines) and all(isinstance(line, Mapping) and list(line) == list(lines[0]) for line in lines)
