"""`rainbow scheduler`: run the scheduler alone; show."""

from __future__ import annotations

from pathlib import Path

import click

from rainbow.cli import printing
from rainbow.cli.connection import with_secret
from rainbow.cli.database import store_options, url_of
from rainbow.client import Client


@click.group(invoke_without_command=True)
@store_options
@click.pass_context
def scheduler(context: click.Context, database: str | None, config: Path | None) -> None:
    """Without a command: step the clusters of a store until a signal comes, beside `rainbow serve --no-scheduler`.

    Several may run on one PostgreSQL; one at a time steps a cluster. The commands are about a cluster's policy.
    """
    if context.invoked_subcommand is None:
        from rainbow.api.server import schedule  # the database is the server's alone

        schedule(url_of(database, config), str(config) if config else None)


@scheduler.command()
@click.option("--cluster", required=True)
@printing.output_option
@with_secret
def show(client: Client, cluster: str, output: str) -> None:
    """Show a cluster's policy, its settings and its figures."""
    found = client.scheduler(cluster)
    printing.show(output, found, lambda console: console.print(printing.facts(found)))
