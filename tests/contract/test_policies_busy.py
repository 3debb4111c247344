"""The contract of a policy on busy clusters: a plan the host takes, of nothing but the view."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rainbow.errors import PolicyError
from rainbow.jobs import WorkerState
from rainbow.matching import Take
from rainbow.scheduling import (
    Elastic,
    GangView,
    JobView,
    Plan,
    Policy,
    RunView,
    Start,
    Stop,
    View,
    WorkerView,
    check_plan,
    policies,
)

READY, LOST = WorkerState.READY, WorkerState.LOST
CAPACITY = {"core": 8, "memory": 32}


@pytest.fixture(params=list(policies))
def policy(request: pytest.FixtureRequest) -> Policy:
    return policies.get(str(request.param))


def view(policy: Policy, seed: int, states: Sequence[WorkerState] = (READY,)) -> View:
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
        jobs=[_job(name, k, rng) for k, name in enumerate(needs)],
        runs=runs,
        place=place,
        hosts=lambda demand: frozenset({"node"}),
        divide=lambda demand, take: [dict(held) for _, held in take.placed],
    )


def _job(name: str, k: int, rng: random.Random) -> JobView:
    gangs = tuple(GangView(name, n, (f"{name}/{n}",), name) for n in range(rng.randint(1, 4)))
    elastic = Elastic(rng.choice([0, 0, 2]), None, 1) if rng.random() < 0.5 else None
    return JobView(name, rng.choice(["ann", "bob"]), float(k), gangs, elastic=elastic)


def plan(policy: Policy, seen: View) -> Plan:
    planned = policy.plan(seen)
    check_plan(seen, planned)
    return planned


@pytest.mark.parametrize("seed", range(25))
def test_plan_is_one_the_host_carries_out(policy: Policy, seed: int) -> None:
    plan(policy, view(policy, seed))
    plan(policy, view(policy, seed, (READY, LOST, WorkerState.DRAINING, WorkerState.OFFLINE)))


@pytest.mark.parametrize("seed", range(10))
def test_same_view_gives_the_same_plan_and_stays_as_it_is(policy: Policy, seed: int) -> None:
    seen = view(policy, seed)
    before = copy.deepcopy((seen.settings, seen.workers, seen.jobs, seen.runs, seen.memory))
    assert plan(policy, seen) == plan(policy, seen)
    assert (seen.settings, seen.workers, seen.jobs, seen.runs, seen.memory) == before


@pytest.mark.parametrize("seed", range(10))
def test_memory_and_figures_are_json_and_memory_comes_back(policy: Policy, seed: int) -> None:
    seen = view(policy, seed)
    first = plan(policy, seen)
    json.dumps(dict(first.figures))
    kept: Any = json.loads(json.dumps(dict(first.memory)))
    assert kept == dict(first.memory)
    plan(policy, replace(seen, memory=kept))


def test_nothing_waiting_and_nobody_there_is_an_empty_plan(policy: Policy) -> None:
    empty = replace(view(policy, 1), workers=[], jobs=[], runs=[])
    assert plan(policy, empty).orders == ()


def test_checked_settings_are_their_own_check(policy: Policy) -> None:
    checked = dict(policy.check({}))
    assert dict(policy.check(checked)) == checked
    assert json.loads(json.dumps(checked)) == checked


def test_unknown_setting_is_refused_where_it_stands(policy: Policy) -> None:
    with pytest.raises(PolicyError) as refused:
        policy.check({"colour": "red"})
    assert refused.value.pointer == "/colour"


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_stopped_twice_nor_what_does_not_run(policy: Policy, seed: int) -> None:
    seen = view(policy, seed, (READY, WorkerState.OFFLINE))
    stops = [order.task for order in plan(policy, seen).orders if isinstance(order, Stop)]
    running = {run.task for run in seen.runs if not run.stopping}
    assert len(stops) == len(set(stops))
    assert set(stops) <= running


def test_idle_worker_is_used_when_somebody_fits(policy: Policy) -> None:
    seen = view(policy, 3)
    seen = replace(seen, runs=[], workers=[replace(w, free=dict(w.capacity), tasks=0) for w in seen.workers])
    assert any(isinstance(order, Start) for order in plan(policy, seen).orders)
