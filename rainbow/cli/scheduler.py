"""`rainbow scheduler`: show, timeline."""

from __future__ import annotations

from typing import TextIO

import click

from rainbow.cli import printing
from rainbow.cli.connection import with_secret
from rainbow.client import Client


@click.group()
def scheduler() -> None:
    """The scheduling policy of a cluster: show, timeline."""


@scheduler.command()
@click.option("--cluster", required=True)
@printing.output_option
@with_secret
def show(client: Client, cluster: str, output: str) -> None:
    """Show a cluster's policy, its settings and its figures."""
    found = client.scheduler(cluster)
    printing.show(output, found, lambda console: console.print(printing.facts(found)))


@scheduler.command()
@click.argument("cluster")
@click.option("--svg", type=click.File("w"), help="Write a Gantt chart to this file (- for stdout).")
@printing.output_option
@with_secret
def timeline(client: Client, cluster: str, svg: TextIO | None, output: str) -> None:
    """Show what is in use over time after the next step, worker by worker."""
    found = client.timeline(cluster)
    if svg is not None:
        svg.write(found["svg"])
    else:
        printing.show(output, found, lambda console: console.print(found["text"], markup=False, soft_wrap=True))
