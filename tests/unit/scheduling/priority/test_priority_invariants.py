"""What always holds of the priority policy, by number of the reference's list of invariants.

1 to 3 are in test_timeline.py, 13 and 16 to 19 in test_priority_invariants_order.py, 14 and 15 in
test_priority_order.py, 20 and 21 in test_priority_invariants_slots.py, more of 4 and 6 in test_priority_advance.py,
of 4, 16 and 25 in test_priority_mixed.py; 8 is also held to recorded schedules. 11 is false in general, and not
asserted.
"""

from collections import Counter
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.scheduling import Priority, ReservationView, Reserve, Start, check_plan
from rainbow.scheduling.feasibility import can_ever, can_now
from rainbow.scheduling.priority.config.settings import check_settings
from rainbow.scheduling.priority.dispatch import Dispatch
from rainbow.scheduling.priority.items import items
from rainbow.scheduling.priority.job_order import ordered, prioritise
from rainbow.scheduling.priority.placement.assign import Assigner
from rainbow.scheduling.priority.placement.lines import ResourceLines
from rainbow.scheduling.priority.queue import Row
from rainbow.scheduling.resource_timeline import Profile
from tests.support.policies.dispatching import Job, job_view, make_view, replay, run_view
from tests.support.policies.priority_views import NOW, PES, QUOTAS, bookings, durations, promised, starts, views


@given(views())
def test_4_no_line_is_ever_used_beyond_its_capacity(view):
    plan = Priority().plan(view)
    check_plan(view, plan)
    use = {}
    for placement, start, end in bookings(view, plan):
        for worker, amounts in placement.items():
            for kind, amount in amounts.items():
                use.setdefault((worker, kind), Profile()).add(start, end, amount)
    capacity = {worker.id: worker.capacity for worker in view.workers}
    for (worker, kind), line in use.items():
        assert line.most(view.now, inf) <= capacity[worker].get(kind, 0)


@given(views(extra={"quotas": QUOTAS}))
def test_4_and_18_slots_of_a_user_and_of_an_environment_stay_within_their_limits(view):
    plan = Priority().plan(view)
    slots, one = Counter(), 0
    owner = {run.task: run.requestor for run in view.runs} | {job.id: job.requestor for job in view.jobs}
    for task, where in plan.memory["priority"]["running"].items():
        count = sum(n for _, _, n in where["spots"])
        slots[owner[task]] += count
        one += count * (where["pe"] == "one")
    assert all(count <= 4 for count in slots.values())
    assert one <= 5


@given(views(extra={"queues": {"q": {"calendar": {"week": "Mon-Sun=0:2-0:3=off Mon-Sun=12:0-13:0=suspended"}}}}))
def test_5_no_booking_overlaps_closed_hours(view):
    plan = Priority().plan(view)
    closed = [(120.0, 180.0), (43_200.0, 46_800.0)]
    for _, start, end in list(bookings(view, plan))[len(view.runs) :]:
        assert all(end <= begin or start >= until for begin, until in closed)


def test_5_without_a_limit_only_where_the_calendar_never_closes():
    job = job_view(Job("j", 0.0, 1, 5, 0.0))
    weekly = {"queues": {"q": {"calendar": {"week": "Sat=off"}}}}
    once = {"queues": {"q": {"calendar": {"year": "1.1.1969-2.1.1969=off"}}}}
    assert starts(Priority().plan(make_view(NOW, {"n": {"core": 1}}, [job], (), weekly))) == []
    assert starts(Priority().plan(make_view(NOW, {"n": {"core": 1}}, [job], (), once))) == ["j"]


@given(views(), st.integers(1, 3), st.integers(-50, 30), st.integers(5, 60), st.data())
def test_6_an_advance_reservation_is_left_to_its_jobs_and_holds_them(view, cores, begin, length, data):
    name = data.draw(st.sampled_from([w.id for w in view.workers if w.capacity["core"] >= cores] or ["none"]))
    if name == "none" or any(name in run.placement for run in view.runs):
        return
    stored = ReservationView("ar", {name: {"core": cores}}, NOW + begin, NOW + begin + length)
    inside = job_view(Job("in", NOW, 1, 5, 5.0, attributes={"reservation": "ar", "reserve": True}))
    plan = Priority().plan(replace(view, jobs=[*view.jobs, inside], reservations=(stored,)))
    mine, others = Profile(), Profile()
    length_of = {**durations(view), "in": 5.0}
    for order in plan.orders:
        job, start = (order.task, NOW) if isinstance(order, Start) else (order.job, order.at)
        end = start + length_of[job]
        (mine if job == "in" else others).add(start, end, order.placement.get(name, {}).get("core", 0))
        if job == "in":
            assert stored.start <= start <= end <= stored.end
    room = next(w.capacity["core"] for w in view.workers if w.id == name)
    assert others.most(max(NOW, stored.start), stored.end) <= room - cores
    assert mine.most(0, inf) <= cores


@given(views())
def test_7_lower_jobs_change_nothing_for_higher_ones(view):
    whole = Priority().plan(view)
    order = [entry["job"] for entry in whole.figures["priorities"]]
    for k in range(1, len(order)):
        upper = replace(view, jobs=[job for job in view.jobs if job.id in order[:k]])
        plan = Priority().plan(upper)
        assert starts(plan) == [task for task in starts(whole) if task in order[:k]]
        assert promised(plan) == {job: at for job, at in promised(whole).items() if job in order[:k]}


arrivals = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4), st.integers(1, 20)), min_size=1, max_size=12)


@settings(max_examples=50)
@given(arrivals, st.booleans())
def test_8_with_exact_durations_nobody_starts_later_than_first_promised(rows, nodes):
    workers = {f"n{k}": {"core": 1} for k in range(4)} if nodes else {"pool": {"core": 4}}
    made = [Job(f"{k:02}", at, slots, run, run) for k, (at, slots, run) in enumerate(rows)]
    done = replay(Priority(), workers, made, {"discipline": "conservative"})
    assert len(done.start) == len(made)
    assert all(done.start[job] <= at for job, at in done.promised.items())


@given(views())
def test_9_the_first_job_is_promised_the_earliest_time_there_is(view):
    """By plain search over every end of what runs."""
    plan = Priority().plan(replace(view, settings={"discipline": "easy", "parallel_environments": PES}))
    first = plan.figures["priorities"][0]["job"]
    if first not in promised(plan):
        return
    alone = replace(view, jobs=[job for job in view.jobs if job.id == first])
    for time in sorted({run.until if run.until > NOW else NOW + 15 for run in view.runs}):
        remaining = [run for run in view.runs if (run.until if run.until > NOW else NOW + 15) > time]
        freed = make_view(
            time, {w.id: w.capacity for w in view.workers}, alone.jobs, remaining, view.settings, memory=view.memory
        )
        if starts(Priority().plan(freed)):
            assert promised(plan)[first] == time
            return
    pytest.fail("promised a time at which it does not fit")


@given(views())
def test_10_what_is_backfilled_ends_before_a_promise_or_leaves_it_alone(view):
    plan, length = Priority().plan(view), durations(view)
    capacity = {worker.id: worker.capacity for worker in view.workers}
    for k, stored in enumerate(plan.orders):
        if not isinstance(stored, Reserve):
            continue
        later = [
            order for order in plan.orders[k:] if isinstance(order, Start) and NOW + length[order.task] > stored.at
        ]
        use = {}
        others = [(run.placement, run.started, max(run.until, NOW + 15 * (run.until <= NOW))) for run in view.runs]
        others += [(order.placement, NOW, NOW + length[order.task]) for order in later]
        for placement, start, end in [*others, (stored.placement, stored.at, stored.until)]:
            for worker, amounts in placement.items():
                for kind, amount in amounts.items():
                    use.setdefault((worker, kind), Profile()).add(start, end, amount)
        for (worker, kind), line in use.items():
            assert line.most(stored.at, stored.until) <= capacity[worker].get(kind, 0)


@given(views())
def test_12_without_reservations_the_run_is_first_fit_in_order(view):
    """As in the original: here the first that does not start has a promise in any case."""
    plain = {**view.settings, "discipline": "tuned", "max_reservation": 0, "compat": "grid_engine"}
    plan = Priority().plan(replace(view, settings=plain))
    runs, taken, memory = list(view.runs), [], view.memory
    workers = {w.id: w.capacity for w in view.workers}
    length = {job.id: job for job in view.jobs}
    for name in [entry["job"] for entry in plan.figures["priorities"]]:
        one = Priority().plan(make_view(NOW, workers, [length[name]], runs, plain, memory=memory))
        memory = one.memory
        for order in one.orders:
            taken.append(name)
            runs.append(
                run_view(
                    Job(name, 0, 1, 5, durations(view)[name], attributes=length[name].attributes),
                    order.placement,
                    NOW,
                )
            )
    assert starts(plan) == taken


# ── 22, 23: reasons ──


@given(views())
def test_22_can_now_is_what_a_run_with_only_this_job_does_and_needs_can_ever(view):
    for job in view.jobs:
        alone = starts(Priority().plan(replace(view, jobs=[job]))) == [job.id]
        assert can_now(Priority(), view, job.id).can == alone
        if alone:
            assert can_ever(Priority(), view, job.id).can
    for task in starts(Priority().plan(view)):
        assert can_ever(Priority(), view, task).can


@given(views())
def test_23_without_what_the_reasons_name_the_job_fits(view):
    plan = Priority().plan(view)
    reasons = {wait.job: wait for wait in plan.waits}
    for job in view.jobs:
        wait = reasons.get(job.id)
        if wait is None or wait.reason not in ("busy", "reserved", "too-few"):
            continue
        assert sum(wait.facts["reasons"].values()) == len(view.workers)
        if can_ever(Priority(), view, job.id).can:
            alone = replace(
                view, jobs=[job], runs=(), memory={}, workers=[replace(w, free=w.capacity) for w in view.workers]
            )
            assert starts(Priority().plan(alone)) == [job.id]  # what runs and what is promised was all there was


# ── 24, 25: a run as a whole ──


@given(views())
def test_24_a_run_right_after_a_run_starts_nothing_more(view):
    if view.settings["discipline"] != "conservative":  # with fewer promises than jobs, whose turn it is may pass on
        return
    pool = {"pool": {"core": sum(w.capacity["core"] for w in view.workers), "gpu": 9}}
    merged = [
        replace(
            run, placement={"pool": {k: sum(h.get(k, 0) for h in run.placement.values()) for k in ("core", "gpu")}}
        )
        for run in view.runs
    ]
    first = make_view(NOW, pool, [j for j in view.jobs if "pe" not in j.attributes], merged, view.settings)
    plan = Priority().plan(first)
    assert plan == Priority().plan(first)
    by_id = {job.id: job for job in first.jobs}
    runs = [
        *merged,
        *(
            run_view(Job(o.task, 0, 1, 5, durations(first)[o.task]), o.placement, NOW)
            for o in plan.orders
            if isinstance(o, Start)
        ),
    ]
    remaining = [job for name, job in by_id.items() if name not in starts(plan)]
    again = Priority().plan(make_view(NOW, pool, remaining, runs, view.settings, memory=plan.memory))
    assert starts(again) == []


@given(views())
def test_24_and_25_work_is_bounded_and_every_gang_has_one_verdict(view):
    given_ = check_settings(view.settings)
    waiting = items(view, given_)
    prioritise(waiting, NOW, given_, [0.0] * len(waiting))
    lines = ResourceLines(view, given_, {e.name: e for item in waiting for e in item.environments}.values())
    assigner = Assigner(lines, given_, {})
    outcomes = Dispatch(view, given_, lines, assigner).run(Row(ordered(waiting)))
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    assert sorted(o.item.place for o in outcomes) == sorted(item.place for item in waiting)
    # a category is refused at most once for now and once for ever
    assert assigner.searches <= 2 * len({i.category for i in waiting}) + verdicts["started"] + verdicts["reserved"]
    plan = Priority().plan(view)
    assert {wait.job for wait in plan.waits} == {job.id for job in view.jobs} - set(starts(plan))


@settings(max_examples=60)
@given(views(extra={"queues": {"q": {}}, "quotas": QUOTAS}) | views())
def test_a_quiet_plan_has_the_same_orders_and_memory(view):
    plan, quiet = Priority().plan(view), Priority().plan(replace(view, quiet=True))
    assert (quiet.orders, quiet.memory) == (plan.orders, plan.memory)
    assert not quiet.waits
    assert not quiet.figures
