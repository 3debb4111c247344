"""Orders of the priority policy: names, expressions, late jobs first; starts equal to an engine written by hand."""

import random

import pytest

from rainbow.errors import PolicyError
from rainbow.scheduling import Priority, Start
from rainbow.scheduling.priority.config.orders import ORDERS, VARIABLES
from tests.support.policies import easy_engine
from tests.support.policies.dispatching import Job, replay
from tests.support.policies.priority_cases import NOW, asking, job, plan, running, view, waits

OWN = "coalesce(walltime, 0) * 2 - waited / 10 + (slots > 8 ? 500 : 0)"
POOL = 64


def workload(number, seed, load=1.0):
    """Jobs of one pool, as bursty as recorded ones are: most are small and short."""
    chance = random.Random(seed)
    made, now = [], 1_000_000.0
    for k in range(number):
        now += chance.expovariate(load / 90.0) if chance.random() < 0.8 else 0.0
        slots = min(POOL, 2 ** chance.randint(0, 6))
        run = chance.lognormvariate(5.5, 1.6) + 1
        made.append(Job(f"{k:06}", round(now, 3), slots, round(run, 3), round(run * chance.uniform(1, 5), 3)))
    return made


def unseen(*_):
    """Plans are not looked at."""


def by_policy(jobs, **settings):
    return replay(Priority(), {"machine": {"core": POOL}}, jobs, settings, unseen, remembers=True).start


@pytest.mark.parametrize("name", [*ORDERS, "own"])
def test_starts_are_those_of_an_engine_written_by_hand(name):
    jobs = workload(150, seed=len(name) + 7)
    key = easy_engine.ORDERS.get(name) or own
    expected = easy_engine.starts(jobs, POOL, key)
    result = by_policy(jobs, order=OWN if name == "own" else name)
    assert result == expected
    assert sum(start > one.submit for start, one in zip((result[j.id] for j in jobs), jobs, strict=True)) > 50


def own(job, now, origin):
    return job.walltime * 2 - (now - job.submit) / 10 + (500 if job.least > 8 else 0)


@pytest.mark.parametrize(("after", "first"), [(600, 1), (3_600, 1), (3_600, 3)])
def test_starve_puts_the_oldest_late_jobs_first_as_the_engine_does(after, first):
    jobs = workload(150, seed=3, load=1.3)
    expected = easy_engine.starts(jobs, POOL, easy_engine.ORDERS["saf"], after, first)
    result = by_policy(jobs, order="saf", starve={"after": after, "first": first})
    assert result == expected
    assert result != by_policy(jobs, order="saf")


@pytest.mark.soak
@pytest.mark.parametrize("name", [*ORDERS, "own"])
def test_ten_thousand_starts_are_those_of_the_engine(name):
    jobs = workload(10_000, seed=11, load=0.22)
    key = easy_engine.ORDERS.get(name) or own
    assert by_policy(jobs, order=OWN if name == "own" else name) == easy_engine.starts(jobs, POOL, key)


def test_every_name_has_its_engine():
    assert easy_engine.ORDERS.keys() == ORDERS.keys()


# ── what decides before the order ──


def order_of(made):
    return [entry["job"] for entry in made.figures["priorities"]]


def test_a_higher_posix_priority_stays_before_and_ties_go_by_priority_then_submission():
    jobs = [
        asking("long", 1, 900.0),
        asking("short", 1, 10.0),
        asking("raised", 1, 5_000.0, priority=5),
        asking("equal", 1, 10.0),
        asking("urgent", 1, 10.0, deadline=NOW + 60),
    ]
    assert order_of(plan(view(jobs, order="walltime"))) == ["raised", "urgent", "short", "equal", "long"]


def test_urgency_tickets_and_others_of_the_owner_can_be_read():
    jobs = [asking("a", 1, 10.0, requestor="ann"), asking("b", 1, 10.0, requestor="bob")]
    runs = [running("r1", "n0", requestor="ann"), running("r2", "n1", requestor="ann")]
    made = plan(view(jobs, runs=runs, order="running_of_owner"))
    assert order_of(made) == ["b", "a"]
    assert [entry["order"] for entry in made.figures["priorities"]] == [0, 2]
    every = " + ".join(VARIABLES)
    assert all("order" in entry for entry in plan(view(jobs, order=every)).figures["priorities"])


def test_an_item_without_a_value_goes_last_and_its_wait_says_why():
    jobs = [asking("endless", 1, 0.0), asking("zero", 8, 100.0), asking("fine", 8, 50.0)]
    made = plan(view(jobs, order="1 / (walltime - 100)", runs=[running("r", f"n{k}", 2) for k in range(4)]))
    assert order_of(made) == ["fine", "endless", "zero"]
    said = waits(made)
    assert said["zero"].text.endswith("; last in order, because division by zero")
    assert said["zero"].facts["order"] == "division by zero"
    assert said["endless"].text.endswith("; last in order, because walltime is not known")
    assert "order" not in said["fine"].facts
    starts = plan(view([asking("text", 1)], order="'a'"))
    assert [order.task for order in starts.orders if isinstance(order, Start)] == ["text"]


def test_jobs_that_start_late_go_before_every_priority():
    jobs = [job("old", 8, submit=NOW - 700), job("raised", 8, submit=NOW - 10, priority=9)]
    busy = [running("r", "n0", 1)]
    late = plan(view(jobs, runs=busy, starve={"after": 600}))
    assert order_of(late) == ["old", "raised"]
    assert order_of(plan(view(jobs, runs=busy))) == ["raised", "old"]


def test_submissions_count_from_when_the_queue_was_last_empty():
    full = [running("r", f"n{k}", 2) for k in range(4)]
    first = plan(view([job("a", submit=100.0)], runs=full, order="f2"))
    assert first.memory["origin"] == 100.0
    later = plan(view([job("b", submit=600.0)], runs=full, order="submitted", memory=first.memory))
    assert later.figures["priorities"][0]["order"] == 500.0
    assert "origin" not in plan(view([job("b", submit=600.0)], order="f2", memory=first.memory)).memory


@pytest.mark.parametrize(
    ("settings", "pointer", "words"),
    [
        ({"order": "wallclock * 2"}, "/order", "unknown variable wallclock"),
        ({"order": "walltime *"}, "/order", "column 11: expected a value"),
        ({"order": "__import__('os')"}, "/order", "column 1: "),
        ({"order": "walltime + " * 100 + "1"}, "/order", "at most 1,000"),
        ({"order": 7}, "/order", "a text"),
        ({"starve": {"after": 59}}, "/starve/after", "a number >= 60, got 59"),
        ({"starve": {"after": 600, "first": 0}}, "/starve/first", "a whole number >= 1, got 0"),
        ({"starve": {"first": 2}}, "/starve", "after is missing"),
        ({"starve": 600}, "/starve", "a mapping"),
    ],
)
def test_bad_orders_are_refused_where_they_stand(settings, pointer, words):
    with pytest.raises(PolicyError, match=r"order|number|missing|mapping|text") as refused:
        Priority().check(settings)
    assert refused.value.pointer == pointer
    assert words in refused.value.message
