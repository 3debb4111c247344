"""`rainbow state`: set, show."""

from __future__ import annotations

from pathlib import Path

import click

from rainbow.cli import printing
from rainbow.cli.connection import of_cluster, with_secret
from rainbow.cli.reading import FILE, yaml_of
from rainbow.client import Client


@click.group()
def state() -> None:
    """The flat state of a cluster that selection sees: set, show."""


@state.command(name="set")
@click.argument("file", type=FILE)
@click.option("--cluster", required=True)
@printing.output_option
@with_secret
def set_state(client: Client, cluster: str, file: Path, output: str) -> None:
    """Replace a cluster's state by that of FILE, YAML or JSON."""
    made = client.put_state(cluster, yaml_of(file))
    printing.show(output, made, lambda console: console.print(printing.facts(made)))


@state.command()
@of_cluster
@printing.output_option
@with_secret
def show(client: Client, cluster: str, output: str) -> None:
    """Show a cluster's state as it was reported, and as selection sees it."""
    found = client.state(cluster)
    rows = [(name, value, found["effective"].get(name)) for name, value in sorted(found["state"].items())]
    table = printing.table(["VARIABLE", "REPORTED", "NOW"], rows)
    printing.show(output, found, lambda console: console.print(table))
