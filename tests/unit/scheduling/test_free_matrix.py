"""The resource diagram as arrays says what the profiles of the workers say, and plans are the same with it."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.scheduling import Priority
from rainbow.scheduling.free_matrix import BOUNDS, FreeMatrix, Slots
from rainbow.scheduling.priority.dispatch import Refusals
from rainbow.scheduling.priority.placement import assign
from rainbow.scheduling.priority.placement.assign import Assigner
from rainbow.scheduling.resource_timeline import Timeline
from tests.conftest import examples
from tests.support.policies.dispatching import Job, job_view, make_view, run_view
from tests.support.policies.priority_views import NOW, PES, views

WORKERS = ("a", "b", "c")
CAPACITY = {"a": {"core": 4, "gpu": 1}, "b": {"core": 2}, "c": {"core": 8, "gpu": 2}}

bookings = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(WORKERS), st.fixed_dictionaries({"core": st.integers(0, 4)}), min_size=1),
        st.integers(-3, 30),
        st.one_of(st.integers(1, 12), st.just(inf)),
    ),
    max_size=12,
)
wanted = st.builds(
    Slots,
    st.sampled_from([(("core", 1),), (("core", 3),), (("core", 1), ("gpu", 1)), ()]),
    st.integers(1, 9),
    st.sampled_from([0, 0, 1, 2, 3]),
    st.booleans(),
)


def giving(line, slots, start, end):
    """What each worker gives over a time, worker by worker."""
    results = {}
    for worker in WORKERS:
        copies = line.copies(worker, dict(slots.amounts), start, end)
        most = 1 if slots.apart else slots.each or slots.count
        results[worker] = int(min(copies, most)) if not slots.each or min(copies, most) >= slots.each else 0
    return results


def earliest(line, slots, duration, now=0):
    """The first start, at every moment at which anything changes; in place of arrays."""
    if slots.each and slots.count % slots.each:
        return None
    steps = {time for _, use in line.entries() for time, _ in use if now < time < inf}
    for start in sorted({now, *steps}):
        given_ = giving(line, slots, start, start + duration)
        if sum(given_.values()) >= slots.count:
            return start, {worker: count for worker, count in given_.items() if count}
    return None


@settings(max_examples=examples(300))
@given(bookings, bookings, st.lists(st.tuples(wanted, st.one_of(st.integers(1, 9), st.just(inf))), max_size=6))
def test_arrays_say_what_profiles_say_and_stay_up_to_date(before, after, questions):
    line = Timeline(CAPACITY)
    line.fill((placement, start, start + seconds) for placement, start, seconds in before)
    matrix, plain = line.matrix(WORKERS, 0), line.copy()
    group = matrix.group(WORKERS)
    for placement, start, seconds in [({}, 0, 1), *after]:
        line.add(placement, start, start + seconds)
        plain.add(placement, start, start + seconds)
        for slots, duration in questions:
            result = matrix.earliest(group, slots, duration)
            assert (result and (result[0], group.left(result[1]))) == earliest(plain, slots, duration)
    assert list(line.entries()) == list(plain.entries())


@given(bookings, wanted, st.integers(1, 9))
def test_what_is_given_back_is_found_again(before, slots, duration):
    matrix = FreeMatrix(WORKERS, CAPACITY, (), 0)
    group, line = matrix.group(WORKERS), Timeline(CAPACITY)
    for placement, start, seconds in before:
        matrix.add(placement, start, start + seconds)
        line.add(placement, start, start + seconds)
    matrix.earliest(group, slots, duration)
    for placement, start, seconds in before:
        back = {worker: {kind: -n for kind, n in amounts.items()} for worker, amounts in placement.items()}
        matrix.add(back, start, start + seconds)
        line.add(back, start, start + seconds)
        result = matrix.earliest(group, slots, duration)
        assert (result and result[0]) == (expected[0] if (expected := earliest(line, slots, duration)) else None)


def test_a_diagram_grows_beyond_the_moments_it_was_drawn_with():
    matrix = FreeMatrix(("a",), {"a": {"core": 1}}, (), 0.0)
    group = matrix.group(("a",))
    for k in range(20 * BOUNDS):
        start, _ = matrix.earliest(group, Slots((("core", 1),), 1), 1.0 + k % 3)
        matrix.add({"a": {"core": 1}}, start, start + 1.0 + k % 3)
    assert matrix.earliest(group, Slots((("core", 1),), 1), 5.0)[0] == sum(1.0 + k % 3 for k in range(20 * BOUNDS))


# ── the policy ──

DEEP = [
    {"discipline": "conservative"},
    {"discipline": "tuned", "max_reservation": 30, "reserve": "all"},
    {"discipline": "conservative", "load_adjustments": {"np_load_avg": 1.0}},
    {"discipline": "easy"},
]


@pytest.fixture
def by_profiles(monkeypatch):
    """Plan without arrays and with every search: the plain way that the same run takes for its first few jobs."""

    def plan(view):
        with monkeypatch.context() as patch:
            patch.setattr(Assigner, "_arrays", lambda *_: False)
            patch.setattr(Refusals, "cover", lambda *_: False)
            return Priority().plan(view)

    return plan


@settings(max_examples=examples(150))
@given(views(number=30), st.sampled_from(DEEP), st.booleans(), st.booleans())
def test_plans_with_arrays_are_those_with_profiles(view, deep, limits, quiet):
    with pytest.MonkeyPatch.context() as patch:
        pes = PES if limits else {name: {**pe, "slots": 0} for name, pe in PES.items()}
        request = replace(view, settings={**view.settings, "max_reservation": 0, "search": "gaps"}, quiet=quiet)
        request = replace(request, settings={**request.settings, "parallel_environments": pes, **deep})
        patch.setattr(assign, "MANY_WORKERS", 1)
        result = Priority().plan(request)
        patch.setattr(Assigner, "_arrays", lambda *_: False)
        patch.setattr(Refusals, "cover", lambda *_: False)
        assert result == Priority().plan(request)


def deep_view(number, **more):
    """A full cluster of mixed workers, and jobs all different."""
    workers = {f"n{k:02}": {"core": 2 + k % 3, "gpu": k % 2} for k in range(20)}
    runs = [
        run_view(Job(f"r{k}", 0, 1, 5, 20.0 + 7 * k), {name: {"core": amounts["core"]}}, NOW - 1)
        for k, (name, amounts) in enumerate(workers.items())
    ]
    rules = ["", "fill", "round", "one", "pairs"]
    jobs = [
        Job(
            f"j{k:04}",
            NOW - 1,
            1 + 3 * k % 8 if rules[k % 5] != "one" else 1 + k % 3,
            5,
            10.0 + 37 * k % 101,
            most=0 if k % 4 else 2 + 3 * k % 8,
            attributes={"pe": rules[k % 5]} if rules[k % 5] else {},
            amounts={"core": 1, "gpu": 1} if k % 7 == 3 else {"core": 1 + k % 2},
            apart=k % 6 == 5 and rules[k % 5] != "one",
        )
        for k in range(number)
    ]
    pes = {name: {**pe, "slots": 0} for name, pe in PES.items()}
    given_ = {"discipline": "conservative", "parallel_environments": pes, **more}
    return make_view(NOW, workers, map(job_view, jobs), runs, given_)


@pytest.mark.parametrize("discipline", ["conservative", "easy", "fcfs"])
def test_a_deep_plan_is_the_one_of_the_plain_way(by_profiles, discipline):
    view = deep_view(150, discipline=discipline)
    assert Priority().plan(view) == by_profiles(view)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=12))
def test_refused_is_what_asks_for_as_many_slots_for_as_long_as_something_refused(asked):
    refusals, refused = Refusals(), list[tuple[int, int]]()
    for count, duration in asked:
        covered = any(many <= count and long <= duration for many, long in refused)
        assert refusals.cover(count, duration) is covered
        if not covered:
            refusals.add(count, duration)
            refused.append((count, duration))


def test_jobs_beyond_the_plan_depth_wait_behind_and_start_where_they_fit():
    view = deep_view(60, plan_depth=10)
    plan = Priority().plan(view)
    said = {wait.job: wait for wait in plan.waits}
    assert sum(wait.reason == "reserved" for wait in said.values()) == 10
    behind = [wait for wait in said.values() if wait.reason == "behind"]
    assert behind
    assert all(wait.facts["plan_depth"] == 10 and "10 jobs ahead have planned starts" in wait.text for wait in behind)
    workers = {"n": {"core": 4}}
    waiting = [Job(f"w{k}", NOW, 4, 5, 50.0) for k in range(5)] + [Job("short", NOW, 1, 5, 5.0)]
    runs = [run_view(Job("r", 0, 3, 5, 60.0), {"n": {"core": 3}}, NOW)]
    shallow = make_view(NOW, workers, map(job_view, waiting), runs, {"discipline": "conservative", "plan_depth": 2})
    assert [order.task for order in Priority().plan(shallow).orders if hasattr(order, "task")] == ["short"]
