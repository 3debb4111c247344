"""Preemption by quality of service, and limits of running cores: pure, against a plain specification."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.errors import PolicyError
from rainbow.matching import Take
from rainbow.scheduling import LoadBased, Priority, Start, Stop, check_plan, planner
from rainbow.scheduling.interface import Wait
from rainbow.scheduling.qos import Qos, Rules, read_qos
from rainbow.scheduling.rules.preemption import NAME
from rainbow.text import some
from tests.support.policies.dispatching import Job, job_view, make_view, run_view

NOW = 100.0
QOS = {
    "urgent": Qos("urgent", preempts=("default", "low", "safe", "new"), signal="USR1", grace=7.0),
    "low": Qos("low"),
    "safe": Qos("safe", exempt=("preemption",)),
    "new": Qos("new", exempt_seconds=50.0),
}
RULES = Rules("oak", QOS)
POLICIES = [Priority(), LoadBased()]
SETTINGS = {"priority": {}, "load_based": {"unit": "core"}}


def run(name, cores, worker="n0", qos="", started=0.0, priority=0, gang=0):
    made = run_view(Job(name, 0.0, 1, 1.0, 500.0, priority), {worker: {"core": cores}}, started)
    job = name.partition("-")[0]
    return replace(made, job=job, gang=gang, qos=qos, task=name if "-" in name else f"{name}-0")


def waiting(name, cores, slots=1, qos="urgent", **more):
    view = job_view(Job(name, 10.0, slots, 1.0, 50.0, amounts={"core": cores}))
    gang = replace(view.gangs[0], tasks=(f"{name}-0",), demand=f"{name}:{cores}:{slots}")
    return replace(view, gangs=(gang,), qos=qos, **more)


def seen(workers, jobs, runs, policy, **more):
    settings = {"unit": "core"} if isinstance(policy, LoadBased) else {}
    view = make_view(NOW, {name: {"core": cores} for name, cores in workers.items()}, jobs, runs, settings, **more)
    tasks = Counter(name for one in runs for name in one.placement)
    there = [replace(one, tasks=tasks[one.id]) for one in view.workers]
    return replace(view, place=place_on(workers), workers=there)


def planned(policy, view, rules=RULES):
    return planner.plan(policy, view, rules)


def place_on(workers):
    """Return a matcher of equal slots, as load_based asks it."""

    def place(demand, names):
        _, cores, slots = demand.split(":")
        results = [("s", {name: {"core": int(cores)}}) for name in names for _ in range(workers[name] // int(cores))]
        return Take(tuple(results[: int(slots)]), {}) if len(results) >= int(slots) else None

    return place


def stopped(plan):
    return [order.task for order in plan.orders if isinstance(order, Stop)]


def may_go(one):
    return one.qos in ("", "low") or (one.qos == "new" and NOW - one.started >= 50.0)


def fits(free, cores, slots):
    return sum(max(0, amount) // cores for amount in free.values()) >= slots


@st.composite
def worlds(draw):
    workers = {f"n{k}": draw(st.integers(2, 6)) for k in range(draw(st.integers(1, 3)))}
    runs, free = [], dict(workers)
    for name in workers:
        while free[name] and draw(st.integers(0, 5)):
            cores = draw(st.integers(1, free[name]))
            free[name] -= cores
            job = f"r{draw(st.integers(0, 5))}-{len(runs)}"
            started = float(draw(st.integers(0, 90)))
            runs.append(run(job, cores, name, "", started, gang=0))
    kinds = {job: draw(st.sampled_from(["", "low", "safe", "new", "urgent"])) for job in {one.job for one in runs}}
    ranks = {job: draw(st.integers(-2, 2)) for job in kinds}
    runs = [replace(one, qos=kinds[one.job], priority=ranks[one.job]) for one in runs]
    return workers, runs, draw(st.integers(1, 4)), draw(st.integers(1, 3))


@pytest.mark.parametrize("policy", POLICIES, ids=["priority", "load_based"])
@given(worlds())
def test_what_is_preempted_is_needed_may_be_and_is_no_gang_in_part(policy, world):
    workers, runs, cores, slots = world
    slots = 1 if isinstance(policy, LoadBased) else slots  # there the matcher places gangs of several workers
    view = seen(workers, [waiting("claim", cores, slots)], runs, policy)
    plan = planned(policy, view)
    check_plan(view, plan)
    gone = stopped(plan)
    free = {
        name: whole - sum(r.placement.get(name, {}).get("core", 0) for r in runs) for name, whole in workers.items()
    }

    def after(jobs):
        return {
            name: amount + sum(r.placement.get(name, {}).get("core", 0) for r in runs if r.job in jobs)
            for name, amount in free.items()
        }

    able = {one.job for one in runs} - {one.job for one in runs if not may_go(one)}
    started = any(isinstance(order, Start) for order in plan.orders)
    assert started == fits(free, cores, slots)
    assert bool(gone) == (not started and fits(after(able), cores, slots))
    jobs = {one.job for one in runs if one.task in gone}
    assert jobs <= able  # nothing that is exempt, whatever is in need
    assert sorted(gone) == sorted(one.task for one in runs if one.job in jobs)  # gangs whole
    assert not gone or fits(after(jobs), cores, slots)
    assert not any(fits(after(jobs - {one}), cores, slots) for one in jobs)  # none too many


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 90)), min_size=1, max_size=6), st.integers(1, 6))
def test_the_lowest_priority_goes_first_and_of_equal_ones_the_youngest(given_, wanted):
    runs = [run(f"r{k}", 1, started=float(at), priority=rank) for k, (rank, at) in enumerate(given_)]
    view = seen({"n0": len(runs)}, [waiting("claim", 1, min(wanted, len(runs)))], runs, Priority())
    order = sorted(runs, key=lambda one: (one.priority, -one.started, one.task))
    assert sorted(stopped(planned(Priority(), view))) == sorted(one.task for one in order[: min(wanted, len(runs))])


def step(view, policy, rules=RULES):
    """Return the plan, and the view of the next step: what was told to stop is stopping."""
    plan = planned(policy, view, rules)
    gone = set(stopped(plan))
    runs = [replace(one, stopping=one.stopping or one.task in gone) for one in view.runs]
    return plan, replace(view, runs=runs, memory=plan.memory, now=view.now + 1)


@pytest.mark.parametrize("policy", POLICIES, ids=["priority", "load_based"])
def test_a_claim_preempts_once_and_what_it_preempted_waits_behind_it(policy):
    runs = [run("a", 2), run("b", 2)]
    view = seen({"n0": 4}, [waiting("claim", 4), waiting("other", 1, qos="low")], runs, policy)
    plan, after = step(view, policy)
    [stop, _] = [order for order in plan.orders if isinstance(order, Stop)]
    assert (stop.by, stop.signal, stop.grace, stop.why) == (
        "claim",
        "USR1",
        7.0,
        "preempted by job claim (qos urgent)",
    )
    answer = {wait.job: wait for wait in plan.waits}
    assert answer["claim"].text == "preempts 2 tasks of 2 jobs (a, b), which end first"
    plan, after = step(after, policy)
    assert stopped(plan) == []
    assert [wait.text for wait in plan.waits if wait.job == "other"] == [
        "job claim (qos urgent) starts first: it may preempt this job"
    ]
    back = waiting("b", 2, qos="", submitted=0.0)
    view = seen({"n0": 4}, [back, *after.jobs], [], policy, memory=after.memory)
    plan = planned(policy, view)
    assert [order.task for order in plan.orders if isinstance(order, Start)] == ["claim-0"]
    assert Wait("b", "preempted", "preempted by job claim (qos urgent), which starts first", told_by()) in plan.waits
    assert NAME not in plan.memory  # the claim is over


def told_by():
    return {"by": "claim", "qos": "urgent"}


def test_a_claim_that_does_not_start_preempts_again_only_after_a_while():
    view = seen({"n0": 4}, [waiting("claim", 4)], [run("a", 4)], Priority())
    plan, _ = step(view, Priority())
    again = seen({"n0": 4}, [waiting("claim", 4)], [run("z", 4)], Priority(), memory=plan.memory)
    claim = plan.memory[NAME]["claim"]
    assert stopped(planned(Priority(), replace(again, now=claim["until"] + 1))) == []
    assert stopped(planned(Priority(), replace(again, now=claim["again"] + 1))) == ["z-0"]


def limited(most, **more):
    return Rules("oak", {}, {"bio": (("bio", {"running_cores": most}),)}, **more)


@pytest.mark.parametrize("policy", POLICIES, ids=["priority", "load_based"])
@given(
    st.lists(st.tuples(st.sampled_from(["bio", ""]), st.integers(1, 4)), max_size=6),
    st.lists(st.integers(1, 3), max_size=3),
    st.integers(0, 9),
    st.integers(0, 3),
)
def test_no_start_passes_a_limit_and_what_waits_for_one_says_so(policy, asked, busy, most, elsewhere):
    runs = [replace(run(f"r{k}", cores, f"m{k}"), account="bio") for k, cores in enumerate(busy)]
    jobs = [waiting(f"j{k}", cores, qos="", account=account) for k, (account, cores) in enumerate(asked)]
    workers = {**{f"n{k}": 4 for k in range(6)}, **{f"m{k}": 3 for k in range(3)}}
    rules = limited(most)
    [limit] = rules.limits(("bio", "user", ""))
    view = seen(workers, jobs, runs, policy)
    plan = planned(policy, view, replace(rules, elsewhere={limit: elsewhere}))
    check_plan(view, plan)
    begun = {order.task.partition("-")[0] for order in plan.orders if isinstance(order, Start)}
    cores = {f"j{k}": number for k, (account, number) in enumerate(asked) if account == "bio"}
    used = sum(busy) + elsewhere
    assert used + sum(cores[job] for job in begun & cores.keys()) <= max(most, used)
    remaining = most - used - sum(cores[job] for job in begun & cores.keys())
    assert not any(cores[job] <= remaining for job in cores.keys() - begun)  # nothing waits that has room
    assert {f"j{k}" for k, (account, _) in enumerate(asked) if not account} <= begun  # others are not held up
    said = {wait.job: wait for wait in plan.waits}
    for job in cores.keys() - begun:
        assert said[job].reason == "running-limit"
        assert said[job].text.startswith(f"account bio may run {some(most, 'core')} over all clusters; ")


def test_a_bag_starts_as_many_tasks_as_its_user_may_run():
    gangs = [replace(waiting("bag", 1).gangs[0], tasks=(f"bag-{k}",), number=k) for k in range(9)]
    bag = replace(waiting("bag", 1, qos="", account="bio"), gangs=tuple(gangs))
    rules = Rules("oak", {}, {"bio": (("bio", {"clusters": {"oak": {"user_running_cores": 3}}}),)})
    for policy in POLICIES:
        plan = planned(policy, seen({"n0": 8}, [bag], [], policy), rules)
        assert [order.task for order in plan.orders] == ["bag-0", "bag-1", "bag-2"]
        assert plan.waits[0].text == "user user of account bio may run 3 cores on oak; 3 in use, 1 needed"
        assert plan.waits[0].facts["limit"] == 3


def test_settings_of_a_quality_are_checked_by_pointer():
    assert read_qos("a", {"grace": 5}).how == "requeue"
    for given_, pointer in (
        ({"grace": -1}, "/grace"),
        ({"hwo": "x"}, "/hwo"),
        ({"limits": {"cores": 1}}, "/limits/cores"),
    ):
        with pytest.raises(PolicyError) as caught:
            read_qos("a", given_)
        assert caught.value.pointer == pointer


LENDING = Rules(
    "oak",
    {"safe": QOS["safe"]},
    {name: ((name, {"guaranteed_cores": 4}), ("org", {"running_cores": 8})) for name in ("bio", "cfd")},
    parents={"bio": "org", "cfd": "org"},
)


def borrowing(cores, workers, count=6, qos=""):
    """Return a view in which bio runs so many tasks of one core, and cfd waits."""
    runs = [replace(run(f"b{k}", 1, started=float(k), qos=qos), account="bio") for k in range(count)]
    job = waiting("claim", cores, qos="", account="cfd")
    return seen({"n0": workers}, [job], runs, Priority())


@pytest.mark.parametrize("workers", [8, 20], ids=["no space", "no room under the cohort's limit"])
def test_what_an_account_is_guaranteed_comes_back_from_those_who_borrow(workers):
    assert sorted(stopped(planned(Priority(), borrowing(2, workers, 8), LENDING))) == [
        "b6-0",
        "b7-0",
    ]  # the last to start
    assert (
        stopped(planned(Priority(), borrowing(5, workers, 8), LENDING)) == []
    )  # beyond its guarantee it waits like others


@given(st.integers(0, 8), st.integers(1, 4))
def test_nobody_loses_what_is_guaranteed_and_no_more_comes_back_than_is_owed(count, cores):
    plan = planned(Priority(), view := borrowing(cores, 8, count), LENDING)
    gone, begun = stopped(plan), any(isinstance(order, Start) for order in plan.orders)
    assert begun == (count + cores <= 8)
    assert len(gone) == (0 if begun else count + cores - 8)
    assert count - len(gone) >= min(count, 4)
    assert stopped(planned(Priority(), borrowing(cores, 8, count, qos="safe"), LENDING)) == []
    check_plan(view, plan)


def test_borrowers_wait_while_what_they_borrowed_goes_back():
    plan, after = step(borrowing(2, 6), Priority(), LENDING)
    assert [order.why for order in plan.orders if isinstance(order, Stop)] == [
        "preempted by job claim (account cfd)"
    ] * 2
    remaining = [one for one in after.runs if not one.stopping]
    back = waiting("b5", 1, qos="", account="bio", submitted=0.0)
    view = seen({"n0": 6}, [back, *after.jobs], remaining, Priority(), memory=after.memory)
    assert [order.task for order in planned(Priority(), view, LENDING).orders if isinstance(order, Start)] == [
        "claim-0"
    ]
