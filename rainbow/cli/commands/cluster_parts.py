"""`rainbow subsystem`, `rainbow state` and `rainbow worker`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rainbow.cli.commands.events import again, watch_option
from rainbow.cli.input.files import FILE, json_of, yaml_of
from rainbow.cli.output import printer
from rainbow.cli.session import of_cluster, with_secret
from rainbow.client import Client


@click.group()
def state() -> None:
    """Manage the key-value state of a cluster used by selection: set, show."""


@state.command(name="set")
@click.argument("file", type=FILE)
@click.option("--cluster", required=True)
@printer.output_option
@with_secret
def set_state(client: Client, cluster: str, file: Path, output: str) -> None:
    """Replace a cluster's state by that of FILE, YAML or JSON."""
    made = client.put_state(cluster, yaml_of(file))
    printer.show(output, made, lambda console: console.print(printer.facts(made)))


@state.command()
@of_cluster
@printer.output_option
@with_secret
def show(client: Client, cluster: str, output: str) -> None:
    """Show a cluster's state as it was reported, and as selection sees it."""
    found = client.state(cluster)
    rows = [(name, value, found["effective"].get(name)) for name, value in sorted(found["state"].items())]
    table = printer.table(["VARIABLE", "REPORTED", "NOW"], rows)
    printer.show(output, found, lambda console: console.print(table))


@click.group()
def subsystem() -> None:
    """Subsystem graphs of a cluster: register, delete."""


@subsystem.command()
@click.argument("graph", type=FILE)
@click.option("--cluster", required=True, help="Cluster to attach the subsystem to.")
@click.option("--name", required=True, help="Name of the subsystem, such as io, spack or power.")
@printer.output_option
@with_secret
def register(client: Client, cluster: str, graph: Path, name: str, output: str) -> None:
    """Attach the subsystem GRAPH (JSON) to a cluster, replacing any subsystem of the same name."""
    made = client.put_subsystem(cluster, name, json_of(graph))
    printer.show(output, made, lambda console: console.print(printer.facts({"cluster": cluster, **made})))


@subsystem.command()
@click.argument("name")
@click.option("--cluster", required=True, help="Cluster to attach the subsystem to.")
@with_secret
def delete(client: Client, cluster: str, name: str) -> None:
    """Delete a subsystem. Jobs that require it no longer match the cluster."""
    client.delete_subsystem(cluster, name)
    click.echo(f"deleted subsystem {name} of cluster {cluster}")


@click.group()
def worker() -> None:
    """The workers of a cluster: list, offline, drain, reinstate."""


@worker.command(name="list")
@of_cluster
@watch_option
@printer.output_option
@with_secret
def list_workers(client: Client, cluster: str, watch: bool, output: str) -> None:
    """List the workers of a cluster and their states."""

    def show() -> bool:
        found = client.workers(cluster)
        rows = [
            (one["name"], _state(one), printer.when(one["since"]), one["missed"], _capacity(one)) for one in found
        ]
        table = printer.table(["WORKER", "STATE", "SINCE", "MISSED", "CAPACITY"], rows)
        printer.show(output, found, lambda console: console.print(table))
        return True

    again(client, watch, show)


def _state(one: dict[str, Any]) -> str:
    """Say the state of a worker; one that drains and holds nothing any more is drained."""
    return "DRAINED" if one["state"] == "DRAINING" and not one.get("busy", True) else str(one["state"])


def _capacity(one: dict[str, Any]) -> dict[str, Any]:
    return printer.amounts(one["capacity"], one.get("units") or {})


VERBS = {
    "offline": "Take a worker offline: no new tasks until it is reinstated; running tasks continue (fair_share stops "
    "preemptable shares).",
    "drain": "Drain a worker: running tasks finish, no new tasks until it is reinstated.",
    "reinstate": "Return an offline, drained or quarantined worker to service.",
}


def _add(verb: str, words: str) -> None:
    @worker.command(name=verb, help=words)
    @click.argument("name")
    @click.option("--cluster", required=True)
    @printer.output_option
    @with_secret
    def move(client: Client, cluster: str, name: str, output: str) -> None:
        made = client.move_worker(cluster, name, verb)
        printer.show(output, made, lambda console: console.print(printer.facts(made)))


for _verb, _words in VERBS.items():
    _add(_verb, _words)
