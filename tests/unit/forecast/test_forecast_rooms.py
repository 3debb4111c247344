"""Rooms of clusters, when a job would start in them, and how booking one leaves less for the next."""

import json
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.forecast import Use, eta, read_room, room_of, stacked
from rainbow.scheduling import WorkerView
from rainbow.state_machine import WorkerState
from tests.conftest import examples

READY, NOW = WorkerState.READY, 1_000.0


def workers(*cores, state=READY, kind=None, **more):
    return [
        WorkerView(f"n{k}", kind or f"k{count}", {"core": count, **more}, {}, state) for k, count in enumerate(cores)
    ]


def room(there, *uses, outside=None):
    return room_of(there, outside or {}, uses, NOW)


def starts(rooms, slots, seconds, now=NOW, **amounts):
    table = stacked(rooms)
    return eta(table, slots, amounts, np.full(len(rooms), float(seconds)), now)[0].tolist()


@st.composite
def uses(draw):
    made = []
    for _ in range(draw(st.integers(0, 150))):
        start = NOW + draw(st.integers(-50, 400))
        made.append(Use({f"n{draw(st.integers(0, 2))}": {"core": 1}}, start, start + draw(st.integers(1, 90))))
    return made


@settings(max_examples=examples(80))
@given(held=uses())
def test_room_of_many_steps_has_64_and_never_says_more_than_is_free(held):
    made = room(workers(60, 60, 60), *held)
    assert len(made.times) <= 64
    assert made.times[0] == NOW
    assert starts([made], 180, 10, core=1)[0] < inf, "when all has ended there is room for a job of everything"
    for at in np.arange(NOW, NOW + 600, 3.0):
        busy = [use for use in held if use.start <= at < use.end]
        idle = {"n0", "n1", "n2"} - {name for use in busy for name in use.placement}
        assert made.at(at)["core"] <= max(0, 180 - len(busy))
        step = int(np.searchsorted(made.times, at, side="right")) - 1
        assert made.idle["k60"][step] <= len(idle)


@settings(max_examples=examples(80))
@given(held=uses(), slots=st.integers(1, 180), seconds=st.integers(1, 300), later=st.integers(0, 300))
def test_eta_is_the_first_step_from_which_there_is_enough_for_as_long(held, slots, seconds, later):
    made, now = room(workers(60, 60, 60), *held), NOW + later
    start = starts([made], slots, seconds, now, core=1)[0]
    edges = [now, *(t for t in made.times.tolist() if t > now)]
    fits = [
        t for t in edges if all(made.at(u)["core"] >= slots for u in [t, *(e for e in edges if t < e < t + seconds)])
    ]
    assert start == min(fits, default=inf)


def test_a_busy_cluster_an_idle_one_a_small_one_and_one_nobody_knows():
    busy = room(workers(4), Use({"n0": {"core": 3}}, NOW - 10, NOW + 500))
    assert starts([busy, room(workers(4)), room(workers(1)), None], 2, 60, core=1) == [NOW + 500, NOW, inf, inf]


def test_what_ends_never_is_never_free():
    endless = room(workers(4), Use({"n0": {"core": 3}}, NOW, inf))
    assert starts([endless], 2, 60, core=1) == [inf]
    assert starts([endless], 1, inf, core=1) == [NOW]


def test_slots_of_more_than_half_a_worker_want_idle_ones():
    """Four free cores on four workers are no four workers."""
    used = [Use({f"n{k}": {"core": 2}}, NOW, NOW + 100 * (k + 1)) for k in range(4)]
    shared = room(workers(4, 4, 4, 4), *used)
    assert starts([shared], 2, 60, core=3) == [NOW + 200]
    assert starts([shared], 4, 60, core=1) == [NOW]
    assert starts([shared], 1, 60, core=5) == [inf]


def test_workers_that_take_no_tasks_have_no_room():
    assert starts([room(workers(4, state=WorkerState.LOST))], 1, 60, core=1) == [inf]


def test_types_outside_workers_count_and_unknown_types_do_not_fit():
    licences = room(workers(4), outside={"licence": 1})
    assert starts([licences], 1, 60, core=1, licence=1) == [NOW]
    assert starts([licences], 2, 60, core=1, licence=1) == [inf]
    assert starts([licences], 1, 60, core=1, gpu=1) == [inf]


def test_booking_takes_what_a_job_holds_for_as_long_as_it_runs():
    made = room(workers(4, 4)).book({"core": 6}, 1, NOW + 10, NOW + 60)
    assert [made.at(NOW + at)["core"] for at in (0, 10, 59, 60)] == [8, 2, 2, 8]
    assert starts([made], 4, 20, core=1) == [NOW + 60]
    assert starts([made], 2, 20, core=3) == [NOW + 60]


def test_a_hundred_bookings_of_one_room_stay_within_64_steps():
    made = room(workers(4, 4))
    for k in range(100):
        made = made.book({"core": 1}, 0, NOW + 7 * k, NOW + 7 * k + 5)
    assert len(made.times) <= 64


def test_room_comes_back_from_json_as_it_was_and_is_short():
    held = [Use({"n0": {"core": 1}}, NOW + k, NOW + 3 * k + 1) for k in range(300)]
    made = room(workers(400, memory=8_000_000_000), *held)
    text = json.dumps(made.as_json())
    again = read_room(json.loads(text))
    assert again.at(NOW + 50) == made.at(NOW + 50)
    assert len(text) < 4_096


@pytest.mark.parametrize("count", [3, 1_000])
def test_rows_of_a_table_are_asked_alone(count):
    table = stacked([room(workers(1 + k % 4)) for k in range(count)])
    rows = np.arange(0, count, 2)
    whole = eta(table, 2, {"core": 1}, np.full(count, 5.0), NOW)[0]
    some = eta(table, 2, {"core": 1}, np.full(len(rows), 5.0), NOW, rows)[0]
    assert some.tolist() == whole[rows].tolist()
