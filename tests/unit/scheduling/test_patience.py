"""Nobody waits for ever: one patience for all policies, whatever others ask for, submit or never end."""

from __future__ import annotations

import json
import random
from math import inf

import pytest

from tests.conftest import LONG
from tests.support.asking import shared_folder
from tests.support.policies.flood import Flood, jobspec

HOUR = 3600.0
POLICIES = {
    "cores": ("load_based", {"unit": "core"}),
    "workers": ("load_based", {"unit": "worker"}),
    "priority": ("priority", {}),
    "fair_share": ("fair_share", {}),
}


def task(name, number=0):
    return f"{name}-{number}"


def starvation(name):
    cases = json.loads((shared_folder() / "inputs" / "whynow" / "starvation" / "cases.json").read_text())
    return next(case for case in cases if case["name"] == name)


@pytest.mark.parametrize("name", ["low-priority", "others-raise", "second-task"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_others_pass_for_ever_starts_within_the_patience(policy, name):
    case, (chosen, settings) = starvation(name), POLICIES[policy]
    size = (case["nodes"] * case["cores"], 1) if policy == "workers" else (case["nodes"], case["cores"])
    flood = Flood(chosen, {**settings, "patience": case["age_patience_s"]}, *size)
    raised = 1000 if name == "others-raise" else 0

    def others(flood):
        run = flood.chance.uniform(*case["others_run_s"])
        flood.submit(jobspec(priority=raised), flood.chance.choice(case["other_users"]), run)

    flood.fill(others, case["always_waiting"])
    spec = jobspec(tasks=2 if name == "second-task" else 1, priority=-5 if name == "low-priority" else 0)
    victim = flood.submit(spec, "ann", inf if name == "second-task" else 600.0)
    tasks = {task(victim, k) for k in range(len(spec["tasks"]))}
    assert flood.until(tasks, 12 * HOUR, others, case["always_waiting"]) <= case["must_start_within_h"] * HOUR


def test_without_patience_such_a_job_waits_for_ever():
    flood = Flood("load_based", {"unit": "core", "patience": 0}, 3, 4)

    def others(flood):
        flood.submit(jobspec(), flood.chance.choice("abc"), flood.chance.uniform(300, 2400))

    flood.fill(others, 8)
    victim = flood.submit(jobspec(priority=-5), "a", 600.0)
    assert flood.until({task(victim)}, 12 * HOUR, others, 8) == inf


MIXES = range(500 if LONG else 12)
MOVED = {"priority": [161], "fair_share": [134, 161]}  # what was kept moved on before it was empty


@pytest.mark.parametrize("policy", POLICIES)
def test_every_job_that_fits_starts_in_any_mix_within_the_patience_and_what_must_drain(policy):
    """Endless tasks of others leave room for it; of those that wait when it comes each may have its turn before."""
    chosen, settings = POLICIES[policy]
    late = []
    for seed in (*MIXES, *MOVED.get(policy, [])):
        chance = random.Random(seed)
        nodes, cores, patience = chance.randint(2, 5), chance.choice([2, 4, 8]), chance.choice([600.0, 3_600.0])
        flood = Flood(chosen, {**settings, "patience": patience, **every(chosen)}, nodes, cores, seed)
        endless, longest = chance.randint(0, nodes - 1), chance.choice([300.0, 1_200.0, 4_000.0])
        for _ in range(endless):
            flood.submit(jobspec("node"), "endless", inf)
        flood.plan()
        limits, widths = chance.random() < 0.5, [1] * 6 + [cores] * chance.randint(0, 2)
        asks = [0, 0, chance.choice([-10, 7, 1000])]

        def others(flood, longest=longest, widths=widths, asks=asks, limits=limits):
            run = flood.chance.uniform(60.0, longest)
            spec = jobspec(count=flood.chance.choice(widths), priority=flood.chance.choice(asks))
            flood.submit(spec, flood.chance.choice("abcd"), run, 1.5 * run if limits else 0.0)

        flood.fill(others, 6)
        kind = chance.choice(["core", "node"])
        widest = 1 if policy == "fair_share" else nodes - endless  # there a user's allotment bounds what it may have
        count = chance.randint(1, widest) if kind == "node" else chance.randint(1, cores)
        spec = jobspec(kind, count, priority=chance.choice([0, -5]))
        victim, came = flood.submit(spec, chance.choice("ab"), 100.0), flood.virtual.now
        older = sum(1 for job in flood.virtual.jobs.values() if job.gangs and job.id < victim)
        bound = patience + (2 + older) * (1.5 if limits else 1.0) * longest
        start = flood.until({task(victim)}, came + bound, others, 8)
        if start > came + bound:
            late.append((seed, endless, kind, count, nodes, cores))
    assert late == []


def every(policy):
    """Return a pace that lets the oldest follow each other."""
    return {} if policy == "fair_share" else {"patience_every": 0}


# ── what a jobspec asks for ──


@pytest.mark.parametrize("most", [0, 5])
@pytest.mark.parametrize("policy", ["cores", "priority"])
def test_a_jobspec_may_raise_its_priority_no_further_than_its_site_lets_it(policy, most):
    chosen, settings = POLICIES[policy]
    flood = Flood(chosen, {**settings, "most_asked_priority": most}, 1, 1)
    flood.submit(jobspec(), "ann", 100.0)
    flood.plan()
    for request in (0, 1_000, 5, -1):
        flood.submit(jobspec(priority=request), "ann", 100.0)
    while flood.waiting:
        flood.virtual.advance(flood.virtual.next_time())
        flood.plan()
    order = ["j00002", "j00003", "j00004", "j00005"] if most == 0 else ["j00003", "j00004", "j00002", "j00005"]
    assert sorted(flood.started, key=flood.started.get)[1:] == [task(name) for name in order]


def test_the_most_that_may_be_asked_for_can_change_while_jobs_wait():
    flood = Flood("load_based", {"unit": "core"}, 1, 1)
    census = flood.virtual.census
    for request in (0, 1_000, 5, -1):
        flood.submit(jobspec(priority=request), "ann", 100.0)
    for most, order in ((0, "1234"), (5, "2314"), (1_024, "2314"), (-1, "1234"), (0, "1234")):
        census.let_ask(most)
        assert [turn[-1][-1] for turn in census.queues["ann"].items()] == [*order]
