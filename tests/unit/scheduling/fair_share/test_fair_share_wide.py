"""Gangs that need several machines at once: gathered, emptied, and started together."""

from dataclasses import replace

import pytest

from rainbow.matching import Take
from rainbow.scheduling import FairShare, GangView, JobView, RunView, Start, Stop, check_plan
from rainbow.state_machine import WorkerState
from tests.support.policies.small_clusters import EAGER, FIXED, cluster, job, put

WIDE = "wide"


def widened(there, machines=2, memory=4, cls="fixed", gangs=1):
    """The view, with a job whose gangs of two tasks need so many machines each."""
    view = there.view()
    size = {worker.id: worker.capacity["memory"] for worker in view.workers}

    def place(demand, workers):
        if not demand.startswith(WIDE):
            return view.place(demand, workers)
        fit = sorted(name for name in workers if size[name] >= memory)[:machines]
        return Take(tuple(("s", {name: {"memory": memory}}) for name in fit), {}) if len(fit) == machines else None

    def divide(demand, take):
        placements = [dict(held) for _, held in take.placed]
        return (
            [placements[0], {k: v for held in placements[1:] for k, v in held.items()}]
            if len(placements) > 1
            else placements
        )

    def hosts(demand):
        return frozenset(size) if demand.startswith(WIDE) else view.hosts(demand)

    waiting = tuple(GangView(WIDE, n, (f"{WIDE}/{n}a", f"{WIDE}/{n}b"), f"{WIDE}{n}") for n in range(gangs))
    jobs = [*view.jobs, JobView(WIDE, "w", 1e9, waiting, job_class=cls)]
    return replace(view, jobs=jobs, place=place, hosts=hosts, divide=divide)


def planned(view):
    plan = FairShare().plan(view)
    check_plan(view, plan)
    return plan


def test_gang_starts_together_on_empty_machines():
    plan = planned(widened(cluster([4, 4, 4], {"fixed": FIXED, "fair": EAGER}, [])))
    assert plan.orders == (Start("wide/0a", {"m0": {"memory": 4}}), Start("wide/0b", {"m1": {"memory": 4}}))


def busy():
    there = cluster([4, 4, 4], {"fixed": FIXED, "fair": EAGER}, [job(1, "a", "fair")])
    put(there, 1, *["m0", "m1", "m2"] * 4)
    return there


def test_machines_are_emptied_for_a_gang_and_kept_until_it_starts():
    there = busy()
    first = planned(widened(there))
    stops = {order.task: order.why for order in first.orders}
    assert set(stops.values()) == {"reservation"}
    assert len(stops) == 8
    assert [(w.job, w.reason) for w in first.waits if w.job == WIDE] == [(WIDE, "preemptions")]
    stopped = {there.runs[task].machine for task in stops}
    there.runs = {task: run for task, run in there.runs.items() if task not in stops}
    there.memory = first.memory
    second = planned(widened(there))
    assert {machine for order in second.orders for machine in order.placement} == stopped
    assert {order.task for order in second.orders} == {"wide/0a", "wide/0b"}


def test_half_empty_machines_are_not_given_to_others_meanwhile():
    there = busy()
    first = planned(widened(there))
    gone = sorted(order.task for order in first.orders)[:4]
    there.runs = {task: run for task, run in there.runs.items() if task not in gone}
    for order in first.orders:
        if order.task in there.runs:
            there.runs[order.task].stopped = 0
    there.memory = first.memory
    assert not [order for order in planned(widened(there)).orders if isinstance(order, (Start, Stop))]


@pytest.mark.parametrize(
    ("machines", "memory", "reason"), [(4, 4, "no-space"), (2, 5, "no-space"), (2, 4, "allotment")]
)
def test_gang_that_cannot_be_gathered_disturbs_nobody_and_says_why(machines, memory, reason):
    there = busy()
    limits = {"w": {"max_allotment": 7 if reason == "allotment" else 100}}
    there.settings = FairShare().check({**there.settings, "users": limits})
    plan = planned(widened(there, machines, memory))
    assert plan.orders == ()
    assert [wait.reason for wait in plan.waits if wait.job == WIDE] == [reason]


def test_gangs_of_a_job_start_one_after_the_other():
    there = cluster([4] * 5, {"fixed": FIXED, "fair": EAGER}, [])
    plan = planned(widened(there, gangs=3))
    assert [order.task for order in plan.orders] == ["wide/0a", "wide/0b", "wide/1a", "wide/1b"]
    assert [wait.reason for wait in plan.waits] == ["no-space"]


def test_class_of_fair_shares_places_shares_of_one_machine_only():
    plan = planned(widened(cluster([4, 4], {"fixed": FIXED, "fair": EAGER}, []), cls="fair"))
    assert [wait.reason for wait in plan.waits] == ["no-single-host"]
    assert plan.waits[0].text.endswith("submit it to one of: fixed")


def test_task_on_two_machines_is_stopped_once():
    there = cluster([4, 4], {"fair": EAGER, "fixed": FIXED}, [])
    view = widened(there)
    run = RunView("wide/9", WIDE, "w", 9, {"m0": {"memory": 2}, "m1": {"memory": 2}}, 0.0)
    jobs = [replace(job, job_class="fair", gangs=()) for job in view.jobs]
    workers = [replace(w, state=WorkerState.OFFLINE, free={"memory": 2}) for w in view.workers]
    plan = planned(replace(view, jobs=jobs, workers=workers, runs=[run]))
    assert plan.orders == (Stop("wide/9", "offline"),)
