"""Views that nobody reads the reasons of: on every recorded world a quiet plan has the same orders and memory."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.scheduling import FairShare, Priority, check_plan
from rainbow.scheduling.priority import dispatch
from rainbow.simulation import Arrival, Governed, World, machine, simulate
from tests.conformance import rows
from tests.conformance.ocs import KINDS, pool
from tests.conftest import examples
from tests.service.core.test_scatter import bag
from tests.support.policies import ocs_runs
from tests.support.policies.dispatching import Job, replay
from tests.support.policies.epoch_checks import Play

RECORDED = Path(__file__).parents[2] / "cases" / "conformance"


class Both:
    """A policy that is asked twice, the second time quietly."""

    def __init__(self, policy):
        self.policy = policy
        self.asked = 0

    def plan(self, view):
        plan, quiet = self.policy.plan(view), self.policy.plan(replace(view, quiet=True))
        assert (quiet.orders, quiet.memory) == (plan.orders, plan.memory)
        assert not quiet.waits
        self.asked += 1
        return plan


def recorded(name):
    return json.loads((RECORDED / name).read_text())


def test_quiet_on_recorded_workloads_of_every_discipline():
    policy = Both(Priority())
    for workload in recorded("ocs/workloads.json")["workloads"][:12]:
        for kind in workload["results"]:
            settings, nodes = KINDS[kind]
            jobs = [Job(str(j["id"]), j["submit"], j["slots"], j["runtime"], j["walltime"]) for j in workload["jobs"]]
            replay(policy, pool(workload["capacity"], nodes), jobs, settings, lambda *_: None)
    assert policy.asked > 100


def test_quiet_on_recorded_runs_of_grid_engine(monkeypatch):
    policy = Both(Priority())
    monkeypatch.setattr(ocs_runs, "Priority", lambda: policy)
    list(ocs_runs.grid_engine(recorded("ocs/grid_engine_runs.json")))
    assert policy.asked


@pytest.mark.parametrize("family", ["mixed", "arrivals"])
def test_quiet_on_recorded_epochs_of_fair_share(family):
    policy = Both(FairShare())
    for row in list(rows(RECORDED / "ducc", f"schedule_{family}.jsonl"))[:3]:
        assert not list(Play(row, policy).run())
    assert policy.asked


ARRIVALS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 1.0, 7.0]),  # seconds since the one before
        st.integers(1, 4),
        st.integers(1, 20),
        st.integers(0, 30),  # by which its limit is too long
        st.sampled_from([0, 0, 0, 3, -2]),
        st.booleans(),
    ),
    min_size=12,
    max_size=40,
)
KEPT = [
    {},
    {"patience": 20.0},
    {"discipline": "conservative", "plan_depth": 2},
    {"discipline": "tuned", "max_reservation": 2, "reserve": "all"},
    {"discipline": "fcfs"},
    {"max_jobs_per_user": 2},
]


@settings(max_examples=examples(60))
@given(ARRIVALS, st.sampled_from(KEPT), st.booleans())
def test_a_queue_that_is_kept_is_planned_as_one_that_is_made_anew(rows, given_, long):
    arrivals, now = [], 0.0
    for k, (after, slots, run, more, priority, tasks) in enumerate(rows):
        now += after
        spec = bag(slots) if tasks else None
        one = Arrival(f"{k}", now, slots, float(run), float(run + more), f"user{k % 3}", "", priority, jobspec=spec)
        arrivals.append(one)

    def watch(view, plan):
        check_plan(view, plan)
        for other in (replace(view, census=None), replace(view, census=None, quiet=False)):
            again = Priority().plan(other)
            assert (again.orders, again.memory) == (plan.orders, plan.memory)
            assert (again.promises, again.broken) == (plan.promises, plan.broken)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "FEW", 0 if long else dispatch.FEW)
        patch.setattr(dispatch, "BLOCK", 3)
        outcome = simulate(World([machine(5)], {"": Governed("priority", given_)}), arrivals, watch=watch)
    assert len(outcome.ran) == len(rows)
