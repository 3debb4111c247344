"""Forecasts: what a policy would do, ahead of time; what the bounds cut off; bands and what is unknown."""

from dataclasses import replace
from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.forecast import UNKNOWN, Bounds, Length, ahead, forecast, one_pass, score
from rainbow.forecast.forecast import bias_of, spread, wait_of
from rainbow.forecast.lengths import quantiles
from rainbow.forecast.room import Use
from rainbow.scheduling import Delegate, GangView, JobView, LoadBased, Priority, ReservationView, SlotsView
from rainbow.scheduling.gangs import summed
from rainbow.scheduling.resource_timeline import Timeline
from tests.conftest import examples
from tests.support.policies.dispatching import Job, job_view, make_view, replay, run_view

ALL = Bounds(plans=100_000)
POLICIES = [
    (Priority(), {"discipline": "fcfs"}),
    (Priority(), {"discipline": "easy"}),
    (Priority(), {"discipline": "conservative"}),
    (LoadBased(), {"unit": "core"}),
]


class Exact:
    """Lengths of an oracle: each job runs as long as it will."""

    def __init__(self, jobs):
        self.seconds = {job.id: job.runtime for job in jobs}

    def of(self, job, gang):
        seconds = self.seconds[job.id]
        return Length.exactly(seconds, "name")

    def left(self, run, now):
        return max(0.0, run.started + self.seconds[run.job] - now)


@st.composite
def worlds(draw, number=12):
    workers = {f"n{k}": {"core": draw(st.integers(1, 4))} for k in range(draw(st.integers(1, 4)))}
    total = sum(w["core"] for w in workers.values())
    jobs = []
    for k in range(draw(st.integers(1, number))):
        runtime = draw(st.integers(1, 20))
        jobs.append(
            Job(f"j{k:02}", 0.0, draw(st.integers(1, total)), runtime, float(runtime + draw(st.integers(0, 20))))
        )
    return workers, jobs


@pytest.mark.parametrize(("policy", "given_"), POLICIES, ids=lambda one: str(one)[:20])
@settings(max_examples=examples(80))
@given(world=worlds())
def test_ahead_equals_what_the_policy_does_step_by_step(policy, given_, world):
    workers, jobs = world
    done = replay(policy, workers, jobs, given_, remembers=True)
    view = make_view(0.0, workers, map(job_view, jobs), (), given_)
    made = ahead(view, policy, Exact(jobs), ALL)
    assert {job: span.start for job, span in made.cluster.spans.items()} == done.start
    assert {job.id: made.cluster.spans[job.id].end for job in jobs if job.id in done.start} == {
        job.id: done.start[job.id] + job.runtime for job in jobs if job.id in done.start
    }


@settings(max_examples=examples(80))
@given(world=worlds(), plans=st.integers(1, 6))
def test_what_the_bounds_cut_off_is_placed_after_them_and_nothing_is_used_twice(world, plans):
    workers, jobs = world
    view = make_view(0.0, workers, map(job_view, jobs), (), {"discipline": "conservative"})
    result = forecast(view, Priority(), Exact(jobs), (), Bounds(plans=plans))
    assert result.jobs.keys() == {job.id for job in jobs}
    assert {one.how for one in result.jobs.values()} <= {"ahead", "one-pass"}
    for at in {one.start for one in result.jobs.values()}:
        running = [job for job in jobs if result.jobs[job.id].start <= at < result.jobs[job.id].end]
        assert sum(job.least for job in running) <= sum(w["core"] for w in workers.values())
    for one in result.jobs.values():
        assert one.low <= one.start <= one.high


@settings(max_examples=examples(80))
@given(world=worlds())
def test_room_never_says_more_than_is_free(world):
    workers, jobs = world
    view = make_view(0.0, workers, map(job_view, jobs), (), {"discipline": "easy"})
    result = forecast(view, Priority(), Exact(jobs), (), ALL)
    whole = sum(w["core"] for w in workers.values())
    assert len(result.room.times) <= 64
    for at in {edge for one in result.jobs.values() for edge in (one.start, one.end)}:
        used = sum(job.least for job in jobs if result.jobs[job.id].start <= at < result.jobs[job.id].end)
        assert result.room.at(at)["core"] <= whole - used


def test_one_pass_starts_each_job_as_early_as_it_fits_behind_those_before_it():
    jobs = [Job("a", 0, 2, 10, 10), Job("b", 0, 2, 10, 10), Job("c", 0, 1, 10, 10), Job("d", 0, 9, 10, 10)]
    view = make_view(0.0, {"n0": {"core": 2}, "n1": {"core": 1}}, map(job_view, jobs))
    order = [(job, gang) for job in view.jobs for gang in job.gangs]
    assert one_pass(view, lambda *_: Length.exactly(10.0, "name"), order, ()).starts == {
        "a": 0.0,
        "b": 10.0,
        "c": 0.0,
        "d": inf,
    }


parts = st.builds(
    SlotsView,
    st.just("s"),
    st.fixed_dictionaries({"core": st.integers(1, 3)}),
    st.integers(1, 4),
    apart=st.booleans(),
    outside=st.sampled_from([{}, {}, {"licence": 1}]),
)


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.lists(parts, min_size=1, max_size=2), st.integers(1, 9)), max_size=8), st.integers(0, 3))
def test_one_pass_of_several_groups_and_licences_is_the_plain_search_worker_by_worker(wanted, held):
    workers = {"n0": {"core": 4}, "n1": {"core": 2}}
    jobs = [
        JobView(f"j{k}", "u", float(k), (GangView(f"j{k}", 0, (f"j{k}-0",), "d", 5, tuple(own)),))
        for k, (own, _) in enumerate(wanted)
    ]
    view = make_view(0.0, workers, jobs, consumables={"licence": 2})
    uses = [Use({"n0": {"core": held}, "": {"licence": 1}}, 0.0, 4.0)]
    lengths = {f"j{k}": float(length) for k, (_, length) in enumerate(wanted)}
    result = one_pass(
        view, lambda job, _: Length.exactly(lengths[job.id], "name"), [(job, job.gangs[0]) for job in jobs], uses
    )
    line = Timeline({**workers, "": {"licence": 3}})
    line.fill(one[:3] for one in uses)
    for job in jobs:
        times = (0.0, *line.ends(after=0.0))
        at, placed = next(((t, p) for t in times if (p := plainly(line, job, t, t + lengths[job.id]))), (inf, {}))
        assert result.starts[job.id] == at
        line.add(placed, at, at + lengths[job.id])


def plainly(line, job, start, end):
    """Where the groups of a job lie, the first workers first; {} if they do not fit."""
    trial, placed = line.copy(), {}
    for group in job.gangs[0].slots:
        beside = {"": {kind: group.least * n for kind, n in group.outside.items()}} if group.outside else {}
        remaining, chosen = group.least, dict(beside)
        for worker in ("n0", "n1"):
            count = min(remaining, trial.copies(worker, group.amounts, start, end), 1 if group.apart else remaining)
            if count:
                remaining -= count
                chosen[worker] = {kind: count * n for kind, n in group.amounts.items()}
        if remaining or not trial.fits(beside, start, end):
            return {}
        trial.add(chosen, start, end)
        placed = summed([placed, chosen])
    return placed


def test_delegate_hands_over_as_places_become_free():
    jobs = [Job(name, 0, 1, seconds, seconds) for name, seconds in (("a", 30), ("b", 10), ("c", 5), ("d", 5))]
    view = make_view(0.0, {"n0": {"core": 1}}, map(job_view, jobs), (), {"max_handed_over": 2})
    result = forecast(view, Delegate(), Exact(jobs), (), ALL)
    assert {job: one.start for job, one in result.jobs.items()} == {"a": 0, "b": 0, "c": 10, "d": 15}


class Skewed:
    """Half of all runs are ten times as long as the others."""

    def of(self, job, gang):
        return Length(100.0, 25.0, 400.0, 20, "name", 550.0)

    def left(self, run, now):
        return 550.0


@pytest.mark.parametrize(("policy", "given_"), [*POLICIES, (Delegate(), {"max_handed_over": 1})], ids=lambda _: "")
@pytest.mark.parametrize("plans", [1, 100])
def test_what_waits_behind_others_waits_for_their_mean_and_ends_after_its_own_median(policy, given_, plans):
    jobs = [Job(f"j{k:02}", 0, 1, 550, 2_000) for k in range(10)]
    view = make_view(0.0, {"n0": {"core": 1}}, map(job_view, jobs), (), given_)
    result = forecast(view, policy, Skewed(), (), Bounds(plans=plans)).jobs
    assert [result[job.id].start for job in jobs] == [550.0 * k for k in range(10)]
    assert [result[job.id].end for job in jobs] == [550.0 * k + 100.0 for k in range(10)]


def test_what_is_late_counts_as_if_it_started_when_it_is_expected_now():
    jobs = [Job("a", 0, 1, 600, 600), Job("b", 0, 1, 600, 600), Job("c", 0, 1, 600, 600)]
    view = make_view(0.0, {"n0": {"core": 1}}, map(job_view, jobs))
    scores = [-2.0, 2.0] * 15  # the median is what is added
    for late, waits in (("b", 1_200.0), ("gone", 600.0)):  # b waits for another 600 s, of the other nothing is known
        result = forecast(view, Priority(), Exact(jobs), scores, ALL, late={late: (-600.0, -300.0)})
        assert result.jobs["c"].planned == 1_200.0
        assert result.jobs["c"].start == pytest.approx(1_260 * exp(score(waits, 300)) - 60)


class Nothing:
    def of(self, job, gang):
        return UNKNOWN

    def left(self, run, now):
        return inf


@pytest.mark.parametrize(("policy", "given_"), [*POLICIES, (Delegate(), {"max_handed_over": 1})], ids=lambda _: "")
def test_without_lengths_and_limits_a_forecast_says_why_it_is_unknown(policy, given_):
    running, waiting = Job("r", 0, 2, 5, 0), Job("w", 0, 2, 5, 0)
    runs = [run_view(running, {"n0": {"core": 2}}, 0.0)]
    view = make_view(9.0, {"n0": {"core": 2}}, [job_view(waiting)], [replace(runs[0], until=0.0)], given_)
    result = forecast(view, policy, Nothing(), (), ALL)
    assert result.jobs["w"].how == "unknown"
    assert "1 running task has no known end" in result.jobs["w"].text
    assert result.jobs["r"].how == "running"


def test_preempted_tasks_of_a_policy_wait_again():
    """A policy that stops what it started is followed all the same."""

    class Fickle:
        """Starts the second job by stopping the first, once."""

        def check(self, settings):
            return settings

        def plan(self, view):
            from rainbow.scheduling import Plan, Start, Stop

            waiting, running = [job.id for job in view.jobs], [run.job for run in view.runs]
            if running == ["a"] and not view.memory:
                return Plan((Stop("a", "for b"),), memory={"stopped": 1})
            if not running and waiting:
                first = "b" if "b" in waiting and view.memory else waiting[0]
                return Plan((Start(first, {"n0": {"core": 1}}),), memory=view.memory)
            return Plan(memory=view.memory)

    jobs = [Job("a", 0, 1, 10, 10), Job("b", 0, 1, 10, 10)]
    other = Job("x", 0, 1, 5, 5)
    workers = {"n0": {"core": 1}, "n1": {"core": 1}}
    runs = [run_view(jobs[0], {"n0": {"core": 1}}, 0.0), run_view(other, {"n1": {"core": 1}}, 0.0)]
    view = make_view(0.0, workers, [job_view(jobs[1])], runs)
    made = ahead(view, Fickle(), Exact([*jobs, other]), ALL)
    assert made.cut == "all"
    assert made.cluster.spans["b"].start == 5.0


# ── bands ──


@pytest.mark.parametrize(
    ("at_begin", "ends"),
    [  # of what runs there, of what runs beside it, of what waits for either
        ("", {"there": 300.0, "beside": 1_000.0, "waits": 350.0}),
        ("requeue", {"there": 500.0, "beside": 1_000.0, "waits": 550.0}),
        ("cancel", {"there": 100.0, "beside": 1_000.0, "waits": 250.0}),
    ],
)
@pytest.mark.parametrize("alone", [False, True])
def test_what_runs_when_a_maintenance_begins_ends_as_it_says(at_begin, ends, alone):
    lasts = {"there": 300.0, "beside": 1_000.0, "waits": 50.0}
    jobs = {name: Job(name, float(k), 1, seconds, 5_000.0) for k, (name, seconds) in enumerate(lasts.items())}
    running = [run_view(jobs["there"], {"n0": {"core": 1}}, 0.0), run_view(jobs["beside"], {"n1": {"core": 1}}, 0.0)]
    stored = ReservationView("m", {"n0": {"core": 1}}, 100.0, 200.0, maintenance=True, at_begin=at_begin)
    workers, waiting = {"n0": {"core": 1}, "n1": {"core": 1}}, [] if alone else [job_view(jobs["waits"])]
    view = make_view(0.0, workers, waiting, running, {"discipline": "easy"}, reservations=[stored])
    again = [job_view(jobs["there"])] if at_begin == "requeue" else []
    result = forecast(view, Priority(), Exact(jobs.values()), (), ALL, again=again)
    assert {job: one.end for job, one in result.jobs.items()} == {job: ends[job] for job in result.jobs}
    assert result.jobs.keys() == ends.keys() - ({"waits"} if alone else set())
    assert result.room.at(150.0)["core"] == 0.0


def test_score_compares_what_was_waited_with_what_was_expected():
    assert score(0.0, 0.0) == 0.0
    assert score(1_140.0, 540.0) == pytest.approx(log(2))


def band(expected, scores, cover):
    """Return between which waits a job's lies in `cover` of all cases."""
    return tuple(wait_of(expected, one) for one in spread(scores, cover))


def corrected(expected, scores):
    """Return an expected wait as a forecast corrects it."""
    return wait_of(expected, bias_of(scores))


@given(
    st.lists(st.floats(-3, 3), max_size=400),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(0.1, 0.9),
    st.floats(0.1, 0.9),
)
def test_bands_grow_with_the_wait_and_with_what_they_cover(scores, one, other, cover, wider):
    (low, high), (low2, high2) = band(min(one, other), scores, cover), band(max(one, other), scores, cover)
    assert low <= low2
    assert high <= high2
    within, around = quantiles(scores, min(cover, wider)), quantiles(scores, max(cover, wider))
    assert around[0] <= within[0] <= within[1] <= around[1]


def test_bands_cover_what_they_say_on_scores_drawn_like_those_before():
    rng = np.random.default_rng(1)
    drawn = rng.normal(0.0, 1.0, 3_000).tolist()
    inside = 0
    for k in range(300, 3_000, 3):
        low, high = band(600.0, drawn[k - 300 : k], 0.8)
        inside += low <= 660.0 * exp(drawn[k]) - 60.0 <= high
    assert 0.77 <= inside / 900 <= 0.84


def bands_told(drawn, delay, counting):
    """Tell a band before each start, each known only after so many others: count those inside of the last 1,500."""
    bands, missed = [], []
    for k in range(len(drawn)):
        known = drawn[: max(0, k - delay)]
        bands.append(spread(known, 0.8, missed[: len(known)] if counting else ()))
        missed.append(not bands[k][0] <= drawn[k] <= bands[k][1])
    return 1 - sum(missed[-1_500:]) / 1_500


@pytest.mark.parametrize("delay", [0, 60])
def test_bands_cover_what_they_say_while_the_load_changes(delay):
    """Scores scatter ever more: bands of fixed quantiles lag behind, these do not, though starts come long after."""
    rng = np.random.default_rng(2)
    drawn = [float(rng.normal(0.0, 0.5 * 4 ** (k / 1_000))) for k in range(2_000)]
    assert abs(bands_told(drawn, delay, counting=True) - 0.8) < 0.01
    assert bands_told(drawn, delay, counting=False) < 0.78 - delay / 2_000


def test_each_start_outside_its_band_widens_the_next_and_each_inside_narrows_it():
    scores = [k / 100 for k in range(-50, 50)]
    own = spread(scores, 0.8)
    assert own == quantiles(scores, 0.8)
    wider, narrower = spread(scores, 0.8, [1.0] * 5), spread(scores, 0.8, [0.0] * 20)
    assert wider[0] < own[0] < narrower[0] < narrower[1] < own[1] < wider[1]
    assert spread(scores, 0.8, [1.0, 0.0, 0.0, 0.0, 0.0]) == own
    assert spread(scores, 0.8, [1.0] * 1_000) == quantiles(scores, 0.98)
    assert spread(scores, 0.8, [0.0] * 1_000) == quantiles(scores, 0.4)


def test_few_scores_give_a_factor_of_four_and_no_correction():
    assert band(540.0, [2.0] * 29, 0.8) == pytest.approx((90.0, 2_340.0))
    assert corrected(540.0, [2.0] * 29) == 540.0


def test_forecasts_that_are_too_early_on_the_whole_are_corrected():
    assert corrected(540.0, [log(2)] * 40) == pytest.approx(1_140.0)
    assert corrected(540.0, [0.05] * 40) == 540.0


def test_forecasts_that_are_always_late_by_half_stay_corrected():
    """Scores compare with what was planned: a correction that holds must not look like no bias at all."""
    jobs = [Job("a", 0, 1, 600, 600), Job("b", 0, 1, 600, 600)]
    view = make_view(0.0, {"n0": {"core": 1}}, map(job_view, jobs))
    scores = []
    for _ in range(150):
        one = forecast(view, Priority(), Exact(jobs), scores, ALL).jobs["b"]
        scores.append(score(1_260.0, one.planned - view.now))
    assert one.planned == 600.0
    assert one.start == pytest.approx(1_260.0)
