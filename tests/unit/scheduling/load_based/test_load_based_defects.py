"""The defects of the original's algorithm, each with a test that its behaviour would fail."""

import gzip
import json

import pytest

from rainbow.scheduling.load_based import classic_counts
from rainbow.scheduling.load_based.entitlements import ClassCount, credited, starts, targets
from rainbow.scheduling.load_based.settings import check_settings, read_classes
from tests.conformance.scoot import decide
from tests.support.policies.views import job, plan, running, started, stopped, view
from tests.unit.scheduling.load_based.test_load_based_invariants import RECORDED, counted

SCENARIOS = {row["id"]: row for row in map(json.loads, gzip.decompress(RECORDED.read_bytes()).splitlines())}
NAN = [row for row in SCENARIOS.values() if "nan" in row["flags"]]


@pytest.mark.parametrize("row", NAN, ids=lambda row: row["id"])
def test_loans_of_nothing_by_nothing_start_no_more_than_is_idle(row):
    """The original's 0/0 returned 1573 starts for 439 idle workers."""
    workers, idle, counts = counted(row)
    assert sum(starts(idle, workers, counts).values()) == min(idle, sum(c.waiting for c in counts))
    assert sum(decide(row)["start"].values()) <= idle


def test_one_idle_worker_is_lent_though_every_loan_is_exact():
    """Two classes lent exactly their shares and one worker idle is where the original divides 0 by 0."""
    counts = [ClassCount("a", 40, 8, 5), ClassCount("b", 40, 8, 5), ClassCount("c", 20, 0, 0)]
    assert sum(starts(1, 17, counts).values()) == 1
    numbers = classic_counts.starts(1, 17, {"a": 40, "b": 40, "c": 20}, {"a": 8, "b": 8}, {"a": 5, "b": 5})
    assert sum(numbers.values()) == 1


def test_rebalance_stops_no_more_than_starts():
    """The original killed 421 tasks to start 4 (scenario 2214)."""
    row = SCENARIOS[2214]
    settings = {
        "classes": row["percents"],
        "default_class": "c",
        "requestors": [{"match": match, "class": name} for match, name in row["map"].items()],
        "rebalance_threshold": 1,
        "rebalance_minimum_duration": 4,
    }
    # every worker is busy here, so that there is anything to stop at all
    runs = [running(f"r-{k}", k, "b-x", started=float(k)) for k in range(1000)]
    jobs = [job("j0", *[1] * 4, requestor="a-x"), job("j1", 1, 1, requestor="b-x", running=352)]
    made = plan(view(jobs, 1000, runs, settings, now=1801.0, memory={"over_since": 0.0}))
    assert stopped(made) == ["r-999", "r-998", "r-997", "r-996"]


def test_idle_workers_make_a_rebalance_needless():
    """As recorded, 2214 has 297 idle workers: both classes start at once and nobody is stopped."""
    row = SCENARIOS[2214]
    settings = {"classes": row["percents"], "default_class": "c", "rebalance_threshold": 1}
    settings["requestors"] = [{"match": match, "class": name} for match, name in row["map"].items()]
    runs = [running(f"r-{k}", k, "b-x") for k in range(703)]
    jobs = [job("j0", *[1] * 4, requestor="a-x"), job("j1", 1, 1, requestor="b-x", running=352)]
    made = plan(view(jobs, 1000, runs, settings, now=1801.0, memory={"over_since": 0.0}))
    assert (len(started(made)), stopped(made)) == (6, [])


def test_class_of_one_percent_does_not_starve():
    """Fifty workers, all busy: the original ran none of its tasks in 300 rounds."""
    state, credit, ran = {"large": 50, "small": 0}, {}, 0
    for _ in range(300):
        counts = [ClassCount("large", 99, state["large"], 500), ClassCount("small", 1, state["small"], 500)]
        granted = starts(50 - sum(state.values()), 50, counts, credit)
        credit = credited(credit, counts, targets(50, {"large": 99, "small": 1}), granted)
        ran += granted["small"]
        state = {name: running + granted[name] for name, running in state.items()}
        state = {"large": state["large"] - 1, "small": 0}  # a task of either ends
    assert ran >= 2


def test_small_share_is_not_normalised_to_nothing():
    """{200, 1} became {100, 0}: the class was switched off."""
    classes = read_classes(check_settings({"classes": {"a": 200, "b": 1}, "default_class": "a"}))
    assert classes.percents["b"] > 0.49


def test_ties_are_not_drawn_by_lot():
    """456 of 4000 scenarios had several outcomes."""
    rows = [row for row in SCENARIOS.values() if "nondet" in row["flags"]]
    for row in rows:
        workers, idle, counts = counted(row)
        assert starts(idle, workers, counts) == starts(idle, workers, list(reversed(counts)))
    assert rows


def test_remainder_does_not_go_to_a_class_that_is_entitled_to_nothing():
    """The largest class took the rounding remainder though its own entitlement was used up (I4, scenario 98)."""
    counts = [ClassCount("large", 60, 6, 5), ClassCount("b", 20, 1, 5), ClassCount("c", 20, 0, 5)]
    assert starts(3, 10, counts) == {"large": 0, "b": 1, "c": 2}
