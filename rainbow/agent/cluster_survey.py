"""The survey of a cluster: reads its resource manager at intervals and reports what has changed.

A changed graph is reported as a list of changes, and whole only where the server lacks the graph they build on.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rainbow.agent.executors.local import for_managers
from rainbow.agent.executors.slurm import status
from rainbow.agent.executors.slurm.site import Slurm
from rainbow.client import Client, Problem
from rainbow.errors import RainbowError, RequestError, Unavailable
from rainbow.graph import read_cluster
from rainbow.graph.delta import changes_between
from rainbow.graph.sources import graph_sources
from rainbow.matching import worker_capacity

MIB = 2**20
CPUS = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup")


def describe() -> str:
    """Return this machine as JSON."""
    machine = {"name": socket.gethostname(), "cores": cores(), "memory_mib": memory(), "gpus": gpus()}
    return json.dumps({"machine": machine})


def load() -> dict[str, float]:
    """Return this machine's load: what runs or waits to (also per core), and the memory that is free, in MiB."""
    results = {"load_avg": os.getloadavg()[0]}
    results["np_load_avg"] = round(results["load_avg"] / cores(), 3)
    said = dict(line.partition(":")[::2] for line in _read(Path("/proc/meminfo")).splitlines())
    free = said.get("MemAvailable", "").split()
    return {**results, **({"mem_free": float(int(free[0]) // 1024)} if free else {})}


def cores() -> int:
    """Count the cores this process may run on: hardware threads of one core are one, a limit in time is a limit."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    results = {_core(cpu) for cpu in usable}
    quota, _, period = _read(CGROUP / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        return max(1, min(len(results), int(quota) // int(period)))
    return max(1, len(results))


def _core(cpu: int) -> tuple[str, str]:
    topology = CPUS / f"cpu{cpu}" / "topology"
    return _read(topology / "physical_package_id"), _read(topology / "core_id") or f"cpu{cpu}"


def memory() -> int:
    """Return how much memory there is for this process, in MiB."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read(CGROUP / "memory.max")
    return min(whole, int(limit) if limit.isdigit() else whole) // MIB


def gpus() -> int:
    """Count the GPUs whose drivers say so: NVIDIA's and AMD's."""
    nvidia = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    nodes = Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties")
    return nvidia + sum(_has_simd(_read(properties)) for properties in nodes)


def _has_simd(properties: str) -> bool:
    said = dict(line.split(" ", 1) for line in properties.splitlines() if " " in line)
    return said.get("simd_count", "0") != "0"


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text().strip()
    return ""


SLOW = 60.0  # seconds for one command
GIB = 2**30  # bytes
IDLE = "idle"  # how Slurm's state of a free node begins
SWITCHED = "slurm-topology"  # Slurm's nodes below its switches
OF_SLURM = (
    ("scontrol", "show", "nodes", "--json"),  # since 23.02
    ("sinfo", "--json"),
    ("scontrol", "show", "nodes", "--oneliner"),
)


@dataclass(frozen=True, slots=True)
class Survey:
    """A cluster as it is now. `state` is what selection sees, `up` the workers that are there."""

    document: Mapping[str, Any]
    state: Mapping[str, float]
    up: tuple[str, ...]


def survey(source: str, waits: Mapping[int, float] = MappingProxyType({})) -> Survey:
    """Ask the resource manager of a source; `waits`: {cores: seconds until such a job would start}."""
    if source not in _SAYS:
        raise RequestError(f"unknown source {source!r}; available: {', '.join(sorted(_SAYS))}")
    document = graph_sources.get(_READ_BY.get(source, source))(_SAYS[source]())
    cluster = read_cluster(document)
    nodes = cluster.graph.nodes
    up = [name for name, vertex in cluster.workers.items() if not nodes[vertex]["metadata"].get("unavailable")]
    memory = [amounts.get("memory", 0) for amounts in worker_capacity(cluster).values()]
    free = _FREE[source](up) if source in _FREE else len(up)
    state = {"nodes_free": free, "memory_per_node": min(memory) // GIB}
    return Survey(document, {**state, **(_waits_in_slurm(waits) if source in ("slurm", SWITCHED) else {})}, tuple(up))


def _said(*command: str) -> str:
    done = _done(*command)
    if done.returncode:
        answer = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise Unavailable(f"{' '.join(command)}: {answer[-1]}")
    return done.stdout.decode("utf-8", "replace")


def _done(*command: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(  # noqa: S603 - our own words
            command, capture_output=True, timeout=SLOW, check=False, env=for_managers(os.environ)
        )
    except FileNotFoundError as fault:
        raise RequestError(f"command {command[0]} not found on this machine") from fault
    except subprocess.TimeoutExpired as fault:
        raise Unavailable(f"{' '.join(command)} timed out after {SLOW:g} s") from fault


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


def _waits_in_slurm(waits: Mapping[int, float]) -> dict[str, float]:
    """Return what is known of waiting in Slurm, and of cores that are taken, by whomever.

    These are hints: where Slurm does not give them, the rest is reported without.
    """
    with suppress(Unavailable, RequestError):
        return _asked_of_slurm(waits)
    return {}


def _asked_of_slurm(waits: Mapping[int, float]) -> dict[str, float]:
    slurm = Slurm()
    counted = slurm.cores().read(_said(*slurm.cores().command))
    queued = status.backlog(_said("squeue", "-h", "-r", "-t", "PD", "-o", status.PENDING))
    return status.variables(waits, counted, queued)


def _idle_in_flux(up: Sequence[str]) -> int:
    said = _said("flux", "resource", "list", "-n", "-s", "free", "-o", "{nnodes}").split()
    return sum(int(word) for word in said if word.isdigit())


_SAYS: dict[str, Callable[[], str]] = {
    "slurm": _slurm,
    SWITCHED: lambda: f"{_slurm()}\n{_said('scontrol', 'show', 'topology')}",
    "flux-r": lambda: _said("flux", "resource", "R"),
    "gridengine": lambda: _said("qhost", "-q", "-xml"),
    "hwloc": lambda: _said("lstopo-no-graphics", "--of", "xml"),
    "local": describe,
}
_READ_BY = {SWITCHED: "slurm"}  # the graph source that reads it, where that is called otherwise
_FREE: dict[str, Callable[[Sequence[str]], int]] = {
    "slurm": _idle_in_slurm,
    SWITCHED: _idle_in_slurm,
    "flux-r": _idle_in_flux,
}


SURVEY_INTERVAL = 15.0  # seconds
WHOLE = frozenset({409, 412, 422})  # how the server refuses changes of a graph that is not as we believe


class ClusterWatch:
    """Tells the server what is new in a cluster; `see` gets the workers that are up."""

    def __init__(
        self,
        client: Client,
        cluster: str,
        look: Callable[[], Survey],
        see: Callable[[tuple[str, ...]], None],
        say: Callable[[str], None],
        every: float = SURVEY_INTERVAL,
    ) -> None:
        self._client, self._cluster, self._look, self._see, self._say = client, cluster, look, see, say
        self._every = every
        self._over = threading.Event()
        self._known: Survey | None = None
        self._graph: tuple[Mapping[str, Any], int] | None = None  # what the server has, and its revision
        self._fault = ""

    def start(self) -> None:
        """Begin to look, in the background."""
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def look(self) -> None:
        """Look once, and say what has changed since the server was last told."""
        now = self._look()
        before = self._known
        if before is None or now.document != before.document:
            self._tell_graph(now.document)
        if before is None or now.state != before.state:
            self._client.change_state(self._cluster, now.state)
        self._see(now.up)
        self._known = now

    def _tell_graph(self, document: Mapping[str, Any]) -> None:
        if self._graph is None:
            revision = self._client.cluster(self._cluster)["revision"]  # before the graph: it may only be too low
            self._graph = self._client.graph(self._cluster), revision
        changes = changes_between(self._graph[0], document)
        if changes == []:
            return
        answer = self._changed(changes, self._graph[1]) or self._client.put_graph(self._cluster, document)
        self._graph = document, answer["revision"]
        self._say("the cluster's graph has changed")

    def _changed(self, changes: list[dict[str, Any]] | None, revision: int) -> dict[str, Any] | None:
        """Change the graph; None if it must be told whole, as where another client has changed it meanwhile."""
        if changes is None:
            return None
        try:
            return self._client.patch_graph(self._cluster, changes, revision=revision)
        except Problem as problem:
            if problem.status not in WHOLE:
                raise
            self._graph = None
            return None

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.look()
                self._fault = ""
            except RainbowError as fault:  # a graph that lacks a worker in use is taken when that is free
                self._complain(fault)
            self._over.wait(self._every)

    def _complain(self, fault: RainbowError) -> None:
        if str(fault) != self._fault:
            self._say(f"failed to report the cluster's state: {fault}")
        self._fault = str(fault)
