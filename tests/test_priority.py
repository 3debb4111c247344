"""The priority policy's features, one situation each."""

import re
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rainbow
from rainbow.errors import PolicyError
from rainbow.matching import Take
from rainbow.scheduling import (
    GangView,
    JobView,
    Priority,
    ReservationView,
    Reserve,
    Resume,
    Start,
    Suspend,
    check_plan,
)
from rainbow.scheduling.priority.load import Load
from rainbow.scheduling.priority.settings import check_settings
from rainbow.scheduling.priority.share_tree import Leaf, entitlements
from rainbow.scheduling.priority.slot_range import choose, learn
from rainbow.scheduling.priority.tickets import tickets
from rainbow.scheduling.priority.usage import decayed
from rainbow.scheduling.priority.verify import can_ever, can_now
from rainbow.scheduling.priority.work import items
from tests.dispatching import Job, job_view, make_view, run_view

NOW = 1_000.0
FOUR = {f"n{k}": {"core": 2} for k in range(4)}


def view(jobs, workers=FOUR, runs=(), memory=None, load=None, **more):
    reservations = more.pop("reservations", ())
    made = make_view(NOW, workers, [job_view(job) for job in jobs], list(runs), more, reservations=reservations)
    seen = [replace(worker, load=(load or {}).get(worker.id, {})) for worker in made.workers]
    return replace(made, workers=seen, memory={"priority": memory or {}})


def plan(of):
    made = Priority().plan(of)
    check_plan(of, made)
    return replace(made, memory=made.memory.get("priority", {}))


def placed(made):
    return {o.task: {w: held["core"] for w, held in o.placement.items()} for o in made.orders if isinstance(o, Start)}


def waits(made):
    return {wait.job: wait for wait in made.waits}


def job(name, least=1, walltime=100.0, **more):
    return Job(name, more.pop("submit", 0.0), least, 5, walltime, **more)


def asking(name, least=1, walltime=100.0, most=0, requestor="user", priority=0, **attributes):
    return Job(name, 0.0, least, 5, walltime, priority, most, requestor, attributes)


def running(name, worker, cores=1, started=NOW - 10, walltime=100.0, **more):
    return run_view(job(name, walltime=walltime, **more), {worker: {"core": cores}}, started)


# ── parallel environments and ranges ──

PES = {
    "fill": {},
    "round": {"rule": "round_robin"},
    "one": {"rule": "pe_slots"},
    "pairs": {"rule": 2},
    "small": {"slots": 3},
}


@pytest.mark.parametrize(
    ("pe", "least", "most", "expected"),
    [
        ("fill", 3, 0, {"n0": 2, "n1": 1}),
        ("round", 5, 0, {"n0": 2, "n1": 1, "n2": 1, "n3": 1}),
        ("one", 2, 0, {"n0": 2}),
        ("one", 1, 6, {"n0": 2}),
        ("pairs", 1, 7, {"n0": 2, "n1": 2, "n2": 2}),
        ("fill", 3, 99, {"n0": 2, "n1": 2, "n2": 2, "n3": 2}),
        ("small", 1, 99, {"n0": 2, "n1": 1}),
        ("f*", 1, 0, {"n0": 1}),
    ],
)
def test_environment_spreads_slots_by_its_rule(pe, least, most, expected):
    made = plan(view([asking("j", least, most=most, pe=pe)], parallel_environments=PES))
    assert placed(made) == {"j": expected}


def test_environments_that_match_are_compared_by_slots():
    known = {"a1": {"slots": 2}, "a2": {"slots": 5}, "a3": {"slots": 3}}
    assert sum(placed(plan(view([asking("j", 1, most=9, pe="a*")], parallel_environments=known)))["j"].values()) == 5


def test_unknown_environment_is_told_to_its_owner_and_harms_nobody():
    made = plan(view([asking("bad", pe="zzz"), asking("worse", queue=7), job("good")]))
    assert placed(made) == {"good": {"n0": 1}}
    assert {name: w.reason for name, w in waits(made).items()} == {"bad": "attributes", "worse": "attributes"}


def test_experience_prefers_the_way_that_asks_least():
    seen = {}
    for _ in range(20):
        seen = learn(seen, range(1, 65), 64)
    assert choose(seen) == "high"
    for _ in range(20):
        seen = learn(seen, range(1, 65), 1)
    assert choose(seen) == "low"
    for _ in range(40):
        seen = learn(seen, range(1, 65), 32)
    assert choose(seen) == "bisection"


def test_range_in_a_reservation_starts_early_with_few_and_takes_what_fits_then():
    runs = [
        running("r0", "n0", 2, walltime=20),
        running("r1", "n1", 2, walltime=20),
        running("r2", "n2", 2, walltime=500),
    ]
    workers = {name: FOUR[name] for name in ("n0", "n1", "n2")}
    made = plan(view([asking("j", 3, most=6)], workers, runs))
    order = next(o for o in made.orders if isinstance(o, Reserve))
    assert (order.at, {w: h["core"] for w, h in order.placement.items()}) == (NOW + 10, {"n0": 2, "n1": 2})


# ── order ──


def test_priority_beats_submission_and_every_term_is_shown():
    made = plan(view([asking("low"), asking("high", priority=5)], {"n": {"core": 1}}))
    assert placed(made) == {"high": {"n": 1}}
    assert {"npprio", "nurg", "ntix", "rrc", "wtc", "dlc", "tickets"} <= set(made.figures["priorities"][0])


def test_jobs_may_lower_themselves_and_raise_themselves_as_far_as_set():
    jobs = [Job("high", 0.0, 1, 5, 9.0, attributes={"priority": 900}), asking("plain")]
    low = Job("low", 0.0, 1, 5, 9.0, attributes={"priority": -1})
    order = [e["job"] for e in plan(view([low, *reversed(jobs)], {"n": {"core": 1}})).figures["priorities"]]
    assert order == ["plain", "high", "low"]
    raised = plan(view([low, *reversed(jobs)], {"n": {"core": 1}}, most_asked_priority=5))
    assert [e["job"] for e in raised.figures["priorities"]] == ["high", "plain", "low"]


def test_urgency_prefers_what_waits_and_what_is_due():
    weights = {"priority": 0.0, "urgency": 1.0, "waiting_time": 1.0, "deadline": 3_600_000.0}
    old, new, due = (
        replace(job("old"), submit=10.0),
        replace(job("new"), submit=900.0),
        asking("due", deadline=NOW + 5),
    )
    made = plan(view([old, new, replace(due, submit=990.0)], {"n": {"core": 1}}, weights=weights))
    assert [entry["job"] for entry in made.figures["priorities"]] == ["due", "old", "new"]
    nobody = plan(
        view([old, new, replace(due, submit=990.0)], {"n": {"core": 1}}, weights=weights, deadline_users=["x"])
    )
    assert [entry["job"] for entry in nobody.figures["priorities"]] == ["old", "new", "due"]


def test_urgency_of_resources_counts_the_slots_its_environment_assumes():
    jobs = [
        asking("a", 2, most=8, pe="avg"),
        asking("b", 2, most=8, pe="max"),
        asking("c", 2, most=8, pe="seven"),
        asking("d", 2),
    ]
    known = {"avg": {"urgency_slots": "avg"}, "max": {"urgency_slots": "max"}, "seven": {"urgency_slots": 7}}
    made = plan(view(jobs, urgency={"core": 10, "slots": 1}, parallel_environments=known))
    assert {e["job"]: e["rrc"] for e in made.figures["priorities"]} == {"a": 55.0, "b": 88.0, "c": 77.0, "d": 22.0}


def owned(*owners):
    """One item for every (user, project)."""
    jobs = [asking(f"j{k}", requestor=user, project=project) for k, (user, project) in enumerate(owners)]
    return items(view(jobs), check_settings({}))


def given_tickets(**more):
    return check_settings({"tickets": more})["tickets"]


def test_override_tickets_are_divided_among_an_owners_jobs():
    given_ = given_tickets(override={"users": {"ann": 100}, "projects": {"p": 30}, "jobs": {"j2": 7}})
    assert tickets(owned(("ann", ""), ("ann", "p"), ("bob", "")), [], {}, given_) == [50.0, 80.0, 7.0]


def test_functional_tickets_follow_shares_and_take_turns():
    given_ = given_tickets(
        functional=1000, functional_shares={"users": {"ann": 3, "bob": 1}}, functional_weights={"job": 0}
    )
    own = tickets(owned(("ann", ""), ("ann", ""), ("ann", ""), ("bob", "")), [], {}, given_)
    assert sum(own) == pytest.approx(1000)
    assert own[0] > own[1] > own[2] == pytest.approx(own[3])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("pq")), min_size=1, max_size=9), st.booleans())
def test_15_functional_tickets_never_exceed_their_sum(owners, shared):
    given_ = given_tickets(
        functional=1000,
        functional_shares={"users": {"a": 5, "b": 1}, "projects": {"p": 2}},
        share_functional_shares=shared,
    )
    assert sum(tickets(owned(*owners), [], {}, given_)) <= 1000 + 1e-6


TREE = {
    "name": "root",
    "children": [
        {
            "name": "p",
            "project": True,
            "shares": 3,
            "children": [{"name": "a", "shares": 1}, {"name": "b", "shares": 3}],
        },
        {"name": "q", "project": True, "shares": 1, "children": [{"name": "default", "shares": 1}]},
        {"name": "c", "shares": 1},
    ],
}
leaves = st.sets(
    st.sampled_from([Leaf("p", "a"), Leaf("p", "b"), Leaf("q", "x"), Leaf("q", "y"), Leaf("", "c")]), min_size=1
)
used = st.dictionaries(st.sampled_from(["p/a", "p/b", "q/x", "q/y", "/c"]), st.floats(0, 1e9))


@given(leaves, used, st.sampled_from([0.0, 1.0, 2.0, 5.0]))
def test_14_share_tree_owes_all_there_is_to_those_with_jobs(of, usage, compensation):
    owed = entitlements(TREE, of, usage, compensation)
    assert set(owed) == of
    assert sum(owed.values()) == pytest.approx(1)


@given(leaves, st.sampled_from(["p/a", "p/b", "q/x"]), st.floats(2, 1e9))
def test_14_who_has_used_more_is_owed_no_more(of, name, more):
    leaf = next((leaf for leaf in of if f"{leaf.project}/{leaf.user}" == name), None)
    if leaf:
        assert entitlements(TREE, of, {name: more}, 0.0)[leaf] <= entitlements(TREE, of, {}, 0.0)[leaf] + 1e-12


FLAT = {"name": "root", "children": [{"name": name, "shares": k + 1} for k, name in enumerate("abcd")]}


@given(st.dictionaries(st.sampled_from(["/a", "/b", "/c", "/d"]), st.floats(0, 1e9)), st.floats(1, 4))
def test_14_compensation_never_raises_who_is_owed_most_for_its_shares(usage, compensation):
    of = {Leaf("", name) for name in "abcd"}
    plain, held = entitlements(FLAT, of, usage, 0.0), entitlements(FLAT, of, usage, compensation)
    by_shares = {Leaf("", name): (k + 1) / 10 for k, name in enumerate("abcd")}
    top = max(of, key=lambda leaf: plain[leaf] / by_shares[leaf])
    assert held[top] <= plain[top] * (1 + 1e-9)


@given(st.floats(0, 1e12), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1, 1e6))
def test_14_usage_fades_alike_in_one_step_or_two_and_by_half_in_a_halftime(amount, first, second, halftime):
    assert decayed(decayed(amount, first, halftime), second, halftime) == pytest.approx(
        decayed(amount, first + second, halftime)
    )
    assert decayed(amount, halftime, halftime) == pytest.approx(amount / 2)
    assert decayed(amount, first, 0.0) == amount


def test_share_tree_lets_the_one_who_used_less_go_first():
    tree = {"name": "root", "children": [{"name": "default", "shares": 1}]}
    given_ = {"tickets": {"share": 1000, "share_tree": tree, "halftime": 1}, "weights": {"ticket": 1.0}}
    memory = {"usage": {"at": NOW - 60, "used": {"/greedy": 1e6}}}
    jobs = [asking("g0", requestor="greedy"), asking("g1", requestor="greedy"), asking("m0", requestor="modest")]
    made = plan(view(jobs, {"n": {"core": 1}}, memory=memory, **given_))
    assert placed(made) == {"m0": {"n": 1}}
    assert made.memory["usage"] == {"at": NOW, "used": {"/greedy": pytest.approx(1e6 * 0.5 ** (1 / 60))}}
    later = plan(
        view(
            jobs,
            {"n": {"core": 1}},
            [running("r", "n", 1, requestor="x")],
            made.memory | {"usage": {"at": NOW - 8, "used": {}}},
            **given_,
        )
    )
    assert later.memory["usage"]["used"] == {"/x": 8.0}


# ── queues ──


def test_queue_limits_slots_and_who_may_use_it():
    known = {"short": {"slots": 1, "workers": ["n0"]}, "staff": {"users": ["ann"], "workers": ["n1"]}}
    jobs = [
        asking("a"),
        asking("b", requestor="ann"),
        asking("c"),
        asking("d", queue="staff"),
        asking("e", requestor="ann", queue="staff@n1"),
    ]
    made = plan(view(jobs, queues=known))
    assert placed(made) == {"a": {"n0": 1}, "b": {"n1": 1}, "e": {"n1": 1}}
    assert waits(made)["d"].facts["reasons"] == {"no access": 4}


def test_queue_slots_of_what_runs_are_remembered():
    known = {"q": {"slots": 1}}
    first = plan(view([asking("a")], {"n0": {"core": 2}}, queues=known))
    second = plan(view([asking("b")], {"n0": {"core": 2}}, [running("a", "n0")], first.memory, queues=known))
    assert placed(second) == {}
    assert waits(second)["b"].facts["reasons"] == {"busy": 1}


def test_sequence_numbers_and_load_order_the_workers():
    known = {"far": {"seq_no": 2, "workers": ["n0", "n1"]}, "near": {"seq_no": 1, "workers": ["n2", "n3"]}}
    load = {"n0": {"np": 0.1}, "n1": {"np": 0.9}, "n2": {"np": 0.8}, "n3": {"np": 0.5}}
    by_number = view([asking("a")], load=load, queues=known, queue_sort_method="seqno", load_formula="np")
    assert placed(plan(by_number)) == {"a": {"n3": 1}}
    by_load = view([asking("a")], load=load, queues=known, load_formula="$np")
    assert placed(plan(by_load)) == {"a": {"n0": 1}}


def test_load_of_new_tasks_is_assumed_and_fades():
    given_ = check_settings({"load_adjustments": {"np_load_avg": 0.5}, "load_formula": "np_load_avg"})
    of = view([], runs=[running("r", "n0", 2, started=NOW - 225)], load={"n0": {"np_load_avg": 0.1}})
    assert Load(of, given_).values["n0"]["np_load_avg"] == pytest.approx(0.1 + 2 * 0.5 * 0.5 / 2)
    made = plan(
        view([asking(f"j{k}") for k in range(4)], load_adjustments={"np_load_avg": 0.5}, load_formula="np_load_avg")
    )
    assert placed(made) == {f"j{k}": {f"n{k}": 1} for k in range(4)}


def test_overloaded_queue_takes_nothing_and_a_full_one_of_a_type_neither():
    known = {"q": {"load_thresholds": {"np": 1.0}}}
    made = plan(view([asking("a")], load={"n0": {"np": 1.0}, "n1": {"np": 0.9}}, queues=known))
    assert placed(made) == {"a": {"n1": 1}}
    consumable = {"q": {"load_thresholds": {"core": 1}}}
    made = plan(view([asking("a"), asking("b"), asking("c")], {"n0": {"core": 3}}, queues=consumable))
    assert placed(made) == {"a": {"n0": 1}, "b": {"n0": 1}}


def test_calendar_closes_a_queue_and_what_fits_before_may_run():
    known = {"q": {"calendar": {"week": "Mon-Sun=0:20-0:30=off"}}}  # NOW is 0:16:40
    made = plan(
        view([asking("short", walltime=200.0), asking("long", walltime=201.0)], {"n0": {"core": 1}}, queues=known)
    )
    assert placed(made) == {"short": {"n0": 1}}
    made = plan(view([asking("long", walltime=201.0)], {"n0": {"core": 1}}, queues=known))
    assert [(o.job, o.at) for o in made.orders] == [("long", 1800.0)]
    closed = plan(view([asking("a")], queues={"q": {"calendar": {"week": "Mon-Sun=suspended"}}}))
    assert waits(closed)["a"].facts["reasons"] == {"closed": 4}


def held(made):
    return [(type(o).__name__, o.task) for o in made.orders if isinstance(o, (Suspend, Resume))]


def where(**spots):
    return {"running": {task: {"pe": "", "spots": [spot]} for task, spot in spots.items()}}


def test_subordinate_queue_is_suspended_while_its_superior_is_in_use():
    known = {"high": {"subordinates": {"low": 1}, "users": ["boss"]}, "low": {}}
    memory, low = where(l=["n0", "low", 1]), running("l", "n0")
    made = plan(
        view(
            [asking("h", requestor="boss", queue="high"), asking("x", queue="low@n0")],
            FOUR,
            [low],
            memory,
            queues=known,
        )
    )
    assert placed(made) == {"h": {"n0": 1}}
    assert held(made) == [("Suspend", "l")]
    after = plan(
        view([asking("z", 99)], FOUR, [replace(low, suspended=True)], {**memory, "suspended": ["l"]}, queues=known)
    )
    assert held(after) == [("Resume", "l")]
    foreign = plan(view([asking("z", 99)], FOUR, [replace(low, suspended=True)], memory, queues=known))
    assert held(foreign) == []


def test_suspend_threshold_holds_the_newest_tasks_one_by_one():
    known = {"q": {"suspend_thresholds": {"np": 2.0}, "suspend_interval": 0}}
    memory = where(a=["n0", "q", 1], b=["n0", "q", 1])
    runs = [running("a", "n0", started=NOW - 50), running("b", "n0", started=NOW - 20)]
    made = plan(view([asking("z", 99)], FOUR, runs, memory, {"n0": {"np": 2.0}}, queues=known))
    assert held(made) == [("Suspend", "b")]
    stopped = [runs[0], replace(runs[1], suspended=True)]
    made = plan(view([asking("z", 99)], FOUR, stopped, made.memory, {"n0": {"np": 2.0}}, queues=known))
    assert held(made) == [("Suspend", "a")]
    made = plan(
        view(
            [asking("z", 99)],
            FOUR,
            [replace(r, suspended=True) for r in runs],
            {**memory, "suspended": ["a", "b"]},
            queues=known,
        )
    )
    assert held(made) == [("Resume", "a")]


def test_suspend_threshold_waits_an_interval_between_two_times():
    known = {"q": {"suspend_thresholds": {"np": 2.0}, "suspend_interval": 60}}
    memory = where(a=["n0", "q", 1], b=["n0", "q", 1])
    runs = [running("a", "n0", started=NOW - 50), running("b", "n0", started=NOW - 20)]
    of = view([asking("z", 99)], FOUR, runs, memory, {"n0": {"np": 2.0}}, queues=known)
    made = plan(of)
    assert held(made) == [("Suspend", "b")]
    of = replace(of, runs=[runs[0], replace(runs[1], suspended=True)], memory={"priority": made.memory})
    assert held(plan(replace(of, now=NOW + 59))) == []
    assert held(plan(replace(of, now=NOW + 60))) == [("Suspend", "a")]
    calm = [replace(worker, load={}) for worker in of.workers]
    assert held(plan(replace(of, now=NOW + 59, workers=calm))) == []
    assert held(plan(replace(of, now=NOW + 60, workers=calm))) == [("Resume", "b")]


def test_queue_suspended_by_its_calendar_holds_what_runs_there():
    known = {"q": {"calendar": {"week": "Mon-Sun=0:10-0:20=suspended"}}}
    made = plan(view([asking("z")], FOUR, [running("a", "n0")], where(a=["n0", "q", 1]), queues=known))
    assert held(made) == [("Suspend", "a")]


def test_master_task_stands_in_the_queue_asked_for_it():
    known = {"m": {"workers": ["n2"]}, "s": {"workers": ["n0", "n1", "n3"]}}
    made = plan(view([asking("j", 4, master_queue="m", queue="s")], queues=known))
    assert placed(made) == {"j": {"n2": 1, "n0": 2, "n1": 1}}
    assert made.memory["running"]["j"]["spots"][0] == ["n2", "m", 1]


@pytest.mark.parametrize(
    ("rule", "count", "expected"),
    [
        ("pe_slots", 2, {"n3": 2}),  # n2 has room for the master, and not for the others
        (2, 4, {"n3": 2, "n0": 2}),
        ("round_robin", 3, {"n2": 1, "n0": 1, "n1": 1}),
        ("fill_up", 3, {"n2": 1, "n0": 2}),
    ],
)
def test_master_and_others_keep_to_the_rule_together(rule, count, expected):
    known = {"m": {"workers": ["n2", "n3"]}, "s": {}}
    settings_ = {"queues": known, "parallel_environments": {"pe": {"rule": rule}}}
    asked = asking("j", count, pe="pe", master_queue="m", queue="s")
    made = plan(view([asked], FOUR, [running("r", "n2")], **settings_))
    assert placed(made) == {"j": expected}
    assert made.memory["running"]["j"]["spots"][0][1] == "m"


def test_slots_that_stand_apart_take_one_of_each_worker_whatever_its_queues():
    lone = Job("j", 0.0, 3, 5, 50.0, apart=True)
    made = plan(view([lone], queues={"a": {}, "b": {}}))
    assert placed(made) == {"j": {"n0": 1, "n1": 1, "n2": 1}}


def test_soft_requests_choose_among_what_fits_and_never_refuse():
    known = {"slow": {"workers": ["n0", "n1"]}, "fast": {"workers": ["n2"]}}
    made = plan(view([asking(f"j{k}", soft={"queue": "fast"}) for k in range(3)], queues=known))
    assert placed(made) == {"j0": {"n2": 1}, "j1": {"n2": 1}, "j2": {"n0": 1}}
    workers = {"a": {"core": 2}, "b": {"core": 2, "gpu": 1}}
    made = plan(view([asking("j", soft={"resources": {"gpu": 1}})], workers))
    assert placed(made) == {"j": {"b": 1}}


# ── limits ──


def test_user_limit_counts_jobs_and_lets_others_pass():
    made = plan(
        view(
            [asking("a"), asking("b"), asking("c", requestor="other")], runs=[running("r", "n0")], max_jobs_per_user=2
        )
    )
    assert set(placed(made)) == {"a", "c"}
    assert waits(made)["b"].reason == "running-limit"


def test_tasks_at_once_bounds_one_jobs_tasks():
    gangs = tuple(replace(job_view(asking("j")).gangs[0], number=k, tasks=(f"j-{k}",)) for k in range(5))
    of = view([])
    several = JobView("j", "user", 0.0, gangs, 0, 0, {"tasks_at_once": 2})
    assert len(placed(plan(replace(of, jobs=[several])))) == 2


def test_quota_binds_by_name_in_braces_and_together_without():
    each = [{"name": "q", "limits": [{"users": "{*}", "to": {"slots": 1}}]}]
    jobs = [asking("a1", requestor="ann"), asking("a2", requestor="ann"), asking("b1", requestor="bob")]
    made = plan(view(jobs, quotas=each))
    assert set(placed(made)) == {"a1", "b1"}
    facts = waits(made)["a2"].facts
    assert (facts["reasons"], facts["limits"], facts["start"]) == (
        {"quota used": 4},
        ["quota q/0/ann slots"],
        NOW + 100,
    )
    together = [{"name": "q", "limits": [{"users": "ann,bob", "to": {"slots": 2}}]}]
    assert set(placed(plan(view(jobs, quotas=together)))) == {"a1", "a2"}
    first = [{"name": "q", "limits": [{"users": "ann", "to": {"slots": 5}}, {"to": {"slots": 0}}]}]
    assert set(placed(plan(view(jobs, quotas=first)))) == {"a1", "a2"}
    by_host = [{"name": "q", "limits": [{"hosts": "{*}", "to": {"slots": "$num_proc*0.5"}}]}]
    assert placed(plan(view([asking("a", 3)], quotas=by_host))) == {"a": {"n0": 1, "n1": 1, "n2": 1}}


def test_licences_are_counted_for_the_cluster():
    of = view([])
    lone = job_view(asking("j")).gangs[0].slots[0]
    jobs = []
    for k in range(3):
        gang = GangView(f"j{k}", 0, (f"j{k}",), f"j{k}", 50.0, (replace(lone, outside={"licence": 2}),))
        jobs.append(JobView(f"j{k}", "user", 0.0, (gang,)))
    made = plan(replace(of, jobs=jobs, consumables={"licence": 5}))
    assert [o.task for o in made.orders if isinstance(o, Start)] == ["j0", "j1"]
    assert [(o.job, o.at, o.placement[""]) for o in made.orders if isinstance(o, Reserve)] == [
        ("j2", NOW + 50, {"licence": 2})
    ]


def test_default_requests_are_taken_of_workers_and_of_the_cluster():
    workers = {"n0": {"core": 4, "memory": 8}, "n1": {"core": 4, "memory": 2}}
    defaults = {"memory": {"default": 3}, "licence": {"default": 1, "per": "job"}}
    jobs = [asking("a"), asking("b"), asking("c"), replace(asking("d"), amounts={"core": 1, "memory": 1})]
    of = replace(view(jobs, workers, consumables=defaults), consumables={"licence": 3})
    starts = {o.task: o.placement for o in plan(of).orders if isinstance(o, Start)}
    assert starts == {
        "a": {"n0": {"core": 1, "memory": 3}, "": {"licence": 1}},
        "b": {"n0": {"core": 1, "memory": 3}, "": {"licence": 1}},
        "d": {"n0": {"core": 1, "memory": 1}, "": {"licence": 1}},
    }


# ── reservations ──


def test_reservation_goes_on_when_the_cluster_is_full_and_stops_in_the_original():
    runs = [running(f"r{k}", f"n{k}", 2) for k in range(4)]
    jobs = [asking(f"j{k}", 8, reserve=True) for k in range(3)]
    ours = plan(view(jobs, runs=runs, discipline="tuned", max_reservation=10))
    assert [o.at for o in ours.orders] == [NOW + 90, NOW + 190, NOW + 290]
    theirs = plan(view(jobs, runs=runs, discipline="tuned", max_reservation=10, compat="grid_engine"))
    assert [o.at for o in theirs.orders] == [NOW + 90]


def test_advance_reservation_holds_its_jobs_and_ends_them_in_time():
    kept = ReservationView("ar", {"n0": {"core": 2}}, NOW - 5, NOW + 50)
    jobs = [
        asking("in", 2, 50.0, reservation="ar"),
        asking("long", 1, 60.0, reservation="ar"),
        asking("free", 8, 10.0),
        asking("no", reservation="x"),
    ]
    made = plan(view(jobs, reservations=(kept,)))
    assert placed(made) == {"in": {"n0": 2}}
    assert waits(made)["long"].reason == "never"
    assert waits(made)["no"].reason == "attributes"
    assert waits(made)["free"].facts["start"] == NOW + 50


def test_advance_reservation_gives_no_more_than_is_really_free():
    kept = ReservationView("ar", {"n0": {"core": 2}}, NOW - 5, NOW + 50)
    jobs = [asking("a", 1, 40.0, reservation="ar"), asking("b", 1, 40.0, reservation="ar")]
    made = plan(view(jobs, runs=[running("r", "n0", walltime=500.0)], reservations=(kept,)))
    assert placed(made) == {"a": {"n0": 1}}


def test_gang_only_the_matcher_can_place_takes_whole_workers_and_is_promised_them():
    def place(demand, free):
        return Take(tuple(("s", {name: {"core": 1}}) for name in free[:3]), {}) if len(free) >= 3 else None

    gang = GangView("m", 0, ("m",), "m/0", 30.0)
    of = replace(view([], runs=[running("r", "n0"), running("s", "n1", walltime=50.0)]), place=place)
    made = plan(replace(of, jobs=[JobView("m", "user", 0.0, (gang,))]))
    assert [(o.at, sorted(o.placement)) for o in made.orders] == [(NOW + 40, ["n1", "n2", "n3"])]
    made = plan(replace(of, runs=[], jobs=[JobView("m", "user", 0.0, (gang,))], workers=view([]).workers))
    assert [o.task for o in made.orders] == ["m"]


# ── reasons ──


def test_reasons_are_counted_as_people_know_them():
    workers = {"a": {"core": 1}, "b": {"core": 4}, "c": {"core": 4}}
    runs = [running("r", "b", 4, walltime=70.0), running("s", "c", 3, walltime=130.0)]
    job_ = Job("j", 0.0, 1, 5, 60.0, amounts={"core": 4})
    made = plan(view([job_], workers, runs))
    wait = waits(made)["j"]
    assert wait.text == "0/3 workers: 2 busy until 00:17, 1 too small; expected to start at 00:17"
    assert wait.facts["start"] == wait.facts["busy_until"] == NOW + 60


def test_can_ever_and_can_now_are_two_answers():
    runs = [running("r", "n0", 2), running("s", "n1", 2), running("t", "n2", 2), running("u", "n3", 2)]
    of = view([asking("a", 2), asking("b", 9), asking("c", queue="zzz")], runs=runs)
    assert (can_ever(Priority(), of, "a").can, can_now(Priority(), of, "a").can) == (True, False)
    assert can_now(Priority(), of, "a").text.startswith("0/4 workers: 4 busy")
    assert not can_ever(Priority(), of, "b").can
    assert can_ever(Priority(), of, "b").text.startswith("4/4 workers: 4 room for one slot")
    assert can_now(Priority(), replace(of, runs=(), workers=view([]).workers), "a").can


# ── settings ──


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"discipline": "random"}, "/discipline"),
        ({"discipline": ["easy"]}, "/discipline"),
        ({"max_reservation": 3}, "/max_reservation"),
        ({"discipline": "tuned", "max_reservation": -1}, "/max_reservation"),
        ({"schedule_interval": float("nan")}, "/schedule_interval"),
        ({"schedule_interval": 10**400}, "/schedule_interval"),
        ({"schedule_interval": True}, "/schedule_interval"),
        ({"parallel_environments": {"a/b": {"rule": 0}}}, "/parallel_environments/a~1b/rule"),
        ({"parallel_environments": {"p": {"rule": "up"}}}, "/parallel_environments/p/rule"),
        ({"parallel_environments": [1]}, "/parallel_environments"),
        ({"queues": {"q": {"calendar": {"week": "Funday=off"}}}}, "/queues/q/calendar"),
        ({"queues": {"q": {"calendar": {"year": "31.2.2024=off"}}}}, "/queues/q/calendar"),
        ({"queues": {"q": {"calendar": {"year": "\x00"}}}}, "/queues/q/calendar"),
        ({"queues": {"q": {"slots": "7"}}}, "/queues/q/slots"),
        ({"queues": {"q": {"subordinates": {"r": 1}}}}, "/queues/q/subordinates/r"),
        ({"load_formula": "a*b"}, "/load_formula"),
        ({"load_formula": None}, "/load_formula"),
        ({"quotas": [{"limits": []}]}, "/quotas/0"),
        ({"quotas": [{"name": "q", "limits": [{"to": {"slots": "2*x"}}]}]}, "/quotas/0/limits/0/to/slots"),
        ({"tickets": {"hierarchy": "OO"}}, "/tickets/hierarchy"),
        ({"tickets": {"share_tree": {"name": "r", "children": [{"shares": 1}]}}}, "/tickets/share_tree/children/0"),
        ({"tickets": {"share_tree": {"name": "r", "shares": -1}}}, "/tickets/share_tree/shares"),
        ({"weights": {"prio": 1}}, "/weights/prio"),
        ({"urgency": {"core": inf}}, "/urgency/core"),
        ({"utc_offset": 1e9}, "/utc_offset"),
        ({"what": 1}, "/what"),
    ],
)
def test_faulty_setting_is_named_by_its_pointer(settings, pointer):
    with pytest.raises(PolicyError) as fault:
        Priority().check(settings)
    assert fault.value.pointer == pointer


def test_deep_share_tree_is_refused_not_followed():
    tree = {"name": "leaf"}
    for k in range(5_000):
        tree = {"name": f"n{k}", "children": [tree]}
    with pytest.raises(PolicyError):
        Priority().check({"tickets": {"share_tree": tree}})


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "priority",
    "queue",
    "master_queue",
    "pe",
    "project",
    "department",
    "reserve",
    "reservation",
    "deadline",
    "job_share",
    "tasks_at_once",
    "soft",
]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(KEYS), anything))
def test_whatever_a_job_asks_never_harms_the_run(attributes):
    hostile = Job("bad", 0.0, 1, 5, 100.0, 9, attributes=attributes)
    made = plan(view([hostile, asking("good")], FOUR, parallel_environments=PES, queues={"q": {}}))
    assert "good" in placed(made) or "bad" in placed(made)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(sorted(check_settings({}))), anything, max_size=3))
def test_whatever_is_set_is_accepted_whole_or_refused_with_a_pointer(given_):
    filled = fault = None
    try:
        filled = Priority().check(given_)
    except PolicyError as refused:
        fault = refused.pointer
    assert fault is not None or Priority().check(filled) == filled


# ── documentation ──

DOC = Path(__file__).parents[1] / "docs" / "priority.md"
PARTS = Path(rainbow.__file__).parent / "scheduling"


def test_every_setting_is_documented():
    text = DOC.read_text()
    assert [name for name in check_settings({}) if f"`{name}`" not in text] == []
    tickets_ = check_settings({})["tickets"]
    assert [name for name in tickets_ if f"`{name}`" not in text] == []


def test_every_function_of_the_original_has_its_place_and_the_places_exist():
    seed = DOC.parents[2] / "shared" / "seeds" / "ocs-scheduler-thread.md"
    if not seed.exists():
        pytest.skip("../shared is not beside this checkout")
    functions = set(re.findall(r"`(\w+)\(\)`", seed.read_text()))
    assert len(functions) > 20
    text = DOC.read_text()
    assert sorted(name for name in functions if name not in text) == []


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(\w+)\.(\w+)", DOC.read_text()))), ids=".".join)
def test_places_named_in_the_documentation_exist(name):
    first, second = name
    if second in ("py", "md", "svg", "sh"):
        assert list(Path(rainbow.__file__).parent.rglob(f"{first}.py"))
        return
    sources = [path.read_text() for path in PARTS.rglob("*.py") if path.stem == first]
    sources += [path.read_text() for path in PARTS.rglob("*.py") if f"class {first}" in path.read_text()]
    assert any(re.search(rf"(def|class) {second}\b|\b{second}:", source) for source in sources) or first in (
        "weights", "verify", "item", "GangView", "attributes",
    )  # fmt: skip
