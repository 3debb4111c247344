"""What a rebalance stops, over whole plans, exact and classic."""

import pytest

from rainbow.scheduling import RunView
from rainbow.scheduling.load_based.rebalance import given_back, units
from tests.support.policies.views import job, plan, running, started, stopped, view

SETTINGS = {
    "classes": {"a": 50, "b": 50},
    "default_class": "a",
    "requestors": [{"match": "b.*", "class": "b"}, {"match": "a.*", "class": "a"}],
    "rebalance_threshold": 20,
    "rebalance_minimum_duration": 4,
}
OVER = {"over_since": 0.0}
LATE = 241.0  # seconds: four minutes and one
LENT = [running(f"x-{k}", k, "bob", started=float(k)) for k in range(4)]  # b holds all of its and a's workers


def rebalanced(jobs, runs=LENT, settings=SETTINGS, now=LATE, memory=OVER, **more):
    return plan(view(jobs, runs=runs, settings=settings, now=now, memory=memory, **more))


@pytest.mark.parametrize("rounding", ["exact", "classic"])
def test_newest_loans_are_stopped_for_those_entitled(rounding):
    made = rebalanced([job("w", 1, 1, 1, requestor="al")], settings={**SETTINGS, "rounding": rounding})
    assert stopped(made) == ["x-3", "x-2"]
    assert {order.why for order in made.orders} == {"RebalanceRequested"}
    assert started(made) == []
    assert "over_since" not in made.memory


def test_no_more_stops_than_will_start():
    assert stopped(rebalanced([job("w", 1, requestor="al")])) == ["x-3"]


@pytest.mark.parametrize("rounding", ["exact", "classic"])
def test_nothing_stops_when_nothing_would_start(rounding):
    waits_for_another_kind = job("w", 1, 1, requestor="al", kind="gpu")
    kinds = {f"node{k}": "gpu" for k in (4, 5)}
    held = [*LENT, *(running(f"y-{k}", k, "bob", started=9.0) for k in (4, 5))]
    settings = {**SETTINGS, "rounding": rounding}
    only_gpu = rebalanced([waits_for_another_kind], held, settings, workers=6, kinds=kinds)
    assert stopped(only_gpu) == ["y-4", "y-5"]
    nothing = rebalanced([], held, settings, workers=6)
    assert stopped(nothing) == []


def test_idle_workers_come_before_victims():
    made = rebalanced([job("w", 1, 1, requestor="al")], LENT[:3])
    assert started(made) == ["w-0"]
    assert stopped(made) == ["x-2"]


@pytest.mark.parametrize(
    ("now", "memory", "over_since"),
    [(LATE, {}, LATE), (239.0, OVER, 0.0), (240.0, OVER, 0.0)],
    ids=["begins to count", "not yet", "exactly the duration"],
)
def test_spread_must_last(now, memory, over_since):
    made = rebalanced([job("w", 1, 1, requestor="al")], now=now, memory=memory)
    assert stopped(made) == []
    assert made.memory["over_since"] == over_since


@pytest.mark.parametrize(("rounding", "kept"), [("exact", False), ("classic", True)])
def test_smaller_spread_stops_the_timer_but_not_the_original_s(rounding, kept):
    settings = {**SETTINGS, "rounding": rounding}
    even = [running("x-0", 0, "bob"), running("x-1", 1, "bob"), running("y-2", 2, "al"), running("y-3", 3, "al")]
    made = rebalanced([job("w", 1, requestor="al")], even, settings)
    assert ("over_since" in made.memory) is kept


@pytest.mark.parametrize("off", ["rebalance_threshold", "rebalance_minimum_duration"])
def test_either_setting_at_zero_switches_it_off(off):
    assert stopped(rebalanced([job("w", 1, requestor="al")], settings={**SETTINGS, off: 0})) == []


def test_no_rebalance_before_the_victims_of_the_last_have_ended():
    held = [*LENT[:3], running("x-3", 3, "bob", started=3.0, stopping=True)]
    made = rebalanced([job("w", 1, 1, requestor="al")], held)
    assert stopped(made) == []
    assert made.memory["over_since"] == 0.0


def test_gang_stops_whole_or_not_at_all():
    wide = [
        RunView("g-0", "g", "bob", 0, {"node0": {"core": 1}, "node1": {"core": 1}}, 9.0),
        running("x-2", 2, "bob", started=1.0),
        running("x-3", 3, "bob", started=2.0),
    ]
    assert stopped(rebalanced([job("w", 1, requestor="al")], wide)) == ["x-3"]
    assert stopped(rebalanced([job("w", 2, requestor="al")], wide)) == ["g-0"]


def test_gang_larger_than_what_is_lent_stops_nothing():
    made = rebalanced([job("w", 3, requestor="al")])
    assert stopped(made) == []
    assert made.rest.of("w").reason == "on-loan"


def test_equal_starts_are_ordered_by_task():
    runs = [running(f"x-{k}", k, "bob", started=1.0) for k in (2, 0, 1)]
    assert [unit.tasks for unit in units(runs, len)] == [("x-0",), ("x-1",), ("x-2",)]
    assert [unit.tasks for unit in given_back(units(runs, len), 2)] == [("x-0",), ("x-1",)]


def test_classic_plan_starts_what_the_original_counts():
    settings = {"classes": {"a": 0, "b": 60, "c": 40}, "default_class": "b", "rounding": "classic"}
    settings["requestors"] = [{"match": "a", "class": "a"}, {"match": "b", "class": "b"}]
    jobs = [job("off", 1, requestor="a"), job("on", *[1] * 9, requestor="bea"), job("unknown", 1, 1, requestor="zed")]
    made = plan(view(jobs, workers=10, settings=settings))
    # 0 % never runs, `bea` holds an a: the first expression that is found wins; the unknown are of the smallest class
    assert started(made) == []
    settings["requestors"] = [{"match": "^b", "class": "b"}, {"match": "^a", "class": "a"}]
    settings["classes"] = {"a": 40, "b": 50, "c": 10}
    made = plan(view(jobs, workers=10, settings=settings))
    assert {"off-0", "unknown-0"} <= set(started(made))
    assert len(started(made)) == 10
