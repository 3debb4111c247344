"""Views for the contract of policies: clusters of whole workers, and small busy ones whose tasks share workers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from rainbow.matching import Take
from rainbow.scheduling import Elastic, GangView, JobView, Policy, RunView, SlotsView, View, WorkerView
from rainbow.state_machine import WorkerState

READY = WorkerState.READY
CAPACITY = {"core": 8, "memory": 32}


def view(jobs: list[JobView], workers: int = 4, runs: tuple[RunView, ...] = (), **more: Any) -> View:
    """Workers of four cores each; a demand is the number of whole workers it takes, as text."""
    held = {worker for run in runs for worker in run.placement}
    state = more.pop("state", READY)

    def place(demand: str, free: Any) -> Take | None:
        wanted = int(demand.rpartition(":")[2])
        return Take(tuple(("s", {name: {"core": 4}}) for name in free[:wanted]), {}) if len(free) >= wanted else None

    def divide(demand: str, take: Take) -> Any:
        return [{worker: amounts for _, placed in take.placed for worker, amounts in placed.items()}]

    seen = [
        WorkerView(name, "k", {"core": 4}, {"core": 0 if name in held else 4}, state, 0.0, int(name in held))
        for name in (f"n{k}" for k in range(workers))
    ]
    return View(
        100.0, more.pop("settings", {}), seen, jobs, runs, place, lambda demand: frozenset({"k"}), divide, **more
    )


def job(name: str, *sizes: int, slots: bool = True, **more: Any) -> JobView:
    """Return a job with a gang for each size, in whole workers; `more` are fields of JobView."""
    gangs = tuple(
        GangView(name, k, (f"{name}-{k}",), f"{name}/{k}:{size}", 10.0, (wholes(size),) if slots else ())
        for k, size in enumerate(sizes)
    )
    return JobView(name, more.pop("requestor", "user"), more.pop("submitted", 0.0), gangs, **more)


def wholes(count: int) -> SlotsView:
    """Return slots of whole workers of four cores."""
    return SlotsView("s", {"core": 4}, count, count, (), True)


def whole_view(policy: Policy, seed: int) -> View:
    """Jobs of gangs that want whole workers, of which some are held."""
    rng = random.Random(seed)
    jobs = [
        job(
            f"j{k}",
            *(rng.randint(1, 5) for _ in range(rng.randint(1, 3))),
            slots=rng.random() < 0.5,
            submitted=float(k),
        )
        for k in range(rng.randint(0, 8))
    ]
    busy = rng.sample(range(6), rng.randint(0, 4))
    runs = tuple(
        RunView(f"r{k}", f"r{k}", "other", 0, {f"n{k}": {"core": 4}}, 90.0, until=rng.choice([0.0, 95.0, 150.0]))
        for k in busy
    )
    return view(jobs, 6, runs, settings=policy.check({}))


def busy_view(policy: Policy, seed: int, states: Sequence[WorkerState] = (READY,)) -> View:
    """A small busy cluster: jobs of one worker a gang, some elastic, some running, one of them stopping."""
    rng = random.Random(seed)
    names = [f"w{k}" for k in range(rng.randint(1, 6))]
    needs = {f"j{k}": {"core": rng.randint(1, 8), "memory": rng.randint(1, 32)} for k in range(rng.randint(1, 6))}

    def place(demand: str, workers: Sequence[str]) -> Take | None:
        return Take((("slot", {min(workers): needs[demand]}),), {}) if workers else None

    whole = names[: rng.randint(0, len(names))]  # each of them runs one task of the first job
    runs = [RunView(f"j0/r{k}", "j0", "ann", 10 + k, {w: needs["j0"]}, 0.0, k == 0) for k, w in enumerate(whole)]
    held = dict.fromkeys(whole, needs["j0"])
    workers = [
        WorkerView(
            name,
            "node",
            CAPACITY,
            {kind: amount - held.get(name, {}).get(kind, 0) for kind, amount in CAPACITY.items()},
            states[k % len(states)],
            tasks=int(name in held),
        )
        for k, name in enumerate(names)
    ]
    return View(
        now=100.0,
        settings=policy.check({}),
        workers=workers,
        jobs=[_small_job(name, k, rng) for k, name in enumerate(needs)],
        runs=runs,
        place=place,
        hosts=lambda demand: frozenset({"node"}),
        divide=lambda demand, take: [dict(held) for _, held in take.placed],
    )


def _small_job(name: str, k: int, rng: random.Random) -> JobView:
    gangs = tuple(GangView(name, n, (f"{name}/{n}",), name) for n in range(rng.randint(1, 4)))
    elastic = Elastic(rng.choice([0, 0, 2]), None, 1) if rng.random() < 0.5 else None
    return JobView(name, rng.choice(["ann", "bob"]), float(k), gangs, elastic=elastic)
