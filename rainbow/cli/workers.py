"""`rainbow worker`: list, offline, drain, reinstate."""

from __future__ import annotations

import click

from rainbow.cli import printing
from rainbow.cli.connection import with_secret
from rainbow.client import Client


@click.group()
def worker() -> None:
    """The workers of a cluster: list, offline, drain, reinstate."""


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


def _verb(name: str, words: str) -> None:
    @worker.command(name=name, help=words)
    @click.argument("names", nargs=-1, required=True, metavar="WORKER...")
    @click.option("--cluster", required=True)
    @printing.output_option
    @with_secret
    def move(client: Client, cluster: str, names: tuple[str, ...], output: str) -> None:
        found = [client.move_worker(cluster, one, name) for one in names]
        table = printing.table(["WORKER", "STATE"], [(one["name"], one["state"]) for one in found])
        printing.show(output, found, lambda console: console.print(table))


_verb("offline", "Take workers away: they are given nothing more.")
_verb("drain", "Let workers end what they have, and take nothing new.")
_verb("reinstate", "Let workers be given tasks again.")
