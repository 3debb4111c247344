"""The contract of a scheduling policy, over every one that is installed."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import Any

import pytest

from rainbow.errors import PolicyError
from rainbow.jobs import WorkerState
from rainbow.matching import Take
from rainbow.scheduling import (
    GangView,
    JobView,
    Plan,
    Policy,
    RunView,
    SlotsView,
    Start,
    Stop,
    View,
    WorkerView,
    check_plan,
    policies,
)
from rainbow.scheduling.explaining import every_wait

READY = WorkerState.READY


@pytest.fixture(params=list(policies))
def policy(request: pytest.FixtureRequest) -> Policy:
    return policies.get(request.param)


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
    return View(100.0, {}, seen, jobs, runs, place, lambda demand: frozenset({"k"}), divide, **more)


def job(name: str, *sizes: int, slots: bool = True, **more: Any) -> JobView:
    gangs = tuple(
        GangView(name, k, (f"{name}-{k}",), f"{name}/{k}:{size}", 10.0, (wholes(size),) if slots else ())
        for k, size in enumerate(sizes)
    )
    return JobView(name, more.pop("requestor", "user"), more.pop("submitted", 0.0), gangs, **more)


def wholes(count: int) -> SlotsView:
    return SlotsView("s", {"core": 4}, count, count, (), True)


def planned(policy: Policy, of: View) -> Plan:
    made = policy.plan(of)
    check_plan(of, made)
    return made


def started(plan: Plan) -> list[str]:
    return [order.task for order in plan.orders if isinstance(order, Start)]


def random_view(seed: int) -> View:
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
    return view(jobs, 6, runs)


@pytest.mark.parametrize("seed", range(30))
def test_policy_plans_only_what_may_be_carried_out(policy: Policy, seed: int) -> None:
    planned(policy, random_view(seed))


@pytest.mark.parametrize("seed", range(10))
def test_policy_of_equal_views_plans_equally_and_changes_none(policy: Policy, seed: int) -> None:
    of = random_view(seed)
    before = copy.deepcopy((of.workers, of.jobs, of.runs, of.settings, of.memory))
    assert policy.plan(of) == policy.plan(random_view(seed))
    assert (of.workers, of.jobs, of.runs, of.settings, of.memory) == before


def test_policy_of_nothing_plans_nothing(policy: Policy) -> None:
    assert planned(policy, view([])).orders == ()


def test_policy_starts_what_fits_an_idle_cluster(policy: Policy) -> None:
    assert sorted(started(planned(policy, view([job("a", 1), job("b", 2)])))) == ["a-0", "b-0"]


def test_policy_stops_nothing_when_all_is_well(policy: Policy) -> None:
    runs = (RunView("r", "r", "user", 0, {"n0": {"core": 4}}, 90.0, until=120.0),)
    assert not [o for o in planned(policy, view([job("a", 1)], runs=runs)).orders if isinstance(o, Stop)]


def test_policy_says_of_every_waiting_job_why(policy: Policy) -> None:
    runs = tuple(RunView(f"r{k}", f"r{k}", "user", 0, {f"n{k}": {"core": 4}}, 90.0) for k in range(4))
    of = view([job("a", 1), job("b", 9), job("c", 1, slots=False)], runs=runs)
    plan = planned(policy, of)
    if not started(plan):
        waits = list(every_wait(of, plan))
        assert {wait.job for wait in waits} == {"a", "b", "c"}
        assert all(wait.text and wait.reason for wait in waits)


@pytest.mark.parametrize("state", [s for s in WorkerState if s is not READY])
def test_policy_places_nothing_on_workers_that_are_not_ready(policy: Policy, state: WorkerState) -> None:
    plan = planned(policy, view([job("a", 1)], state=state))
    assert all(not order.placement for order in plan.orders if isinstance(order, Start))


def test_policy_check_fills_defaults_that_are_accepted_again(policy: Policy) -> None:
    filled = policy.check({})
    assert policy.check(filled) == filled


def test_policy_check_names_the_setting_nobody_knows(policy: Policy) -> None:
    with pytest.raises(PolicyError) as fault:
        policy.check({"no/such~": 1})
    assert fault.value.pointer in ("/no~1such~0", "/no/such~")


def test_policy_memory_of_another_policy_is_no_fault(policy: Policy) -> None:
    left = {name: ["another", 1] for name in ("left", "running", "usage", "suspended", "slot_search", "priority")}
    made = planned(policy, replace(random_view(3), memory=left))
    planned(policy, replace(random_view(4), memory=made.memory))
