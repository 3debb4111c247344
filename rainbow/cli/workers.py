"""`rainbow worker`: list, offline, drain, reinstate."""

from __future__ import annotations

import click

from rainbow.cli import printing
from rainbow.cli.connection import of_cluster, with_secret
from rainbow.cli.watching import again, watch_option
from rainbow.client import Client


@click.group()
def worker() -> None:
    """The workers of a cluster: list, offline, drain, reinstate."""


@worker.command(name="list")
@of_cluster
@watch_option
@printing.output_option
@with_secret
def list_workers(client: Client, cluster: str, watch: bool, output: str) -> None:
    """List the workers of a cluster and their states."""

    def show() -> bool:
        found = client.workers(cluster)
        rows = [
            (one["name"], one["state"], printing.when(one["since"]), one["missed"], one["capacity"]) for one in found
        ]
        table = printing.table(["WORKER", "STATE", "SINCE", "MISSED", "CAPACITY"], rows)
        printing.show(output, found, lambda console: console.print(table))
        return True

    again(client, watch, show)


VERBS = {
    "offline": "Take a worker away: it gets nothing new until it is reinstated.",
    "drain": "Let a worker end what it has; it gets nothing new until it is reinstated.",
    "reinstate": "Bring a worker back that was taken away, drained or quarantined.",
}


def _add(verb: str, words: str) -> None:
    @worker.command(name=verb, help=words)
    @click.argument("name")
    @click.option("--cluster", required=True)
    @printing.output_option
    @with_secret
    def move(client: Client, cluster: str, name: str, output: str) -> None:
        made = client.move_worker(cluster, name, verb)
        printing.show(output, made, lambda console: console.print(printing.facts(made)))


for _verb, _words in VERBS.items():
    _add(_verb, _words)
