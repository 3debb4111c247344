"""Predicted lengths: the last runs like it, the widest key that has any, never beyond the limit."""

from math import exp, inf, log
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.forecast import Key, RunHistory, left, length_of, ratios

KEY = Key("oak", "ann", "train", "epoch", 4)
NONE = RunHistory({})


def known(*seconds, key=KEY, ratios=()):
    return RunHistory({key: list(seconds)}, ratios)


@pytest.mark.parametrize(
    ("key", "source"),
    [
        (KEY, "name"),
        (Key("oak", "ann", "train", "epoch"), "name"),
        (Key("oak", "ann"), "requestor"),
        (Key("oak"), "cluster"),
    ],
)
def test_length_is_the_median_of_the_most_specific_key_with_a_run(key, source):
    length = length_of(known(50, 10, 30, key=key), KEY, 3_600)
    assert (length.seconds, length.runs, length.source) == (30, 3, source)


def test_the_mean_counts_each_run_as_at_most_the_limit():
    length = length_of(known(10, 20, 600), KEY, 60)
    assert (length.seconds, length.mean) == (20, 30)
    assert length_of(NONE, KEY, 60).mean == 30


def test_length_of_twenty_last_runs_forgets_older_ones():
    assert length_of(known(*[1] * 100, *[9] * 20), KEY, 3_600).seconds == 9


def test_length_without_runs_is_half_the_limit_and_without_both_unknown():
    assert length_of(NONE, KEY, 3_600).seconds == 1_800
    assert length_of(NONE, KEY, 0).seconds == inf
    assert length_of(NONE, KEY, 0).source == "unknown"


@given(
    st.lists(st.floats(1, 1e6), min_size=1, max_size=50),
    st.lists(st.floats(-2, 2), max_size=100),
    st.floats(1, 1e6),
    st.floats(0, 1e6),
)
def test_lengths_never_pass_the_limit_and_bands_hold_the_length(runs, ratios, limit, ran):
    length = length_of(known(*runs, ratios=ratios), KEY, limit)
    assert max(length.seconds, length.mean) <= limit * (1 + 1e-9)
    assert length.high <= limit
    assert length.low <= length.high
    assert 0 <= left(known(*runs), KEY, ran, limit) <= max(0.0, limit - ran) + 1e-9 * limit


def test_band_is_conformal_on_the_clusters_own_ratios():
    length = length_of(known(100, ratios=[0.01 * k for k in range(-50, 50)]), KEY, 0)
    assert (length.low, length.high) == pytest.approx((100 * exp(-0.41), 100 * exp(0.4)))


@pytest.mark.parametrize(
    ("runs", "ran", "limit", "more"),
    [
        ((10, 20, 90), 15, 0, 40),  # of 20 and 90
        ((10, 20, 30, 90), 15, 0, 95 / 3),  # their mean: others wait for it
        ((10, 20, 90), 15, 40, 15),  # 20, and 90 as 40
        ((10, 20, 90), 100, 0, 100),  # longer than all: as long again
        ((10, 20, 90), 100, 120, 20),  # at most until its limit
        ((), 10, 100, 40),  # half the limit
        ((), 80, 100, 20),
        ((), 80, 0, inf),
        ((10,), 130, 120, 0),
    ],
)
def test_what_is_left_of_a_run_is_what_longer_ones_had_left(runs, ran, limit, more):
    assert left(known(*runs) if runs else NONE, KEY, ran, limit) == pytest.approx(more)


CLUSTERS = ("ash", "elm", "oak")


@given(st.lists(st.dictionaries(st.sampled_from(CLUSTERS), st.floats(0.1, 1e6)), max_size=8))
def test_ratio_of_two_clusters_is_the_median_over_the_keys_that_both_have_run(medians):
    for here in CLUSTERS:
        result = ratios(medians, here)
        for there in CLUSTERS:
            common = [key for key in medians if here in key and there in key]
            assert (there in result) == bool(common)
            if common:
                assert log(result[there]) == pytest.approx(median(log(key[there] / key[here]) for key in common))
                assert result[there] * ratios(medians, there)[here] == pytest.approx(1)


def test_runs_of_no_time_say_nothing_of_a_clusters_speed():
    assert ratios([{"ash": 0.0, "elm": 5.0}, {"ash": 4.0, "elm": 0.0}], "ash") == {"ash": 1.0}
