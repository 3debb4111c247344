"""What always holds of the priority policy: order (13), categories (16, 17) and quotas (18, 19)."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.scheduling import Priority, ReservationView, Start
from rainbow.scheduling.priority.config.settings import check_settings
from rainbow.scheduling.priority.items import Categories, environments, items
from rainbow.scheduling.priority.job_order import ordered, prioritise
from rainbow.scheduling.priority.placement.lines import ResourceLines
from rainbow.scheduling.priority.policy import dispatch, own_view
from tests.support.policies.dispatching import Job, job_view, make_view, run_view
from tests.support.policies.priority_views import NOW, PES, QUOTAS, durations, starts, views


@given(views(), st.lists(st.floats(-1e6, 1e6), min_size=8, max_size=8))
def test_13_terms_lie_between_0_and_1_and_the_order_is_total(view, tickets):
    given_ = check_settings({"weights": {"waiting_time": 0.3}, "urgency": {"core": 1000, "slots": -3}})
    waiting = items(replace(view, settings=given_), given_)
    own = [abs(t) for t in tickets][: len(waiting)] + [0.0] * (len(waiting) - 8)
    prioritise(waiting, NOW, given_, own)
    assert all(0 <= item.terms[name] <= 1 for item in waiting for name in ("npprio", "nurg", "ntix"))
    by = [(-item.priority, item.job.submitted, item.place) for item in ordered(waiting)]
    assert by == sorted(by)
    assert len(set(by)) == len(by)
    prioritise(
        waiting,
        NOW,
        {**given_, "urgency": {}, "weights": {**given_["weights"], "waiting_time": 0.0}},
        [3.0] * len(waiting),
    )
    assert {item.terms["nurg"] for item in waiting} == {0.5}


@given(views(), st.sampled_from(["priority", "urgency", "ticket"]), st.floats(0, 10))
def test_13_priority_grows_with_each_term(view, name, weight):
    given_ = check_settings({"weights": {"waiting_time": 0.3, name: weight}, "urgency": {"core": 10}})
    waiting = items(replace(view, settings=given_), given_)
    prioritise(waiting, NOW, given_, [float(k) for k in range(len(waiting))])
    term = {"priority": "npprio", "urgency": "nurg", "ticket": "ntix"}[name]
    for item in waiting:
        own = sum(
            given_["weights"][n] * item.terms[t]
            for n, t in (("priority", "npprio"), ("urgency", "nurg"), ("ticket", "ntix"))
        )
        assert item.priority == pytest.approx(own)
        assert given_["weights"][name] * item.terms[term] <= item.priority + 1e-9


@given(views(extra={"quotas": QUOTAS}))
def test_16_categories_change_nothing_but_time(view):
    stored = Priority().plan(view)
    alone = Priority().plan(replace(view, settings={**view.settings, "categories": False}))
    assert (stored.orders, stored.figures) == (alone.orders, alone.figures)
    assert [(w.job, w.reason, w.text) for w in stored.waits] == [(w.job, w.reason, w.text) for w in alone.waits]


BASE = Job("j", 0.0, 2, 5, 60.0, 0, 4, "a", {"pe": "fill", "queue": "q"})
MUTANTS = [
    replace(BASE, least=1),
    replace(BASE, most=5),
    replace(BASE, walltime=61.0),
    replace(BASE, requestor="b"),
    replace(BASE, amounts={"core": 2}),
    replace(BASE, amounts={"core": 1, "gpu": 1}),
    replace(BASE, apart=True),
    *(
        replace(BASE, attributes={**BASE.attributes, **more})
        for more in (
            {"pe": "round"},
            {"queue": "r"},
            {"master_queue": "q"},
            {"project": "p"},
            {"reservation": "ar"},
            {"soft": {"queue": "z"}},
            {"soft": {"resources": {"gpu": 1}}},
        )
    ),
]


def category_of(job):
    given_ = check_settings({"parallel_environments": PES, "queues": {"q": {}, "r": {}}})
    stored = (ReservationView("ar", {}, 0.0, 1.0),)
    view = make_view(NOW, {"n": {"core": 4}}, [job_view(job)], (), given_, reservations=stored)
    return Categories(True).key(items(view, given_)[0])


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_17_whatever_can_alter_matching_is_part_of_the_category(mutant):
    assert category_of(mutant) != category_of(BASE)


def test_17_what_cannot_is_not():
    same = replace(
        BASE, id="k", submit=9.0, priority=5, attributes={**BASE.attributes, "reserve": True, "job_share": 3}
    )
    assert category_of(same) == category_of(BASE)


@given(views(number=1), st.integers(0, 5), st.sampled_from(["users", "pes", "hosts"]))
def test_18_one_more_quota_set_never_starts_what_did_not(view, limit, scope):
    more = [*QUOTAS, {"name": "more", "limits": [{scope: "*", "to": {"slots": limit}}]}]
    before = Priority().plan(replace(view, settings={**view.settings, "quotas": QUOTAS}))
    after = Priority().plan(replace(view, settings={**view.settings, "quotas": more}))
    assert set(starts(after)) <= set(starts(before))


@given(views(extra={"quotas": QUOTAS}))
def test_18_what_a_start_takes_of_a_quota_is_what_it_holds_until_its_end(view):
    run, plan, given_ = dispatch(own_view(view)), Priority().plan(view), check_settings(view.settings)
    by_id = {job.id: job for job in view.jobs}
    begun = [
        run_view(
            Job(o.task, 0, 1, 5, durations(view)[o.task], 0, 0, by_id[o.task].requestor, by_id[o.task].attributes),
            o.placement,
            NOW,
        )
        for o in plan.orders
        if isinstance(o, Start)
    ]
    after = ResourceLines(
        replace(view, runs=[*view.runs, *begun], memory=plan.memory["priority"]),
        given_,
        environments(given_).values(),
    )
    assert held_now(after.timeline) == held_now(run.lines.timeline)
    assert held_now(ResourceLines(replace(view, runs=(), memory=plan.memory["priority"]), given_).timeline) == {}


def held_now(timeline):
    """Return what limits that are no resources have in use at this moment."""
    levels = {line: use.level(NOW) for line, use in timeline.entries() if line[0].startswith(("quota", "pe"))}
    return {line: level for line, level in levels.items() if level}


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.integers(0, 5))
def test_19_braces_bind_each_by_name_lists_together_and_not_never_itself(users, limit):
    jobs_ = [job_view(Job(f"j{k:02}", NOW - 1, 1, 5, 9.0, requestor=user)) for k, user in enumerate(users)]
    request = Counter(users)

    def started(scope):
        quota = {"name": "q", "limits": [{"users": scope, "to": {"slots": limit}}]}
        view = make_view(NOW, {"n": {"core": 99}}, jobs_, (), {"quotas": [quota]})
        owner = {job.id: job.requestor for job in jobs_}
        return Counter(owner[task] for task in starts(Priority().plan(view)))

    each, together, without = started("{a,b}"), started("a,b"), started("!a")
    assert all(each[user] == min(limit, request[user]) for user in "ab")
    assert together["a"] + together["b"] == min(limit, request["a"] + request["b"])
    assert without["b"] + without["c"] == min(limit, request["b"] + request["c"])
    assert each["c"] == together["c"] == request["c"]
    assert without["a"] == request["a"]
