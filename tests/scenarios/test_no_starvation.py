"""Nobody waits for ever under a policy as it comes, whatever others ask for: on the host, with a moved clock."""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import Api, Clock, grid, open_service_at
from tests.support.growing import Site, bag, elastic

OTHERS = ["ann", "bob", "cid", "dan", "eve", "fay"]
QUARTER = 900.0  # seconds between two steps
LENGTHS = 600.0, 5_400.0


def machine(cores, **system):
    spec = bag(1, **system)
    spec["resources"][0]["with"][0]["count"] = cores
    return spec


def wide(nodes, cores):
    slot = {"type": "node", "replicas": nodes, "with": [{"type": "core", "count": cores}]}
    return {"resources": {"w": slot}, "tasks": [{"command": ["true"], "resources": "w"}]}


SPECS = {
    "task": lambda: bag(1),
    "short": lambda: bag(1, duration=7_200),
    "bag": lambda: bag(3),
    "machine": lambda: machine(4),
    "half": lambda: machine(2),
    "timed": lambda: machine(4, duration=7_200),
    "wide": lambda: wide(2, 2),
    "all": lambda: wide(2, 4),
    "low": lambda: bag(1, priority=-5),  # jobs may lower themselves
}
FAIR = {
    **SPECS,
    "elastic": lambda: elastic(1, 6),
    "least": lambda: elastic(3, 6),
    "reserve": lambda: machine(4, **{"class": "reserve"}),
}
POLICIES = {
    "fair_share": (FAIR, {"quantum": {"type": "core"}}),
    "priority": (SPECS, {}),
}


class Crowd:
    """Two machines of four cores on which others always have work waiting; every task ends after some time."""

    def __init__(self, database, policy, seed, others):
        self.chance, self.clock, self.others = random.Random(seed), Clock(), others
        self.policy, (self.specs, given_) = policy, POLICIES[policy]
        self.api = Api(open_service_at(database, self.clock))
        self.there = Site(self.api, self.api.register("one", grid(2, 4), policy={"name": policy, "settings": given_}))
        self.jobs, self.ends = [], {}

    def pass_time(self):
        """Let a quarter of an hour pass: tasks end, others submit, a step is taken."""
        self.clock.now += QUARTER
        self.there.cluster.say("heartbeat", running=[{"id": i, "attempt": a} for i, a in self.there.runs])
        for run in [run for run, end in self.ends.items() if end <= self.clock.now and run in self.there.runs]:
            self.there.end(run)
        waiting = [job for job in self.jobs if self.there.job(job)["state"] == "WAITING"]
        for _ in range(6 - len(waiting)):
            spec = self.specs[self.chance.choice(self.others)]()
            waiting.append(self.there.submit(self.chance.choice(OTHERS), spec))
        self.jobs = waiting
        self.there.step()
        for run in self.there.runs:
            self.ends.setdefault(run, self.clock.now + self.chance.uniform(*LENGTHS))

    def starts(self, kind, most):
        """Submit a job in the midst of them, and tell whether it starts within so many quarters of an hour."""
        for _ in range(4):
            self.pass_time()
        mine = self.there.submit("zoe", self.specs[kind]())
        for _ in range(most):
            self.pass_time()
            if mine in self.there.runs.values():
                return True
        return False


def tried(database, policy, seed, kind, others, most=60):
    crowd = Crowd(database, policy, seed, others)
    try:
        return crowd.starts(kind, most)
    finally:
        crowd.api.service.close()


def tried_here(*crowd, most=150):
    with tempfile.TemporaryDirectory() as folder:
        return tried(Path(folder), *crowd, most=most)


CASES = [
    ("fair_share", "wide", ["task"]),  # one core is always in use on either machine
    ("fair_share", "least", ["elastic", "half"]),
    ("fair_share", "elastic", ["task", "machine"]),  # the better class is always full
    ("fair_share", "elastic", ["least", "elastic"]),  # more users than there is room for
    ("fair_share", "reserve", ["task", "bag"]),
    ("priority", "all", ["task"]),
    ("priority", "all", ["task", "short", "half"]),
]


@pytest.mark.parametrize(("policy", "kind", "others"), CASES, ids=str)
def test_job_starts_in_the_end_though_others_always_wait(database, policy, kind, others):
    assert tried(database, policy, 1, kind, others)


@pytest.mark.soak
def test_job_of_low_priority_starts_in_the_end_though_others_are_always_before_it():
    assert tried_here("priority", 1, "low", ["machine"], most=110)


@st.composite
def crowds(draw):
    policy = draw(st.sampled_from(sorted(POLICIES)))
    kinds = st.sampled_from(sorted(POLICIES[policy][0]))
    return policy, draw(st.integers(0, 1 << 20)), draw(kinds), draw(st.lists(kinds, min_size=1, max_size=3))


@settings(max_examples=3, deadline=None)
@given(crowds())
def test_no_job_that_fits_waits_for_ever_with_others_always_waiting(crowd):
    assert tried_here(*crowd)


@pytest.mark.soak
@settings(max_examples=30, deadline=None)
@given(crowds())
def test_many_times_no_job_that_fits_waits_for_ever_with_others_always_waiting(crowd):
    assert tried_here(*crowd)
