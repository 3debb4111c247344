"""The worst cases that were found, each a line from then on: milliseconds of CPU beside what is wanted."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import rainbow
from benchmarks import clusters
from benchmarks.clusters import asking, cores, named, nodes, slots
from benchmarks.host import WHO, server
from benchmarks.timing import heading, once, row
from rainbow.graph import Cluster
from rainbow.jobspec import Count, Need, Request, Resource
from rainbow.matching import Occupancy, backends
from rainbow.service.clusters.registration import register
from rainbow.service.core.service import compile_all
from tests.support.hard_inputs import hard_cluster

STRICT = 4_000  # nodes of 24 cores: 100,001 vertices
TAKEN = 50  # requests
HUNG, PACKAGES = 1_000, 200  # nodes with packages, named, and as many vertices without names beside them
EIGHT = [(8, 9, 9), (8, 3, 9), (8, 7, 6), (8, 2, 21), (8, 2, 2), (8, 10, 17), (8, 3, 30), (8, 5, 12)]
TOP = {"version": 1, "resources": {"w": {"type": "core"}}, "tasks": [{"command": ["true"], "resources": "w"}]}


def worst() -> None:
    """Print all of them."""
    heading("worst cases, ms", "case", "ms", "wanted")
    _strict()
    _nameless()
    _taken()
    _packed()
    _hung()
    _commands()


def _fresh(request: Request, cluster: Cluster, runs: int = 3) -> float:
    """Time a request that was never seen, on a cluster that was."""
    index, results = backends.get("index"), []
    index.match(asking(cores(1)), cluster)
    for _ in range(runs):
        index.forget()
        results.append(once(lambda: index.match(request, cluster)) / 1e3)
    return median(results)


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


def _taken() -> None:
    """Fill nodes of which no two are alike; the rival are as many equal ones."""
    for what, request in (("a core", asking(cores(1))), ("64 nodes", asking(nodes(64)))):
        differ, equal = (_fill(request, clusters.listed(STRICT, differ=differ)) for differ in (True, False))
        row(f"take {what}, differ", differ, f"as equal: {equal:.3f}")


def _fill(request: Request, document: Any) -> float:
    occupancy = Occupancy(rainbow.read_cluster(document))
    occupancy.take(request)
    return once(lambda: [occupancy.take(request) for _ in range(TAKEN)]) / TAKEN / 1e3


def _packed() -> None:
    """Slots of several kinds on the fewest nodes that might do: a search of 100,000 steps does not decide these."""
    for what, many, shapes in (
        ("64 slots of 4 kinds, yes", 16, [(16, 1, 6), (16, 2, 20), (16, 6, 20), (16, 3, 18)]),
        ("64 slots of 4 kinds, no", 17, [(16, 3, 29), (16, 10, 5), (16, 5, 8), (16, 4, 25)]),
        ("64 slots of 8 kinds, yes", 17, EIGHT),
    ):
        cluster = hard_cluster([{"core": 24, "memory": 64}] * many)
        packed = [
            slots(n, cores(each), Resource("memory", Count(memory, memory)), label=f"s{k}").variants[0][0]
            for k, (n, each, memory) in enumerate(shapes)
        ]
        row(what, _fresh(asking(*packed), cluster), "50")


def _hung() -> None:
    """Compile a cluster of 1,000 listed nodes at a start, with a subsystem on all of them and without."""
    edges = [{"source": f"n{i}", "target": "io"} for i in range(HUNG)]
    hung = {"io": {"graph": {"nodes": {"io": {"metadata": {"type": "io"}}}, "edges": edges}}}
    bare, with_io = (_started(subsystems) for subsystems in ({}, hung))
    row("start, a subsystem", with_io, f"as without: {bare:.1f}")


def _started(subsystems: Any) -> float:
    with server() as service:
        register(service, WHO, {"name": "oak", "graph": clusters.listed(HUNG), "subsystems": subsystems})
        return once(lambda: compile_all(service.store, "index")) / 1e3


def _commands() -> None:
    """What a command costs that asks no server."""
    with tempfile.TemporaryDirectory() as folder:
        job, graph = Path(folder, "job.json"), Path(folder, "graph.json")
        job.write_text(json.dumps(TOP))
        graph.write_text(json.dumps(clusters.listed(1)))
        row("--version", _command("--version"), "120")
        row("match FILE", _command("match", str(job), "--graph", str(graph)), "350")


def _command(*words: str) -> float:
    results, stored = [], {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # compiled once, as where it is installed
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "rainbow", *words], check=True, stdout=subprocess.DEVNULL, env=stored)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        results.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(results) * 1e3


if __name__ == "__main__":
    worst()
