"""The contract of a scheduling policy, over every kind of view."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from rainbow.errors import PolicyError
from rainbow.matching import Take
from rainbow.scheduling import (
    Elastic,
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
    planner,
    policies,
)
from rainbow.scheduling.invariants import every_wait
from rainbow.state_machine import WorkerState

READY = WorkerState.READY
CAPACITY = {"core": 8, "memory": 32}


def view(jobs: list[JobView], workers: int = 4, runs: tuple[RunView, ...] = (), **more: Any) -> View:
    """Workers of four cores each; a demand is the number of whole workers it takes, as text."""
    held = {worker for run in runs for worker in run.placement}
    state = more.pop("state", READY)

    def place(demand: str, free: Any) -> Take | None:
        required = int(demand.rpartition(":")[2])
        return (
            Take(tuple(("s", {name: {"core": 4}}) for name in free[:required]), {}) if len(free) >= required else None
        )

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


Maker = Callable[[Policy, int], View]
AWAY = (READY, WorkerState.LOST, WorkerState.DRAINING, WorkerState.OFFLINE)


def half_away(policy: Policy, seed: int) -> View:
    """Make a busy view whose workers are in all kinds of states."""
    return busy_view(policy, seed, AWAY)


def planned(policy: Policy, of: View) -> Plan:
    """Return the policy's plan, checked against the hard invariants."""
    made = planner.plan(policy, of, None)
    check_plan(of, made)
    return made


def started(plan: Plan) -> list[str]:
    """Return the tasks that a plan starts."""
    return [order.task for order in plan.orders if isinstance(order, Start)]


class PolicyContract:
    """Tests of the policy called `name`: its plans are checked as the server checks them."""

    name: ClassVar[str]

    @pytest.fixture
    def policy(self) -> Policy:
        """Return the policy."""
        return policies.get(self.name)

    @pytest.fixture(params=[whole_view, busy_view, half_away])
    def make(self, request: pytest.FixtureRequest) -> Maker:
        """Return what makes a view of one kind from a policy and a seed."""
        made: Maker = request.param
        return made

    @pytest.mark.parametrize("seed", range(30))
    def test_policy_plans_only_what_may_be_carried_out(self, policy: Policy, make: Maker, seed: int) -> None:
        planned(policy, make(policy, seed))

    @pytest.mark.parametrize("seed", range(10))
    def test_policy_of_equal_views_plans_equally_and_changes_none(
        self, policy: Policy, make: Maker, seed: int
    ) -> None:
        of = make(policy, seed)
        before = copy.deepcopy((of.workers, of.jobs, of.runs, of.settings, of.memory))
        first, again, other = (planner.plan(policy, view, None) for view in (of, of, make(policy, seed)))
        assert first == again == other
        assert (of.workers, of.jobs, of.runs, of.settings, of.memory) == before

    @pytest.mark.parametrize("seed", range(30))
    def test_policy_asked_quietly_orders_and_remembers_the_same(self, policy: Policy, make: Maker, seed: int) -> None:
        of, quiet = make(policy, seed), replace(make(policy, seed), quiet=True)
        answer, untold = planner.plan(policy, of, None), planned(policy, quiet)
        assert (untold.orders, untold.memory) == (answer.orders, answer.memory)

    @pytest.mark.parametrize("seed", range(10))
    def test_policy_figures_and_memory_are_json_and_memory_comes_back(
        self, policy: Policy, make: Maker, seed: int
    ) -> None:
        of = make(policy, seed)
        first = planned(policy, of)
        json.dumps(dict(first.figures))
        stored: Any = json.loads(json.dumps(dict(first.memory)))
        assert stored == dict(first.memory)
        planned(policy, replace(of, memory=stored))

    @pytest.mark.parametrize("seed", range(10))
    def test_policy_stops_nothing_twice_nor_what_does_not_run(self, policy: Policy, make: Maker, seed: int) -> None:
        of = make(policy, seed)
        stops = [order.task for order in planned(policy, of).orders if isinstance(order, Stop)]
        running = {run.task for run in of.runs if not run.stopping}
        assert len(stops) == len(set(stops))
        assert set(stops) <= running

    def test_policy_memory_of_another_policy_is_no_fault(self, policy: Policy, make: Maker) -> None:
        remaining = {
            name: ["another", 1] for name in ("left", "running", "usage", "suspended", "slot_search", "priority")
        }
        made = planned(policy, replace(make(policy, 3), memory=remaining))
        planned(policy, replace(make(policy, 4), memory=made.memory))

    def test_policy_of_nothing_plans_nothing(self, policy: Policy) -> None:
        assert planned(policy, view([])).orders == ()
        assert planned(policy, view([], workers=0)).orders == ()

    def test_policy_uses_an_idle_worker_when_somebody_fits(self, policy: Policy) -> None:
        of = busy_view(policy, 3)
        of = replace(of, runs=[], workers=[replace(one, free=dict(one.capacity), tasks=0) for one in of.workers])
        assert started(planned(policy, of))

    def test_policy_starts_what_fits_an_idle_cluster(self, policy: Policy) -> None:
        assert sorted(started(planned(policy, view([job("a", 1), job("b", 2)])))) == ["a-0", "b-0"]

    def test_policy_stops_nothing_when_all_is_well(self, policy: Policy) -> None:
        runs = (RunView("r", "r", "user", 0, {"n0": {"core": 4}}, 90.0, until=120.0),)
        assert not [o for o in planned(policy, view([job("a", 1)], runs=runs)).orders if isinstance(o, Stop)]

    def test_policy_says_of_every_waiting_job_why(self, policy: Policy) -> None:
        runs = tuple(RunView(f"r{k}", f"r{k}", "user", 0, {f"n{k}": {"core": 4}}, 90.0) for k in range(4))
        of = view([job("a", 1), job("b", 9), job("c", 1, slots=False)], runs=runs)
        plan = planned(policy, of)
        if not started(plan):
            waits = list(every_wait(of, plan))
            assert {wait.job for wait in waits} == {"a", "b", "c"}
            assert all(wait.text and wait.reason for wait in waits)

    @pytest.mark.parametrize("state", [s for s in WorkerState if s is not READY])
    def test_policy_places_nothing_on_workers_that_are_not_ready(self, policy: Policy, state: WorkerState) -> None:
        plan = planned(policy, view([job("a", 1)], state=state))
        assert all(not order.placement for order in plan.orders if isinstance(order, Start))

    def test_policy_check_fills_defaults_that_are_accepted_again_and_are_json(self, policy: Policy) -> None:
        filled = dict(policy.check({}))
        assert dict(policy.check(filled)) == filled
        assert json.loads(json.dumps(filled)) == filled

    @pytest.mark.parametrize(
        ("name", "pointers"), [("no/such~", ["/no~1such~0", "/no/such~"]), ("colour", ["/colour"])]
    )
    def test_policy_check_names_the_setting_nobody_knows(
        self, policy: Policy, name: str, pointers: list[str]
    ) -> None:
        with pytest.raises(PolicyError) as fault:
            policy.check({name: 1})
        assert fault.value.pointer in pointers
