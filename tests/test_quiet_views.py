"""Views that nobody reads the reasons of: on every recorded world a quiet plan has the same orders and memory."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rainbow.scheduling import FairShare, Priority
from tests import ocs_runs
from tests.conformance import rows
from tests.conformance.ocs import KINDS, pool
from tests.dispatching import Job, replay
from tests.epoch_checks import Play

RECORDED = Path(__file__).parent / "cases" / "conformance"


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
