"""The worst cases that were found, each a line from then on: milliseconds of CPU beside what is wanted."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import rainbow
from benchmarks import clusters
from benchmarks.clusters import asking, cores, named, nodes, slots
from benchmarks.timing import heading, once, row
from rainbow.graph import Cluster
from rainbow.jobspec import Need, Request
from rainbow.matching import backends

STRICT = 4_000  # nodes of 24 cores: 100,001 vertices
HUNG, PACKAGES = 1_000, 200  # nodes with packages, named, and as many vertices without names beside them
TOP = {"version": 1, "resources": {"w": {"type": "core"}}, "tasks": [{"command": ["true"], "resources": "w"}]}


def worst() -> None:
    """Print all of them."""
    heading("worst cases, ms", "case", "ms", "wanted")
    _strict()
    _nameless()
    _commands()


def _fresh(request: Request, cluster: Cluster, runs: int = 3) -> float:
    """Time a request that was never seen, on a cluster that was."""
    index, found = backends.get("index"), []
    index.match(asking(cores(1)), cluster)
    for _ in range(runs):
        index.forget()
        found.append(once(lambda: index.match(request, cluster)) / 1e3)
    return median(found)


def _strict() -> None:
    cluster = rainbow.read_cluster(clusters.listed(STRICT), levels="strict")
    row("strict levels", _fresh(slots(2, nodes(1, cores(4))), cluster), "2 x Fluxion: 1")


def _nameless() -> None:
    """A need by name, alone and beside a subsystem whose vertices have no names."""
    cluster = clusters.packaged(HUNG, PACKAGES)
    vertices = {f"x{i}": {"metadata": {"type": "nvme"}} for i in range(HUNG)}
    edges = [{"source": f"n{i}", "target": f"x{i}"} for i in range(HUNG)]
    beside = cluster.with_subsystem("disks", {"graph": {"nodes": vertices, "edges": edges}})
    request = slots(2, cores(4), needs=(Need("spack", (named("name", "package-7"),)),))
    alone = _fresh(request, cluster)
    row("need by name", alone, "-")
    row("beside no names", _fresh(request, beside), f"2 x: {2 * alone:.1f}")


def _commands() -> None:
    """What a command costs that asks no server."""
    with tempfile.TemporaryDirectory() as folder:
        job, graph = Path(folder, "job.json"), Path(folder, "graph.json")
        job.write_text(json.dumps(TOP))
        graph.write_text(json.dumps(clusters.listed(1)))
        row("--version", _command("--version"), "120")
        row("match FILE", _command("match", str(job), "--graph", str(graph)), "350")


def _command(*words: str) -> float:
    found = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "rainbow", *words], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(found) * 1e3


if __name__ == "__main__":
    worst()
