"""Gangs among others: every gang that fits the cluster starts within a bounded time, whatever others submit."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.scheduling.load_based.whole_workers import WholeWorkers
from tests.support.policies.sites import Site
from tests.support.policies.views import plan, running, started, view

SHARED = {
    "classes": {"a": 30, "b": 70},
    "default_class": "b",
    "requestors": [{"match": "ann", "class": "a"}],
}
PATIENCE = 600.0  # seconds, the default


def flooded(site, seconds, others, pause=20.0, tick=lambda: None, until=lambda: False):
    """Let others submit all the time, so that more of them wait than could ever run; `tick` sees every step."""
    number, end = len(site.jobs), site.now + seconds
    while site.now < end and not until():
        while sum(1 for j in site.jobs.values() if j.gangs and j.id.startswith("o")) < 2 * site.workers:
            site.submit(f"o{number}", 1, **others(number))
            number += 1
        site.go_to(site.now + pause)
        tick()


def shorts(number):
    return {"requestor": "bob", "lasts": 40.0 + 7 * (number % 5), "limit": 0.0}


def limited(number):
    return {"requestor": "bob", "lasts": 40.0 + 7 * (number % 5), "limit": 80.0}


@pytest.mark.parametrize("others", [shorts, limited])
@pytest.mark.parametrize("wide", [4, 8, 10])
def test_gang_larger_than_its_class_starts_while_others_always_wait(wide, others):
    """A class of 30 % of 10 nodes: a gang of 4 never started, one of 8 kept 30 % of the machine idle for ever."""
    site = Site(10, SHARED)
    flooded(site, 300, others)
    site.submit("wide", wide, requestor="ann", lasts=100.0)
    flooded(site, PATIENCE + 400, others)
    assert site.started["wide"] <= 300 + PATIENCE + 400


def test_nothing_is_idle_for_a_gang_that_its_class_alone_could_never_start():
    site = Site(10, SHARED)
    flooded(site, 300, shorts)
    site.submit("wide", 8, requestor="ann", lasts=100.0)
    idle = []
    flooded(site, PATIENCE - 20, shorts, tick=lambda: idle.append(site.idle()))
    assert max(idle) == 0


def test_what_is_reserved_serves_tasks_that_end_before_it_is_needed():
    site = Site(10, SHARED)
    for k in range(10):
        site.submit(
            f"long{k}", 1, requestor="bob", lasts=100.0 if k < 5 else 3_000.0, limit=100.0 if k < 5 else 3_000.0
        )
    site.step()
    site.now = 50.0
    site.submit("wide", 10, requestor="ann", lasts=100.0)
    site.submit("open", 1, requestor="bob", lasts=100.0)
    site.memory = {"line": [["a", "wide"]]}
    site.submit("short", *[1] * 20, requestor="bob", lasts=500.0, limit=500.0)
    idle = []
    while "wide" not in site.started and site.now < 4_000:
        site.go_to(site.now + 25.0)
        idle.append(site.idle())
    assert site.started["wide"] == 3_000.0  # not later than without them
    assert site.started["short"] == 100.0
    assert "open" not in site.started  # it has no limit, and is younger


def test_what_is_reserved_is_given_back_once_however_many_would_borrow_it(monkeypatch):
    """A hundred short gangs that fit nowhere took and gave back 4,000 reserved nodes each: a step of 36 s."""
    inputs, give_back = [], WholeWorkers._give_back
    monkeypatch.setattr(WholeWorkers, "_give_back", lambda one, held: (inputs.append(held), give_back(one, held)))
    runs = [running(f"x-{k}", k, "bob") for k in range(6)]
    runs = [replace(run, until=900.0) for run in runs]
    site = Site(10, SHARED, now=700.0)
    site.submit("wide", 8, requestor="ann")
    for k in range(40):
        site.submit(f"short{k}", 3 if k == 20 else 5, requestor="bob", limit=100.0)
    of = view(list(site.jobs.values()), 10, runs, SHARED, now=700.0, memory={"line": [["a", "wide"]]})
    assert started(plan(of)) == ["short20-0"]
    assert len(inputs) == 1


def test_why_says_what_is_reserved_and_until_when():
    runs = [running(f"x-{k}", k, "bob") for k in range(6)]
    runs = [type(run)(run.task, run.job, run.requestor, run.gang, run.placement, 0.0, until=900.0) for run in runs]
    site = Site(10, SHARED, now=700.0)
    site.submit("wide", 8, requestor="ann")
    of = view([site.jobs["wide"]], 10, runs, SHARED, now=700.0, memory={"line": [["a", "wide"]]})
    (wait,) = plan(of).waits
    assert wait.reason == "reserving"
    assert wait.text == "4 of 8 workers reserved, first in line; starts by 1970-01-01T00:15:00.000Z"
    assert wait.facts == {
        "class": "a",
        "wanted": 8,
        "kept": 4,
        "target": 3,
        "loan": 1,
        "at": "1970-01-01T00:15:00.000Z",
    }


def test_gang_waiting_for_its_patience_is_told_when_it_ends():
    site = Site(10, SHARED)
    site.submit("wide", 8, requestor="ann")
    site.submit("others", *[1] * 40, requestor="bob", lasts=50.0)
    site.step()
    wait = site.wait_of("wide")
    assert (wait.reason, wait.facts["from"]) == ("share-too-small", "1970-01-01T00:10:00.000Z")
    assert wait.text == ("needs 8 workers at the same time, class a may use 3; more from 1970-01-01T00:10:00.000Z")


def test_loan_of_a_gang_is_paid_back():
    """Gangs of 8 of 10 nodes in a class of 30 %, without end: over time the class has about its share."""
    site = Site(10, {**SHARED, "gang_patience": 1})
    held = []
    for k in range(60):
        site.submit(f"g{k}", 8, requestor="ann", lasts=120.0)
    flooded(site, 5_000, shorts, tick=lambda: held.append(site.plan.figures["classes"]["a"]))
    used = sum(row["held"] - row["reserved"] for row in held) / len(held)
    assert 2.0 <= used <= 4.0
    assert len([name for name in site.started if name.startswith("g")]) >= 8


def test_one_gang_at_a_time_goes_beyond_its_class_oldest_first():
    site = Site(10, {**SHARED, "gang_patience": 0})
    flooded(site, 200, shorts)
    for k in range(3):
        site.submit(f"g{k}", 9, requestor="ann", lasts=30.0)
        site.now += 1.0
    seen = []
    flooded(
        site, 3_000, shorts, tick=lambda: seen.append([w.job for w in site.plan.waits if w.reason == "reserving"])
    )
    assert max(map(len, seen)) == 1
    assert site.started["g0"] < site.started["g1"] < site.started["g2"]


def test_gang_that_started_beyond_its_class_is_not_stopped_by_a_rebalance():
    site = Site(10, {**SHARED, "gang_patience": 0, "rebalance_threshold": 5, "rebalance_minimum_duration": 1})
    flooded(site, 200, shorts)
    site.submit("wide", 8, requestor="ann", lasts=2_000.0)
    flooded(site, 1_000, shorts)
    assert "wide-0" in site.runs


def test_gang_for_which_only_few_workers_do_does_not_idle_the_others():
    kinds = {f"node{k}": "gpu" for k in range(3)}
    runs = [running(f"x-{k}", k) for k in range(2)]
    site = Site(10, kinds=kinds)
    site.submit("wide", 3, kind="gpu")
    site.now = 1.0
    site.submit("plain", *[1] * 9)
    made = plan(view(list(site.jobs.values()), 10, runs, kinds=kinds))
    assert len(made.orders) == 7  # node2 is reserved, all others run
    assert next(wait.facts["kept"] for wait in made.waits if wait.job == "wide") == 1


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), percent=st.sampled_from([1, 10, 30, 50, 100]), unlimited=st.booleans())
def test_no_gang_that_fits_waits_for_ever_while_others_always_wait(seed, percent, unlimited):
    """Gangs of every width, on machines of one or two kinds, jobs without limits among the others."""
    rng = random.Random(seed)
    workers = rng.randint(2, 12)
    kinds = {f"node{k}": "gpu" for k in range(rng.randint(0, workers // 2))}
    classes = {"classes": {"a": percent, "b": 100}, "default_class": "b", "gang_patience": 5}
    site = Site(workers, {**classes, "requestors": [{"match": "ann", "class": "a"}]}, kinds)

    def others(number):
        lasts = rng.uniform(5.0, 90.0)
        limit = 0.0 if unlimited and rng.random() < 0.5 else lasts * rng.uniform(1.0, 3.0)
        return {"requestor": rng.choice(["bob", "ann"]), "lasts": lasts, "limit": limit}

    flooded(site, 200, others)
    for k in range(3):
        kind = "gpu" if kinds and rng.random() < 0.4 else "any"
        size = rng.randint(1, len(kinds) if kind == "gpu" else workers)
        site.submit(f"g{k}", size, requestor=rng.choice(["ann", "bob"]), lasts=30.0, kind=kind)
    longest = 3 * (
        300.0 + 400.0 + 30.0 * workers * (1 + 100 / percent) / max(1, workers * percent // (100 + percent))
    )
    gangs = {f"g{k}" for k in range(3)}
    flooded(site, longest, others, pause=30.0, until=lambda: gangs <= site.started.keys())
    assert gangs <= site.started.keys()
