"""`rainbow scheduler`: show."""

from __future__ import annotations

import click

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
    printing.show(output, found, lambda console: console.print(printing.facts(found)))
