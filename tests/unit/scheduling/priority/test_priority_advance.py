"""Advance reservations: what is kept is there for its whole time, what is refused was not (invariants 4 and 6)."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from rainbow.scheduling import Priority, ReservationView
from tests.support.policies.dispatching import Job, job_view, make_view, run_view

NOW, CORES = 1_000.0, 4
RUNS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2), st.integers(0, 60)), max_size=4)
ASKED = st.lists(
    st.tuples(st.integers(1, 9), st.none() | st.integers(0, 80), st.integers(1, 40), st.booleans()), max_size=6
)


def view_of(runs):
    results, free = [], {f"n{k}": CORES for k in range(3)}
    for k, (worker, cores, length) in enumerate(runs):
        if free[f"n{worker}"] >= cores:
            free[f"n{worker}"] -= cores
            job = Job(f"r{k}", 0.0, cores, 5, length + 10.0 if length else 0.0)
            one = run_view(job, {f"n{worker}": {"core": cores}}, NOW - 10)
            results.append(replace(one, until=one.until if length else 0.0))
    return make_view(NOW, {name: {"core": CORES} for name in free}, [], results)


def free_over(view, stored, worker, start, end, endless=True):
    """How much is free on a worker for the whole of [start, end), instant by instant; with `endless` tasks there."""
    there = [r for r in view.runs if r.until or endless]
    spans = [(-inf, r.until or inf, r.placement.get(worker, {}).get("core", 0)) for r in there]
    spans += [(r.start, r.end, r.placement.get(worker, {}).get("core", 0)) for r in stored]
    times = [start, *(begin for begin, _, _ in spans if start < begin < end)]
    return CORES - max(sum(n for begin, over, n in spans if begin <= t < over) for t in times)


def room(view, stored, slots, apart, start, end, endless=True):
    free = [free_over(view, stored, worker.id, start, end, endless) for worker in view.workers]
    return sum(min(1, max(0, n)) if apart else max(0, n) for n in free) >= slots


@given(RUNS, ASKED)
def test_4_and_6_what_is_kept_is_there_and_what_is_refused_is_not(runs, asked):
    view, stored = view_of(runs), []
    for k, (slots, start, length, apart) in enumerate(asked):
        job = job_view(Job("ar", NOW, slots, 5, 0.0, apart=apart))
        at = None if start is None else NOW + start
        result = Priority().keep(replace(view, reservations=tuple(stored)), job, at, float(length))
        if result.placement is None:
            assert result.text.startswith(("0/3 workers", "1/3", "2/3", "3/3"))
            times = [at] if at is not None else [NOW, *(r.until for r in view.runs), *(r.end for r in stored)]
            assert not any(room(view, stored, slots, apart, t, t + length, at is None) for t in times if t >= NOW)
            continue
        assert result.end == result.start + length
        assert at is None or result.start == at
        assert sum(amounts["core"] for amounts in result.placement.values()) == slots
        for worker, amounts in result.placement.items():
            assert (
                free_over(view, stored, worker, result.start, result.end, endless=not result.ends) >= amounts["core"]
            )
        if result.ends:  # only where there is no other room, and all that stand in the way
            assert not room(view, stored, slots, apart, result.start, result.end)
            remaining = replace(view, runs=[run for run in view.runs if run.task not in result.ends])
            for worker, amounts in result.placement.items():
                assert free_over(remaining, stored, worker, result.start, result.end) >= amounts["core"]
        if at is None:  # the earliest there is
            ends = [NOW, *(r.until for r in view.runs if r.until), *(r.end for r in stored)]
            earlier = [t for t in ends if NOW <= t < result.start]
            assert not any(room(view, stored, slots, apart, t, t + length) for t in earlier)
        stored.append(ReservationView(f"k{k}", result.placement, result.start, result.end))


def test_what_only_the_matcher_places_keeps_workers_whole_and_runs_inside():
    from rainbow.matching import Take
    from rainbow.scheduling import GangView, JobView, Start

    def place(demand, free):
        return Take(tuple(("s", {name: {"core": 1}}) for name in free[:2]), {}) if len(free) >= 2 else None

    view = replace(view_of([(0, 1, 50)]), place=place)
    gang = GangView("m", 0, ("m",), "m/0", 30.0)
    made = Priority().keep(view, JobView("m", "user", NOW, (gang,)), NOW + 5, 60.0)
    assert made.placement == {name: {"core": CORES} for name in ("n1", "n2")}
    stored = ReservationView("ar", made.placement, made.start, made.end)
    inside = JobView("m", "user", NOW, (gang,), attributes={"reservation": "ar"})
    outside = JobView("o", "user", NOW, (replace(gang, job="o", tasks=("o",)),))
    plan = Priority().plan(replace(view, now=NOW + 5, jobs=[outside, inside], reservations=(stored,)))
    assert [(o.task, sorted(o.placement)) for o in plan.orders if isinstance(o, Start)] == [("m", ["n1", "n2"])]
