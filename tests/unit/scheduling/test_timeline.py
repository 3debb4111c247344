"""The resource diagram, against a plain specification over unit time."""

from itertools import pairwise
from math import inf
from unittest.mock import patch
from xml.dom import minidom

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.scheduling import plan_diagram, resource_timeline
from rainbow.scheduling.resource_timeline import Profile, Timeline

END = 40  # times of the plain specification are 0 … END - 1, and one more that stands for everything after
times = st.integers(0, END - 1)
bookings = st.lists(
    st.tuples(times, st.one_of(st.integers(0, 12), st.just(inf)), st.integers(-3, 6).filter(bool)), max_size=25
)


@pytest.fixture(autouse=True)
def small_blocks():
    """Blocks of a few steps, so that few bookings already span several of them."""
    with patch.object(resource_timeline, "LARGEST", 3):
        yield


def made(of):
    use = Profile()
    for start, duration, amount in of:
        use.add(start, start + duration, amount)
    return use


def plain(of):
    """How much is in use at every time, by counting."""
    return [sum(a for start, d, a in of if start <= t < start + d) for t in range(END + 13)]


@given(bookings)
def test_level_is_what_counting_says(of):
    use, grid = made(of), plain(of)
    assert [use.level(t) for t in range(END + 13)] == grid
    assert use.level(-1) == 0


@given(bookings, times, st.integers(0, 12))
def test_2_most_is_the_largest_of_every_time_in_the_interval(of, start, duration):
    expected = plain(of)[start : start + duration]
    assert made(of).most(start, start + duration) == max(expected, default=0)


@given(bookings, times)
def test_2_most_to_the_end_of_time_counts_what_never_ends(of, start):
    assert made(of).most(start, inf) == max(plain(of)[start:])


@given(bookings, times, st.integers(1, 12), st.integers(0, 10))
def test_3_first_fit_is_the_first_time_that_fits(of, earliest, duration, limit):
    grid = plain(of) + [plain(of)[-1]] * 12
    fits = [t for t in range(earliest, END + 12) if max(grid[t : t + duration]) <= limit]
    assert made(of).first_fit(earliest, duration, limit) == (fits[0] if fits else inf)


@given(bookings, times, st.integers(1, 12), st.integers(0, 10), bookings)
def test_3_first_fit_never_comes_sooner_with_more_asked_or_more_booked(of, earliest, duration, limit, more):
    use = made(of)
    result = use.first_fit(earliest, duration, limit)
    assert earliest <= result <= use.first_fit(earliest, duration + 1, limit)
    assert result <= use.first_fit(earliest, duration, limit - 1)
    grown = [*of, *((start, d, abs(amount)) for start, d, amount in more)]
    assert result <= made(grown).first_fit(earliest, duration, limit)


@given(bookings, st.randoms(use_true_random=False))
def test_1_order_of_bookings_is_no_matter(of, rng):
    mixed = list(of)
    rng.shuffle(mixed)
    assert made(of) == made(mixed)


@given(bookings, bookings)
def test_1_removing_what_was_added_restores(of, more):
    use = made(of + more)
    for start, duration, amount in more:
        use.remove(start, start + duration, amount)
    assert use == made(of)


@given(bookings)
def test_1_steps_increase_and_no_two_neighbours_are_equal(of):
    steps = list(made(of))
    assert all(a < b for (a, _), (b, _) in pairwise(steps))
    levels = [0, *(level for _, level in steps)]
    assert all(a != b for a, b in pairwise(levels))


@given(bookings, times)
def test_ends_are_the_times_where_use_goes_down(of, after):
    grid = plain(of)
    expected = [t for t in range(after + 1, END + 13) if grid[t] < grid[t - 1]]
    assert [t for t in made(of).ends_after(after) if t < inf] == expected


def test_thousands_of_steps_in_true_blocks():
    with patch.object(resource_timeline, "LARGEST", 256):
        use = Profile()
        for k in range(5_000):
            use.add(k, k + 10, 1)
        assert use.most(0, 5_000) == 10
        assert use.first_fit(0, 5, 9) == 0 if use.most(0, 5) <= 9 else use.first_fit(0, 5, 9) == 5_000
        assert use.first_fit(0, 5, 0) == 5_009
        for k in range(5_000):
            use.remove(k, k + 10, 1)
        assert not use


# ── of a cluster ──

CAPACITY = {"n0": {"core": 4, "gpu": 1}, "n1": {"core": 2}, "": {"licence": 2}}


def booked():
    line = Timeline(CAPACITY)
    line.add({"n0": {"core": 3, "gpu": 1}, "": {"licence": 1}}, 0, 100)
    line.add({"n0": {"core": 4}}, 150, 200)
    return line


def test_timeline_earliest_searches_gaps_on_every_line():
    line = booked()
    assert line.earliest({"n0": {"core": 2}}, 0, 50) == 100
    assert line.earliest({"n0": {"core": 2}}, 0, 51) == 200
    assert line.earliest({"n0": {"core": 1, "gpu": 1}, "": {"licence": 2}}, 10, 5) == 100
    assert line.earliest({"n0": {"core": 5}}, 0, 1) == inf
    assert line.earliest({"n1": {"gpu": 1}}, 0, 1) == inf


def test_timeline_counts_copies_and_what_is_free():
    line = booked()
    assert line.copies("n0", {"core": 1}, 0, 100) == 1
    assert line.copies("n0", {"core": 1}, 100, 150) == 4
    assert line.copies("n0", {"core": 1}, 100, 151) == 0
    assert line.copies("n0", {}, 0, 1) == inf
    assert line.free("", "licence", 99, 101) == 1
    assert line.ends() == [100, 200]


def test_timeline_remove_leaves_nothing():
    line = booked()
    line.remove({"n0": {"core": 3, "gpu": 1}, "": {"licence": 1}}, 0, 100)
    line.remove({"n0": {"core": 4}}, 150, 200)
    assert list(line.entries()) == []


@given(bookings, bookings)
def test_sum_over_workers_is_kept_up_to_date(first, later):
    line = Timeline({"a": {"core": 9}, "b": {"core": 5}, "c": {"core": 1}})
    workers = frozenset({"a", "b"})
    for k, (start, duration, amount) in enumerate(first):
        line.add({"abc"[k % 3]: {"core": amount}}, start, start + duration)
    line.sum_over(workers, "core")
    for k, (start, duration, amount) in enumerate(later):
        line.add({"abc"[k % 3]: {"core": amount}}, start, start + duration)
    of = [b for many in (first, later) for k, b in enumerate(many) if k % 3 < 2]
    assert line.sum_over(workers, "core") == (made(of), 14)


def test_timeline_as_text_names_worker_type_and_steps():
    assert booked().text().splitlines() == [
        "(cluster) licence of 2  0:1  100:0",
        "n0 core of 4  0:3  100:0  150:4  200:0",
        "n0 gpu of 1  0:1  100:0",
    ]


def svg(line, now):
    return minidom.parseString(plan_diagram.draw(line, now))  # noqa: S318 - our own text


def test_gantt_is_well_formed_and_draws_every_stretch():
    line = booked()
    line.add({"n1": {"core": 1}}, 20, inf)
    line.add({"<odd&>": {"core": 1}}, 20, 30)
    assert len(svg(line, 10).getElementsByTagName("rect")) == 6
    assert not svg(Timeline({}), 0).getElementsByTagName("rect")
