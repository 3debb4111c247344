"""The order of the priority policy: priorities, urgency, tickets and the share tree."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.scheduling.priority.config.settings import check_settings
from rainbow.scheduling.priority.items import items
from rainbow.scheduling.priority.job_order import tickets
from rainbow.scheduling.priority.share_tree import Leaf, decayed, entitlements
from tests.support.policies.dispatching import Job
from tests.support.policies.priority_cases import NOW, asking, job, placed, plan, running, view


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
