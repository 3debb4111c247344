"""`rainbow subsystem`: register, delete."""

from __future__ import annotations

from pathlib import Path

import click

from rainbow.cli import printing
from rainbow.cli.connection import with_secret
from rainbow.cli.reading import FILE, json_of
from rainbow.client import Client


@click.group()
def subsystem() -> None:
    """Subsystem graphs of a cluster: register, delete."""


@subsystem.command()
@click.argument("graph", type=FILE)
@click.option("--cluster", required=True, help="The cluster it hangs on.")
@click.option("--name", required=True, help="What the subsystem is called: io, spack, power, ...")
@printing.output_option
@with_secret
def register(client: Client, cluster: str, graph: Path, name: str, output: str) -> None:
    """Hang the subsystem GRAPH (JSON) on a cluster, in place of one of the same name."""
    made = client.put_subsystem(cluster, name, json_of(graph))
    printing.show(output, made, lambda console: console.print(printing.facts({"cluster": cluster, **made})))


@subsystem.command()
@click.argument("name")
@click.option("--cluster", required=True, help="The cluster it hangs on.")
@with_secret
def delete(client: Client, cluster: str, name: str) -> None:
    """Take a subsystem away: nothing matches it afterwards."""
    client.delete_subsystem(cluster, name)
    click.echo(f"subsystem {name} of cluster {cluster} is deleted")
