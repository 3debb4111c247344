"""Whole schedules: the invariants hold in random clusters too, and a policy that breaks one is caught."""

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fair_share import busy_view
from rainbow.errors import PlanError
from rainbow.scheduling import FairShare, Start, Stop
from rainbow.scheduling.fair_share.settling import PATIENCE
from tests.epoch_checks import Play
from tests.scenarios import scenario, with_minima

CIRCLES = (301, 476, 784, 2210, 4000, 5139, 6171, 6173)  # went round, or ran out of shares to start, once
BUSY = 476


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 30), st.booleans())
def test_random_cluster_keeps_every_invariant_and_comes_to_rest(seed, minima):
    row = scenario(seed)
    assert list(Play(with_minima(row, seed) if minima else row).run()) == []


@pytest.mark.parametrize("seed", CIRCLES)
def test_schedule_that_once_went_round_in_circles_comes_to_rest(seed):
    assert list(Play(scenario(seed)).run()) == []


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
        began = time.perf_counter()
        FairShare().plan(view)
        times.append(time.perf_counter() - began)
    assert min(times) < 1


class Changed(FairShare):
    """The policy with one thing done wrong."""

    def __init__(self, change):
        self.change = change

    def plan(self, view):
        return self.change(view, super().plan(view))


def stop_fixed(view, plan):
    classes = view.settings["classes"]
    fixed = {job.id for job in view.jobs if classes[job.job_class]["policy"] != "FAIR_SHARE"}
    stopped = {order.task for order in plan.orders if isinstance(order, Stop)}
    for run in view.runs:
        if run.job in fixed and not run.stopping and run.task not in stopped:
            return replace(plan, orders=(*plan.orders, Stop(run.task, "wrong")))
    return plan


def told(plan, **numbers):
    jobs = {
        name: {**job, **{key: change(job) for key, change in numbers.items()}}
        for name, job in plan.figures["jobs"].items()
    }
    return replace(plan, figures={**plan.figures, "jobs": jobs})


def first_worker_only(view, plan):
    workers = [worker.id for worker in view.workers][:1]
    return replace(plan, memory={**plan.memory, "order": workers})


def last_shrunk_first(view, plan):
    """Give up the share that most is invested in."""
    runs = {run.task: run for run in view.runs}
    orders = []
    for order in plan.orders:
        if isinstance(order, Stop) and order.why == "shrink":
            own = [run for run in view.runs if run.job == runs[order.task].job and not run.stopping]
            chosen = max(own, key=lambda run: (run.progress.initialised, run.progress.seconds_invested))
            order = Stop(chosen.task, "shrink")
        if order not in orders:
            orders.append(order)
    return replace(plan, orders=tuple(orders))


@pytest.mark.parametrize(
    ("number", "change"),
    [
        ("#3", lambda view, plan: told(plan, counted=lambda job: job["cap"] + 1)),
        ("#6", stop_fixed),
        ("#11", last_shrunk_first),
        ("#15", first_worker_only),
        ("#20", lambda view, plan: told(plan, reason=lambda job: "")),
    ],
)
def test_policy_that_breaks_an_invariant_is_caught(number, change):
    faults = {fault for seed in range(BUSY, BUSY + 12) for fault in Play(scenario(seed), Changed(change)).run()}
    assert any(number in fault for fault in faults)


def test_start_without_room_is_refused_by_the_host():
    def crowd(view, plan):
        starts = [order for order in plan.orders if isinstance(order, Start)]
        place = starts[0].placement if starts else {}
        moved = tuple(Start(o.task, place) if isinstance(o, Start) else o for o in plan.orders)
        return replace(plan, orders=moved)

    with pytest.raises(PlanError):
        list(Play(scenario(BUSY), Changed(crowd)).run())


def test_counts_are_fixed_only_after_patience_and_until_a_change():
    play = Play(scenario(BUSY))
    assert list(play.run()) == []
    kept = play.cluster.memory["fair_share"]["trees"]["NP0"]["settling"]
    assert kept["turns"] >= PATIENCE
    assert kept["counts"]
    gone = play.cluster.alive()[0]["id"]
    play.cluster.over.add(gone)
    play.cluster.step()
    assert play.cluster.memory["fair_share"]["trees"]["NP0"]["settling"]["counts"] == {}
