"""`rainbow worker`: list."""

from __future__ import annotations

import click

from rainbow.cli import printing
from rainbow.cli.connection import with_secret
from rainbow.client import Client


@click.group()
def worker() -> None:
    """The workers of a cluster: list."""


@worker.command(name="list")
@click.option("--cluster", required=True)
@printing.output_option
@with_secret
def list_workers(client: Client, cluster: str, output: str) -> None:
    """List the workers of a cluster and their states."""
    found = client.workers(cluster)
    rows = [(one["name"], one["state"], printing.when(one["since"]), one["capacity"]) for one in found]
    table = printing.table(["WORKER", "STATE", "SINCE", "CAPACITY"], rows)
    printing.show(output, found, lambda console: console.print(table))
