"""`rainbow cluster`: register, import, list, show, drain, reinstate, delete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from rainbow.cli import session
from rainbow.cli.input import settings_file
from rainbow.cli.input.files import FILE, json_of, named_file, text_of, yaml_of
from rainbow.cli.output import printer, progress
from rainbow.cli.output.printer import one_line
from rainbow.cli.session import credentials_used, with_registration, with_secret, with_tokens
from rainbow.client import Client, responses
from rainbow.errors import InputError
from rainbow.graph import Cluster, read_cluster
from rainbow.graph.sources import graph_sources


@click.group()
def cluster() -> None:
    """Clusters: import, register, list, show, drain, reinstate, delete."""


@cluster.command()
@click.argument("graph", type=FILE)
@click.option("--name", required=True, help="What the cluster is called.")
@click.option("--subsystem", "subsystems", multiple=True, metavar="NAME=FILE", help="Hang a subsystem graph on it.")
@click.option("--state", type=FILE, help="A YAML or JSON file: the flat state that selection sees.")
@click.option("--levels", type=click.Choice(["any", "strict"]), default="any", show_default=True)
@click.option("--policy", help="The scheduling policy; else the server's default.")
@click.option("--policy-settings", type=FILE, help="A YAML or JSON file: its settings, or {policy, settings}.")
@click.option("--visibility", type=click.Choice(["all", "own"]), help="Whose jobs a requestor's token sees; all.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Add token and secret to this file.")
@printer.output_option
@with_registration
def register(
    client: Client,
    url: str,
    graph: Path,
    name: str,
    subsystems: tuple[str, ...],
    state: Path | None,
    levels: str,
    policy: str | None,
    policy_settings: Path | None,
    visibility: str | None,
    save: Path | None,
    output: str,
) -> None:
    """Register a cluster: GRAPH is its containment graph (JSON). Token and secret are shown this once."""
    if save:
        session.read(save)  # a file that cannot be added to is better known before than after
    made = client.register_cluster(
        name,
        json_of(graph),
        {called: json_of(path) for called, path in map(named_file, subsystems)} or None,
        yaml_of(state) if state else None,
        levels,
        _policy(policy, policy_settings),
        visibility,
    )
    if save:
        session.save(save, url, name, made["token"], made["secret"])
    printer.show(output, made, lambda console: console.print(_registered(made, save)))


def _policy(name: str | None, file: Path | None) -> dict[str, Any] | None:
    written = settings_file.read(file, name) if file else None
    given = {"name": written.policy, "settings": dict(written.settings)} if written else {"name": name}
    return {key: value for key, value in given.items() if value is not None} or None


def _registered(made: responses.Registration, save: Path | None) -> Any:
    shown: dict[str, Any] = {"cluster": made["name"], "totals": printer.totals(made)}
    if save:
        shown["token, secret"] = f"saved in {save}"
    else:
        shown |= {"token": made["token"], "secret": f"{made['secret']}  (both are shown this once)"}
    return printer.facts(shown)


@cluster.command(name="list")
@printer.output_option
@with_tokens
def list_clusters(client: Client, output: str) -> None:
    """List the clusters your tokens cover."""
    found = client.clusters()
    rows = [(one["name"], _state(one), _ready(one), one["subsystems"], printer.totals(one)) for one in found]
    titles = ["CLUSTER", "STATE", "READY", "SUBSYSTEMS", "TOTALS"]
    printer.show(output, found, lambda console: console.print(printer.table(titles, rows)))


@cluster.command()
@click.argument("cluster")
@printer.output_option
@with_tokens
def show(client: Client, cluster: str, output: str) -> None:
    """Show a cluster: how it is, totals, subsystems, policy."""
    found = client.cluster(cluster)
    printer.show(output, found, lambda console: console.print(printer.facts(_facts(found))))


STATES = {"deleting": "being deleted", "unattended": "no agent seen"}


def _state(one: Mapping[str, Any]) -> str:
    return STATES.get(one["state"], str(one["state"]))


def _ready(one: Mapping[str, Any]) -> str:
    return f"{one['ready']}/{one['workers']}"


def _facts(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is shown of a cluster: its state in words, with the time from which on it is in it."""
    rest = {key: value for key, value in found.items() if key not in ("draining", "drained_at", "ready", "units")}
    since = f" since {printer.minute(found['drained_at'])}" if found["state"] == "drained" else ""
    told = {"state": _state(found) + since, "totals": printer.totals(found), "workers": f"{_ready(found)} ready"}
    return {**rest, **told, "created_at": printer.when(found.get("created_at"))}


@cluster.command()
@click.argument("cluster")
@printer.output_option
@with_secret
def drain(client: Client, cluster: str, output: str) -> None:
    """Let a cluster take nothing new: what runs goes on, what waits is placed anew where it may go."""
    made = client.move_cluster(cluster, "drain")
    printer.show(output, made, lambda console: console.print(f"cluster {cluster} takes nothing new"))


@cluster.command()
@click.argument("cluster")
@printer.output_option
@with_secret
def reinstate(client: Client, cluster: str, output: str) -> None:
    """Let a cluster that was drained take jobs and tasks again."""
    made = client.move_cluster(cluster, "reinstate")
    printer.show(output, made, lambda console: console.print(f"cluster {cluster} takes tasks again"))


@cluster.command()
@click.argument("cluster")
@click.option("--drain", is_flag=True, help="Even with live jobs: what waits is placed anew, what runs ends.")
@with_secret
def delete(client: Client, cluster: str, drain: bool) -> None:
    """Delete a cluster; its token and secret go from the credentials file too."""
    if client.delete_cluster(cluster, drain=drain):  # its secret is good, and wanted, until then
        click.echo(f"cluster {cluster} is drained, and deleted when what runs there has ended")
        return
    click.echo(f"cluster {cluster} is deleted")
    file = credentials_used()
    if _is_of(file, client) and session.forget_cluster(file, cluster):
        click.echo(f"its token and secret are taken out of {file}")


def _is_of(file: Path, client: Client) -> bool:
    return session.read(file).url.rstrip("/") == client.url.rstrip("/")


OUT = click.Path(dir_okay=False, allow_dash=True, path_type=Path)


@click.command(name="import")
@click.argument("source")
@click.argument("file", type=FILE)
@click.option("-o", "--out", type=OUT, default="-", help="Where the graph goes; else stdout.")
@click.option("--name", default="", help="What the cluster is called; else as FILE says.")
def import_graph(source: str, file: Path, out: Path, name: str) -> None:
    """Make a graph (JSON) of FILE (- for stdin), which SOURCE (slurm, flux-r, kubernetes, hwloc, local) printed.

    The graph goes to stdout, or to the file of --out; a line on stderr says what is in it.
    """
    with progress.going_on(f"reading {file}") as now:
        document = graph_sources.get(source)(text_of(file))
        if name:
            document = {**document, "name": name}
        now("checking the graph")
        cluster = read_cluster(document)
        text = _written(document)
    with click.open_file(str(out), "w", encoding="utf-8") as stream:
        stream.write(text)
    click.echo(one_line(_summary(cluster, document)), err=True)


def _written(document: dict[str, Any]) -> str:
    try:
        return json.dumps(document, indent=2) + "\n"
    except RecursionError as error:
        raise InputError("the metadata of a vertex is nested too deeply") from error


def _summary(cluster: Cluster, document: dict[str, Any]) -> str:
    """Say what a cluster has: `oak: 2 nodes, 64 cores, 8 gpus, 1024000 MiB memory (1 node unavailable)`."""
    counted = [_many(cluster.totals.get(kind, 0), kind) for kind in ("node", "core", "gpu")]
    counted += [f"{size} {unit} memory".replace("  ", " ") for unit, size in _memory(cluster).items()]
    down = sum("unavailable" in data["metadata"] for _, data in cluster.graph.nodes(data=True))
    left_out = len(document["graph"].get("metadata", {}).get("left_out", ()))
    notes = [f"{_many(down, 'node')} unavailable"] * bool(down) + [f"{_many(left_out, 'node')} left out"] * bool(
        left_out
    )
    return f"{cluster.name}: {', '.join(counted)}" + (f" ({', '.join(notes)})" if notes else "")


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _memory(cluster: Cluster) -> dict[str, int]:
    """Sum the memory by unit."""
    sums: dict[str, int] = {}
    for _, vertex in cluster.graph.nodes(data=True):
        if vertex["type"] == "memory":
            sums[vertex["unit"]] = sums.get(vertex["unit"], 0) + vertex["size"]
    return sums or {"MiB": 0}
