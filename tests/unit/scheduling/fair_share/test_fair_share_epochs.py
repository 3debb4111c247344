"""Whole schedules: the invariants hold in random clusters too, and all come to rest."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fair_share import busy_view
from rainbow.scheduling import FairShare
from rainbow.scheduling.fair_share.epoch import MOST_TURNS
from tests.support.policies.epoch_checks import Play
from tests.support.policies.scenarios import scenario, with_minima

CIRCLES = (301, 418, 476, 784, 2210, 4000, 5139, 6171, 6173)  # went round, or ran out of shares to start, once
LEFT_WITH_TOO_FEW = (659, 991, 2899)  # a better job took some of what was going to start, and the rest started
BUSY = 418


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 30), st.booleans())
def test_random_cluster_keeps_every_invariant_and_comes_to_rest(seed, minima):
    row = scenario(seed)
    assert list(Play(with_minima(row, seed) if minima else row).run()) == []


@pytest.mark.parametrize("seed", CIRCLES)
def test_schedule_that_once_went_round_in_circles_comes_to_rest(seed):
    assert list(Play(scenario(seed)).run()) == []


@pytest.mark.parametrize("seed", LEFT_WITH_TOO_FEW)
def test_job_left_with_fewer_starts_than_it_can_work_with_waits(seed):
    assert list(Play(with_minima(scenario(seed), seed)).run()) == []


def test_share_that_was_to_shrink_and_is_kept_instead_may_be_given_after_all():
    assert list(Play(scenario(1090)).run()) == []


@pytest.mark.soak
@pytest.mark.parametrize("start", range(0, 3000, 100))
def test_many_random_clusters_keep_every_invariant(start):
    rows = [with_minima(scenario(seed), seed) if seed % 2 else scenario(seed) for seed in range(start, start + 100)]
    assert [fault for row in rows for fault in Play(row).run()] == []


@pytest.mark.soak
def test_epoch_of_ten_thousand_machines_and_a_thousand_jobs_takes_a_second_at_most():
    view = busy_view(10_000, 1_000)
    times = []
    for _ in range(3):
        began = time.process_time()
        FairShare().plan(view)
        times.append(time.process_time() - began)
    assert min(times) < 1


def test_counts_are_fixed_only_after_patience_and_until_a_change():
    play = Play(scenario(BUSY))
    assert list(play.run()) == []
    stored = play.cluster.memory["fair_share"]["trees"]["NP0"]["settling"]
    assert stored["turns"] >= MOST_TURNS
    assert stored["counts"]
    gone = play.cluster.alive()[0]["id"]
    play.cluster.over.add(gone)
    play.cluster.step()
    assert play.cluster.memory["fair_share"]["trees"]["NP0"]["settling"]["counts"] == {}
