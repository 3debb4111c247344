"""Recorded schedules of dispatchers: counting models, Batsim, Grid Engine, Slurm; figures of Open Cluster Scheduler.

Every schedule is made by the priority policy itself, planning on frozen views under a virtual clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rainbow.scheduling import Priority
from tests.conformance import Comparison
from tests.support.policies.dispatching import Job, replay
from tests.support.policies.ocs_figures import figures
from tests.support.policies.ocs_runs import grid_engine, slurm

# recorded kind → (settings, whether slots are nodes with an identity)
TUNED = {"discipline": "tuned", "reserve": "all"}
KINDS: dict[str, tuple[dict[str, Any], bool]] = {
    "fcfs": ({"discipline": "fcfs"}, False),
    "easy": ({"discipline": "easy"}, False),
    "conservative": ({"discipline": "conservative"}, False),
    "depth2": ({**TUNED, "max_reservation": 2}, False),
    "suffix": ({"discipline": "conservative", "search": "backwards"}, False),
    "easy_nodes": ({"discipline": "easy"}, True),
    "conservative_nodes": ({"discipline": "conservative"}, True),
}


def compare(folder: Path) -> Iterator[Comparison]:
    """Yield one comparison for every recorded schedule or figure the folder has."""
    parts = {
        "workloads.json": _workloads,
        "batsim_medium_late.json": _batsim,
        "ocs_unit_figures.json": figures,
        "grid_engine_runs.json": grid_engine,
        "slurm_runs.json": slurm,
    }
    for name, part in parts.items():
        if (folder / name).exists():
            yield from part(json.loads((folder / name).read_text()))


def pool(capacity: int, nodes: bool) -> dict[str, Mapping[str, int]]:
    """One worker with all slots, or a worker for each."""
    if nodes:
        return {f"n{k:04}": {"core": 1} for k in range(capacity)}
    return {"pool": {"core": capacity}}


# ── small random workloads ──


def _workloads(recorded: dict[str, Any]) -> Iterator[Comparison]:
    for workload in recorded["workloads"]:
        for kind, result in workload["results"].items():
            yield _workload(workload, kind, result)


def _workload(workload: dict[str, Any], kind: str, result: dict[str, Any]) -> Comparison:
    settings, nodes = KINDS[kind]
    jobs = [
        Job(f"{j['id']:04}", j["submit"], j["slots"], j["runtime"], j["walltime"], j["prio"])
        for j in workload["jobs"]
    ]
    made = replay(Priority(), pool(workload["capacity"], nodes), jobs, settings)
    ours = [made.start[job.id] for job in jobs]
    wrong = [
        f"job {j.id} starts at {a}, recorded {b}"
        for j, a, b in zip(jobs, ours, result["start"], strict=True)
        if a != b
    ]
    first, theirs = {str(int(name)): at for name, at in made.promised.items()}, result.get("first_reservation")
    if theirs is not None:
        unlike = [name for name in sorted({*first, *theirs}) if first.get(name) != theirs.get(name)]
        wrong += [f"job {name} first promised {first.get(name)}, recorded {theirs.get(name)}" for name in unlike]
    return Comparison(f"{workload['name']} {kind}", not wrong, "; ".join(wrong[:3]))


# ── Batsim's published schedules of 801 jobs on 32 nodes ──


def _batsim(recorded: dict[str, Any]) -> Iterator[Comparison]:
    jobs = [Job(f"{i:06}", submit, nodes, run, wall) for i, submit, nodes, run, wall in recorded["jobs"]]
    made = replay(Priority(), pool(recorded["nodes"], True), jobs, {"discipline": "easy"})
    for job, start in zip(jobs, recorded["published"]["easy"]["start"], strict=True):
        yield Comparison(
            f"batsim easy {job.id}", made.start[job.id] == start, f"{made.start[job.id]}, published {start}"
        )
    rebuilt = replay(Priority(), pool(recorded["nodes"], True), jobs, {"discipline": "conservative"})
    starts = recorded["published"]["conservative"]["start"]
    unlike = sum(rebuilt.start[job.id] != start for job, start in zip(jobs, starts, strict=True))
    wait = sum(rebuilt.start[job.id] - job.submit for job in jobs) / len(jobs) / 1e6
    theirs = recorded["published"]["conservative"]["mean_wait"]
    print(
        f"batsim conservative: {len(jobs) - unlike} of {len(jobs)} starts are the same, mean wait {wait:.3f} s, "
        f"theirs {theirs:.3f} s: Batsim keeps a reservation once made, ours are made again in every run, so jobs "
        "move up together when one ends early"
    )
