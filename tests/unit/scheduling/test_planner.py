"""One planner: whoever asks a policy asks it under the same limits."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rainbow
from rainbow.forecast import Bounds, Length, forecast
from rainbow.matching import Take
from rainbow.scheduling import LoadBased, Priority, Stop, planner
from rainbow.scheduling.qos import Limit, Qos, Rules
from tests.support.policies.dispatching import Job, job_view, make_view, run_view

POLICIES = [Priority(), LoadBased()]
ONE_CORE = Rules("oak", {}, {"bio": (("bio", {"running_cores": 1}),)})


class Limits:
    """Every task runs until its limit."""

    def of(self, job, gang):
        return Length.exactly(gang.expected, "limit")

    def left(self, run, now):
        return run.until - now


def place(demand, names):
    """Answer as a matcher does whose slots are of one core."""
    return Take((("s", {names[0]: {"core": 1}}),), {}) if names else None


def one_core(name, duration=500.0, account="bio", submitted=0.0, **more):
    view = job_view(Job(name, submitted, 1, duration, duration, amounts={"core": 1}))
    return replace(view, account=account, **more)


def starts(policy, jobs, rules, plans=100, cores=16, runs=()):
    settings = {"unit": "core"} if isinstance(policy, LoadBased) else {}
    view = make_view(0.0, {"n0": {"core": cores}}, jobs, runs, settings)
    view = replace(view, place=place)
    made = forecast(view, policy, Limits(), (), Bounds(plans=plans), rules=rules)
    return {job: one.start for job, one in made.jobs.items()}, made


def plan_calls() -> Iterator[str]:
    """Yield where `rainbow/` calls something named plan that may be a policy's."""
    root = Path(rainbow.__file__).parent
    for file in sorted(root.rglob("*.py")):
        if ".plan(" not in (text := file.read_text()):
            continue
        calls = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        receivers = [ast.unparse(one.value) for one in calls if isinstance(one, ast.Attribute) and one.attr == "plan"]
        names = (one for one in receivers if one not in ("planner", "client", "monitoring"))  # these are no policies
        yield from (f"{file.relative_to(root)}: {one}" for one in names)


def test_a_policy_is_asked_in_one_place():
    assert list(plan_calls()) == ["scheduling/planner.py: policy"]


@pytest.mark.parametrize("plans", [100, 1, 2], ids=["ahead", "one-pass after a plan", "one-pass after two"])
@pytest.mark.parametrize("policy", POLICIES, ids=["priority", "load_based"])
def test_jobs_under_a_limit_of_one_core_are_expected_one_after_the_other(policy, plans):
    jobs = [one_core(name) for name in "abc"]
    begun, made = starts(policy, jobs, ONE_CORE, plans)
    assert begun == {"a": 0.0, "b": 500.0, "c": 1000.0}
    assert made.cut == ("all" if plans == 100 else "plans")
    assert starts(policy, jobs, None, plans)[0] == dict.fromkeys("abc", 0.0)


@pytest.mark.parametrize("policy", POLICIES, ids=["priority", "load_based"])
@pytest.mark.parametrize("plans", [100, 1])
@given(st.lists(st.tuples(st.sampled_from(["bio", "cfd", ""]), st.integers(1, 9)), max_size=7), st.integers(1, 3))
def test_at_no_time_does_a_forecast_run_more_than_a_limit(policy, plans, wanted, most):
    jobs = [one_core(f"j{k}", 100.0 * length, account) for k, (account, length) in enumerate(wanted)]
    rules = Rules("oak", {}, {name: ((name, {"running_cores": most}),) for name in ("bio", "cfd")})
    begun, made = starts(policy, jobs, rules, plans, cores=4)
    ends = {job: one.end for job, one in made.jobs.items()}
    for job in jobs:
        together = [
            one.id
            for one in jobs
            if one.account == job.account and begun[one.id] <= begun[job.id] < ends[one.id] and job.account
        ]
        assert begun[job.id] < inf
        assert len(together) <= most


def test_what_other_clusters_run_under_a_limit_is_said():
    limit = Limit("account", "bio", "", "", 1.0)
    _, made = starts(Priority(), [one_core("a")], replace(ONE_CORE, elsewhere={limit: 1.0}))
    assert made.jobs["a"].start == inf
    assert made.jobs["a"].text == (
        "account bio may run 1 core over all clusters; 1 needed, and 1 in use on other clusters"
    )


@pytest.mark.parametrize("policy", POLICIES, ids=["priority", "load_based"])
@pytest.mark.parametrize("how", ["requeue", "cancel"])
def test_a_forecast_preempts_as_the_step_does(policy, how):
    rules = Rules("oak", {"urgent": Qos("urgent", preempts=("default",), how=how)})
    low = job_view(Job("low", 0.0, 1, 900.0, 900.0, amounts={"core": 1}))
    held = replace(run_view(Job("low", 0.0, 1, 900.0, 900.0), {"n0": {"core": 1}}, 0.0), task=low.gangs[0].tasks[0])
    urgent = replace(job_view(Job("urgent", 1.0, 1, 100.0, 100.0, amounts={"core": 1})), qos="urgent")
    settings = {"unit": "core"} if isinstance(policy, LoadBased) else {}
    view = make_view(10.0, {"n0": {"core": 1}}, [urgent], [held], settings)
    view = replace(view, workers=[replace(one, tasks=1) for one in view.workers], place=place)
    made = forecast(view, policy, Limits(), (), Bounds(), again=[low], rules=rules)
    assert made.jobs["urgent"].start == 10.0
    assert made.jobs["low"].end == (10.0 if how == "cancel" else 1010.0)
    assert [one.task for one in planner.plan(policy, view, rules).orders if isinstance(one, Stop)] == [held.task]
