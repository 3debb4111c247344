"""What the local resource manager says of the cluster: its graph, which workers are up, how many are free."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rainbow.agent import machine
from rainbow.agent.environment import for_managers
from rainbow.errors import RainbowError, RequestError, Unavailable
from rainbow.graph import read_cluster
from rainbow.graph.sources import graph_sources
from rainbow.matching import worker_capacity

SLOW = 60.0  # seconds for one command
GIB = 1024  # MiB
IDLE = "idle"  # how Slurm's state of a free node begins
OF_SLURM = (
    ("scontrol", "show", "nodes", "--json"),  # since 23.02
    ("sinfo", "--json"),
    ("scontrol", "show", "nodes", "--oneliner"),
)


@dataclass(frozen=True, slots=True)
class Survey:
    """A cluster as it is now. `state` is what selection sees, `up` the workers that are there."""

    document: Mapping[str, Any]
    state: Mapping[str, int]
    up: tuple[str, ...]


def survey(source: str) -> Survey:
    """Ask the resource manager of a source."""
    if source not in _SAYS:
        raise RequestError(f"an agent cannot ask {source!r}; it can ask: {', '.join(sorted(_SAYS))}")
    document = graph_sources.get(source)(_SAYS[source]())
    cluster = read_cluster(document)
    nodes = cluster.graph.nodes
    up = [name for name, vertex in cluster.workers.items() if not nodes[vertex]["metadata"].get("unavailable")]
    memory = [amounts.get("memory", 0) for amounts in worker_capacity(cluster).values()]
    free = _FREE[source](up) if source in _FREE else len(up)
    return Survey(document, {"nodes_free": free, "memory_per_node": min(memory) // GIB}, tuple(up))


def _said(*command: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            command, capture_output=True, timeout=SLOW, check=False, env=for_managers(os.environ)
        )
    except FileNotFoundError as fault:
        raise RequestError(f"there is no {command[0]} here") from fault
    except subprocess.TimeoutExpired as fault:
        raise Unavailable(f"{' '.join(command)} does not answer within {SLOW:g} s") from fault
    if done.returncode:
        told = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise Unavailable(f"{' '.join(command)}: {told[-1]}")
    return done.stdout.decode("utf-8", "replace")


def _slurm() -> str:
    faults: list[RainbowError] = []
    for command in OF_SLURM:
        try:
            return _said(*command)
        except Unavailable as fault:  # an option that is too new
            faults.append(fault)
    raise faults[-1]


def _idle_in_slurm(up: Sequence[str]) -> int:
    rows = [line.split("|") for line in _said("sinfo", "-h", "-N", "-o", "%N|%T").splitlines()]
    return len({row[0] for row in rows if len(row) == 2 and row[1].startswith(IDLE)} & set(up))


def _idle_in_flux(up: Sequence[str]) -> int:
    said = _said("flux", "resource", "list", "-n", "-s", "free", "-o", "{nnodes}").split()
    return sum(int(word) for word in said if word.isdigit())


_SAYS: dict[str, Callable[[], str]] = {
    "slurm": _slurm,
    "flux-r": lambda: _said("flux", "resource", "R"),
    "hwloc": lambda: _said("lstopo-no-graphics", "--of", "xml"),
    "local": machine.describe,
}
_FREE: dict[str, Callable[[Sequence[str]], int]] = {"slurm": _idle_in_slurm, "flux-r": _idle_in_flux}
