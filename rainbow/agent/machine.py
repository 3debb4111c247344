"""Describes this machine: what the source `local` reads. Counts what this process may use, not what is built in."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path

MIB = 2**20
CPUS = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup")


def describe() -> str:
    """Return this machine as JSON."""
    machine = {"name": socket.gethostname(), "cores": cores(), "memory_mib": memory(), "gpus": gpus()}
    return json.dumps({"machine": machine})


def load() -> dict[str, float]:
    """Return this machine's load: what runs or waits to (also per core), and the memory that is free, in MiB."""
    found = {"load_avg": os.getloadavg()[0]}
    found["np_load_avg"] = round(found["load_avg"] / cores(), 3)
    said = dict(line.partition(":")[::2] for line in _read(Path("/proc/meminfo")).splitlines())
    free = said.get("MemAvailable", "").split()
    return {**found, **({"mem_free": float(int(free[0]) // 1024)} if free else {})}


def cores() -> int:
    """Count the cores this process may run on: hardware threads of one core are one, a limit in time is a limit."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    found = {_core(cpu) for cpu in usable}
    quota, _, period = _read(CGROUP / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        return max(1, min(len(found), int(quota) // int(period)))
    return max(1, len(found))


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
