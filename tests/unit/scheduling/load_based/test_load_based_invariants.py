"""I1 to I14 of the load-based algorithm, over recorded inputs and generated rounds of every regime.

under  classes below their targets       loan   some have nothing waiting, others are lent their workers
sat    everything is busy                reb    classes far from their targets, the timer has run out
multi  percents that do not sum to 100   edge   no workers, one worker, more classes than workers
"""

import gzip
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rainbow.errors import PolicyError
from rainbow.scheduling import LoadBased
from rainbow.scheduling.load_based import classic_counts
from rainbow.scheduling.load_based import settings as load_based_settings
from rainbow.scheduling.load_based.entitlements import (
    ClassCount,
    credited,
    needs,
    spread,
    starts,
    stops,
    targets,
    targets_now,
    turn,
)
from rainbow.scheduling.load_based.settings import Rebalance, check_settings, read_classes

RECORDED = Path(__file__).parents[3] / "cases" / "conformance" / "scoot" / "scenarios.jsonl.gz"
SCENARIOS = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
REGIMES = ["under", "loan", "sat", "reb", "multi", "edge"]


def counted(row):
    """Return (workers, idle, classes) of a recorded scenario, its jobs counted by exact classes."""
    named = [(match, name) for match, name in row["map"].items() if name in row["percents"]]
    entries = [{"match": match, "class": name} for match, name in named if match.count("(") == match.count(")")]
    largest = max(row["percents"], key=lambda name: (row["percents"][name], name))
    classes = read_classes(
        check_settings({"classes": row["percents"], "default_class": largest, "requestors": entries})
    )
    held = dict.fromkeys(row["percents"], 0)
    wait = dict.fromkeys(row["percents"], 0)
    for job in row["jobs"]:
        held[classes.of(job["r"])] += job["run"]
        wait[classes.of(job["r"])] += job["wait"]
    counts = [ClassCount(name, percent, held[name], wait[name]) for name, percent in row["percents"].items()]
    return row["workers"], row["idle"], counts


@st.composite
def generated(draw, regime=None):
    """Draw a round: the busy workers are those the classes hold."""
    regime = regime or draw(st.sampled_from(REGIMES))
    percents = draw(st.lists(_percent(regime), min_size=1, max_size=7).filter(any))
    workers = draw(st.integers(0, 4) if regime == "edge" else st.integers(0, 120))
    target = targets(workers, {str(k): percent for k, percent in enumerate(percents)})
    remaining, counts = workers, []
    for k, percent in enumerate(percents):
        most = min(remaining, target[str(k)]) if regime == "under" else remaining
        running = draw(st.integers(0, most))
        remaining -= running
        quiet = regime in ("loan", "reb") and draw(st.booleans())
        counts.append(ClassCount(f"c{k}", percent, running, 0 if quiet else draw(st.integers(0, 150))))
    return workers, 0 if regime == "sat" else remaining, counts


def _percent(regime):
    odd = st.sampled_from([0.1, 0.5, 1.5, 33.3]) if regime == "multi" else st.just(1)
    return st.one_of(st.integers(0, 100), st.sampled_from([0, 1, 1, 2]), odd)


rounds = st.one_of(generated(), st.sampled_from([counted(row) for row in SCENARIOS]))
credits = st.dictionaries(st.sampled_from([f"c{k}" for k in range(7)] + list("abcdef")), st.floats(0, 3), max_size=4)


def wanting(counts, granted):
    """Return by class what still waits."""
    return {c.name: c.waiting - granted[c.name] for c in counts}


@given(rounds, credits)
def test_i1_i2_i3_every_idle_worker_somebody_waits_for_is_used_and_no_other(of, credit):
    workers, idle, counts = of
    granted = starts(idle, workers, counts, credit)
    assert sum(granted.values()) == min(idle, sum(c.waiting for c in counts))
    assert all(0 <= granted[c.name] <= c.waiting for c in counts)


@given(rounds)
def test_i2_classic_too_uses_every_idle_worker_that_a_class_with_a_percent_waits_for(of):
    workers, idle, counts = of
    percents = load_based_settings.normalise({c.name: c.percent for c in counts})
    running, waiting = {c.name: c.running for c in counts}, {c.name: c.waiting for c in counts}
    granted = classic_counts.starts(idle, workers, percents, running, waiting)
    requirements = {name: waiting[name] if percents[name] else 0 for name in percents}
    assert all(0 <= granted[name] <= requirements[name] for name in percents)
    assert sum(granted.values()) == min(idle, sum(requirements.values()))


@given(rounds, credits)
def test_i4_nobody_is_lent_a_worker_somebody_is_entitled_to(of, credit):
    workers, idle, counts = of
    granted, target = starts(idle, workers, counts, credit), targets_now(workers, counts, credit)
    starving = [c for c in counts if c.running + granted[c.name] < target[c.name] and granted[c.name] < c.waiting]
    lent = [c for c in counts if granted[c.name] and c.running + granted[c.name] > target[c.name]]
    assert not (starving and lent)


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 10_000) | st.floats(0, 100), min_size=1))
def test_i5_no_percent_is_normalised_away(percents):
    largest = max(percents, key=percents.get)
    if percents[largest]:
        classes = read_classes(check_settings({"classes": percents, "default_class": largest}))
        assert all(classes.percents[name] > 0 for name, percent in percents.items() if percent > 1e-300)
        assert abs(sum(classes.percents.values()) - 100) < 1e-6


@given(rounds, credits)
def test_i6_targets_sum_to_the_workers_and_keep_the_quota(of, credit):
    workers, _, counts = of
    target = targets_now(workers, counts, credit)
    percent = {c.name: Fraction(str(c.percent)) for c in counts}
    assert sum(target.values()) == workers
    assert all(abs(target[n] - workers * p / sum(percent.values())) < 1 for n, p in percent.items())


@given(rounds, credits, st.randoms(use_true_random=False))
def test_i7_order_of_classes_is_no_matter(of, credit, rng):
    workers, idle, counts = of
    mixed = list(counts)
    rng.shuffle(mixed)
    assert starts(idle, workers, counts, credit) == starts(idle, workers, mixed, credit)
    assert stops(counts, targets_now(workers, counts, {})) == stops(mixed, targets_now(workers, mixed, {}))


@given(rounds, credits)
@example((13, 1, [ClassCount("a", 2, 6, 9), ClassCount("b", 1, 2, 9), ClassCount("c", 1, 4, 0)]), {})
@example(
    (6, 3, [ClassCount("a", 82, 3, 9), ClassCount("b", 2, 0, 5), ClassCount("c", 1, 0, 8)]), {"b": 1.2, "c": 1.2}
)
def test_i8_one_more_idle_worker_lowers_nobody(of, credit):
    workers, idle, counts = of
    fewer, more = starts(idle, workers, counts, credit), starts(idle + 1, workers + 1, counts, credit)
    freed = starts(idle + 1, workers, counts, credit)
    assert all(more[name] >= fewer[name] and freed[name] >= fewer[name] for name in fewer)


@given(rounds, st.sampled_from(["", *(f"c{k}" for k in range(7))]))
def test_i8_one_more_worker_lowers_no_target_whose_turn_it_ever_is(of, whose):
    workers, _, counts = of
    percents = {c.name: c.percent for c in counts}
    whose = whose if percents.get(whose) else ""
    fewer, more = targets(workers, percents, whose), targets(workers + 1, percents, whose)
    assert all(more[name] >= fewer[name] for name in fewer)


@given(generated("loan"))
def test_i9_no_loan_would_be_better_given_to_another(of):
    """Each class's last loan ranks before every other class's next one: who has least for its percent goes first."""
    workers, idle, counts = of
    granted, target = starts(idle, workers, counts), targets(workers, {c.name: c.percent for c in counts})
    after = {c.name: max(0, c.running + granted[c.name] - target[c.name]) for c in counts}
    borrowers = [c for c in counts if c.percent and granted[c.name] and after[c.name]]
    wanting_more = [c for c in counts if c.percent and granted[c.name] < c.waiting]
    for borrower in borrowers:
        for other in wanting_more:
            mine = Fraction(str(borrower.percent)) / after[borrower.name]
            theirs = Fraction(str(other.percent)) / (after[other.name] + 1)
            assert float(mine) >= float(theirs) - 1e-9


@given(rounds)
def test_i11_what_stops_is_lent_and_makes_room_for_as_many_starts(of):
    workers, idle, counts = of
    target = targets(workers, {c.name: c.percent for c in counts})
    granted = starts(idle, workers, counts)
    after = [replace(c, running=c.running + granted[c.name], waiting=c.waiting - granted[c.name]) for c in counts]
    stopped, needed = stops(after, target), needs(after, target)
    assert all(0 <= stopped[c.name] <= max(0, c.running - target[c.name]) for c in counts)
    assert sum(stopped.values()) <= sum(needed.values())
    assert not any(stopped[c.name] and granted[c.name] for c in counts if sum(needed.values()))


@given(rounds)
@example((10, 0, [ClassCount("a", 70, 2, 20), ClassCount("b", 20, 4, 10), ClassCount("c", 10, 4, 30)]))
def test_i11_rebalance_brings_the_needy_to_their_targets_when_all_workers_are_held(of):
    workers, _, counts = of
    target = targets(workers, {c.name: c.percent for c in counts})
    if sum(c.running for c in counts) == workers:
        assert sum(stops(counts, target).values()) == sum(needs(counts, target).values())


def test_i11_timer_resets_when_the_spread_drops():
    rebalance = Rebalance(threshold=10, minimum=4)
    due, since = rebalance.due(20, None, 0.0, clears=True)
    assert (due, since) == (False, 0.0)
    assert rebalance.due(5, since, 100.0, clears=True) == (False, None)
    assert rebalance.due(5, since, 100.0, clears=False) == (False, 0.0)
    assert rebalance.due(20, since, 240.0, clears=True) == (False, 0.0)
    assert rebalance.due(20, since, 240.5, clears=True) == (True, None)


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["classes", "default_class", "requestors", "rounding", "rebalance_threshold"])


@given(
    st.dictionaries(keys, anything)
    | st.dictionaries(st.just("classes"), st.dictionaries(st.text(max_size=3), anything))
)
def test_i12_settings_are_refused_or_can_be_planned_with(given_settings):
    try:
        checked = LoadBased().check(given_settings)
    except PolicyError:
        return
    assert read_classes(checked).of("somebody") in checked["classes"]


@settings(deadline=None, max_examples=20)
@given(generated(), st.randoms(use_true_random=False))
def test_i13_everything_starts_after_finitely_many_rounds(of, rng):
    """Any task ends in a round, and none runs for ever: every class with a percent gets its tasks started."""
    workers, _, counts = of
    workers = max(1, workers % 12)
    state = {c.name: replace(c, running=0, waiting=min(c.waiting, 12)) for c in counts}
    credit, flood = {}, max(counts, key=lambda c: c.percent).name
    least = min(1.0, *(c.percent for c in counts if c.percent))
    for now in range(40 * len(state) * (1 + int(sum(c.percent for c in counts) / least))):
        busy = sum(c.running for c in state.values())
        granted = starts(workers - busy, workers, list(state.values()), credit)
        base = targets(workers, {c.name: c.percent for c in counts})
        credit = credited(credit, list(state.values()), base, granted)
        for name, more in granted.items():
            c = state[name]
            # the largest class never runs out of tasks
            state[name] = replace(c, running=c.running + more, waiting=c.waiting - (0 if name == flood else more))
        if not any(c.waiting for c in state.values() if c.percent and c.name != flood):
            return
        ending = [name for name, c in state.items() if c.running]
        for name in ending if now % 9 == 0 else [rng.choice(ending)]:
            state[name] = replace(state[name], running=state[name].running - 1)
    pytest.fail(f"still waiting: {state}")


def test_i5_i13_one_percent_of_fifty_workers_runs_its_share_over_time():
    running, credit, log = {"large": [], "small": []}, {}, []
    for now in range(300):
        for ends in running.values():
            ends[:] = [end for end in ends if end > now]
        counts = [
            ClassCount("large", 99, len(running["large"]), 500),
            ClassCount("small", 1, len(running["small"]), 500),
        ]
        granted = starts(50 - sum(map(len, running.values())), 50, counts, credit)
        credit = credited(credit, counts, targets(50, {"large": 99, "small": 1}), granted)
        for name, more in granted.items():
            running[name] += [now + 5 + (k % 3) for k in range(more)]
        log.append(len(running["small"]))
    assert 0.4 <= sum(log) / 300 <= 0.6  # 1 % of 50 workers is half a worker


@given(st.text(max_size=6), st.lists(st.sampled_from(["a.*", "b", ".*", "[ab]+"]), max_size=3))
def test_i14_every_requestor_has_a_class_that_may_run(requestor, matches):
    settings = {
        "classes": {"paid": 1, "spare": 3},
        "default_class": "spare",
        "requestors": [{"match": match, "class": "paid"} for match in matches],
    }
    assert read_classes(check_settings(settings)).of(requestor) in ("paid", "spare")


def test_turn_goes_to_whoever_is_due_most():
    counts = [ClassCount("a", 98, 1, 9), ClassCount("b", 1, 0, 9), ClassCount("c", 1, 0, 9)]
    assert turn(counts, {"b": 1.0, "c": 1.5}) == "c"
    assert turn(counts, {"b": 0.5}) == ""


@pytest.mark.parametrize("of", [(0, 0.0), (4, 150.0)])
def test_spread_is_of_classes_that_wait_or_hold_too_much(of):
    workers, expected = of
    counts = [ClassCount("a", 75, 0, 1), ClassCount("b", 25, workers, 0), ClassCount("c", 0, 0, 0)]
    assert spread(workers, counts) == expected
