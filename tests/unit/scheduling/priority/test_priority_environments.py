"""Parallel environments of the priority policy, ranges of slots, and where the slots of a job stand."""

import pytest

from rainbow.scheduling import Reserve
from rainbow.scheduling.priority.placement.slot_allocation import choose, learn
from tests.support.policies.dispatching import Job
from tests.support.policies.priority_cases import FOUR, NOW, PES, asking, job, placed, plan, running, view, waits


@pytest.mark.parametrize(
    ("pe", "least", "most", "expected"),
    [
        ("fill", 3, 0, {"n0": 2, "n1": 1}),
        ("round", 5, 0, {"n0": 2, "n1": 1, "n2": 1, "n3": 1}),
        ("one", 2, 0, {"n0": 2}),
        ("one", 1, 6, {"n0": 2}),
        ("pairs", 1, 7, {"n0": 2, "n1": 2, "n2": 2}),
        ("fill", 3, 99, {"n0": 2, "n1": 2, "n2": 2, "n3": 2}),
        ("small", 1, 99, {"n0": 2, "n1": 1}),
        ("f*", 1, 0, {"n0": 1}),
    ],
)
def test_environment_spreads_slots_by_its_rule(pe, least, most, expected):
    made = plan(view([asking("j", least, most=most, pe=pe)], parallel_environments=PES))
    assert placed(made) == {"j": expected}


def test_environments_that_match_are_compared_by_slots():
    known = {"a1": {"slots": 2}, "a2": {"slots": 5}, "a3": {"slots": 3}}
    assert sum(placed(plan(view([asking("j", 1, most=9, pe="a*")], parallel_environments=known)))["j"].values()) == 5


def test_unknown_environment_is_told_to_its_owner_and_harms_nobody():
    made = plan(view([asking("bad", pe="zzz"), asking("worse", queue=7), job("good")]))
    assert placed(made) == {"good": {"n0": 1}}
    assert {name: w.reason for name, w in waits(made).items()} == {"bad": "attributes", "worse": "attributes"}


def test_experience_prefers_the_way_that_asks_least():
    seen = {}
    for _ in range(20):
        seen = learn(seen, range(1, 65), 64)
    assert choose(seen) == "high"
    for _ in range(20):
        seen = learn(seen, range(1, 65), 1)
    assert choose(seen) == "low"
    for _ in range(40):
        seen = learn(seen, range(1, 65), 32)
    assert choose(seen) == "bisection"


def test_range_in_a_reservation_starts_early_with_few_and_takes_what_fits_then():
    runs = [
        running("r0", "n0", 2, walltime=20),
        running("r1", "n1", 2, walltime=20),
        running("r2", "n2", 2, walltime=500),
    ]
    workers = {name: FOUR[name] for name in ("n0", "n1", "n2")}
    made = plan(view([asking("j", 3, most=6)], workers, runs))
    order = next(o for o in made.orders if isinstance(o, Reserve))
    assert (order.at, {w: h["core"] for w, h in order.placement.items()}) == (NOW + 10, {"n0": 2, "n1": 2})


def test_master_task_stands_in_the_queue_asked_for_it():
    known = {"m": {"workers": ["n2"]}, "s": {"workers": ["n0", "n1", "n3"]}}
    made = plan(view([asking("j", 4, master_queue="m", queue="s")], queues=known))
    assert placed(made) == {"j": {"n2": 1, "n0": 2, "n1": 1}}
    assert made.memory["running"]["j"]["spots"][0] == ["n2", "m", 1]


@pytest.mark.parametrize(
    ("rule", "count", "expected"),
    [
        ("pe_slots", 2, {"n3": 2}),  # n2 has room for the master, and not for the others
        (2, 4, {"n3": 2, "n0": 2}),
        ("round_robin", 3, {"n2": 1, "n0": 1, "n1": 1}),
        ("fill_up", 3, {"n2": 1, "n0": 2}),
    ],
)
def test_master_and_others_keep_to_the_rule_together(rule, count, expected):
    known = {"m": {"workers": ["n2", "n3"]}, "s": {}}
    settings_ = {"queues": known, "parallel_environments": {"pe": {"rule": rule}}}
    request = asking("j", count, pe="pe", master_queue="m", queue="s")
    made = plan(view([request], FOUR, [running("r", "n2")], **settings_))
    assert placed(made) == {"j": expected}
    assert made.memory["running"]["j"]["spots"][0][1] == "m"


def test_slots_that_stand_apart_take_one_of_each_worker_whatever_its_queues():
    lone = Job("j", 0.0, 3, 5, 50.0, apart=True)
    made = plan(view([lone], queues={"a": {}, "b": {}}))
    assert placed(made) == {"j": {"n0": 1, "n1": 1, "n2": 1}}


def test_soft_requests_choose_among_what_fits_and_never_refuse():
    known = {"slow": {"workers": ["n0", "n1"]}, "fast": {"workers": ["n2"]}}
    made = plan(view([asking(f"j{k}", soft={"queue": "fast"}) for k in range(3)], queues=known))
    assert placed(made) == {"j0": {"n2": 1}, "j1": {"n2": 1}, "j2": {"n0": 1}}
    workers = {"a": {"core": 2}, "b": {"core": 2, "gpu": 1}}
    made = plan(view([asking("j", soft={"resources": {"gpu": 1}})], workers))
    assert placed(made) == {"j": {"b": 1}}
