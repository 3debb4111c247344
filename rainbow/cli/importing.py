"""`rainbow cluster import`: from what a cluster's own software prints to a graph that can be registered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from rainbow.cli import progress
from rainbow.cli.printing import one_line
from rainbow.cli.reading import FILE, text_of
from rainbow.errors import InputError
from rainbow.graph import Cluster, read_cluster
from rainbow.graph.sources import graph_sources

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
