"""What always holds of the priority policy, by number of the reference's list of invariants.

1 to 3 are in test_timeline.py, 14 and 15 in test_priority.py, more of 4 and 6 in test_priority_advance.py, of 4, 16
and 25 in test_priority_mixed.py; 8 is also held to recorded schedules. 11 is false in general, and not asserted.
"""

from collections import Counter
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.scheduling import Priority, ReservationView, Reserve, Start, check_plan
from rainbow.scheduling.priority.allocation import admissible, allocate
from rainbow.scheduling.priority.assign import Assigner
from rainbow.scheduling.priority.dispatch import Dispatch
from rainbow.scheduling.priority.lines import Lines
from rainbow.scheduling.priority.order import ordered, prioritise
from rainbow.scheduling.priority.policy import dispatch, own_view
from rainbow.scheduling.priority.settings import check_settings
from rainbow.scheduling.priority.slot_range import WAYS, largest
from rainbow.scheduling.priority.verify import can_ever, can_now
from rainbow.scheduling.priority.work import Names, environments, items
from rainbow.scheduling.profile import Profile
from tests.dispatching import Job, job_view, make_view, replay, run_view

NOW = 100.0
PES = {"fill": {}, "round": {"rule": "round_robin"}, "one": {"rule": "pe_slots", "slots": 5}, "pairs": {"rule": 2}}
QUOTAS = [{"name": "users", "limits": [{"users": "{*}", "to": {"slots": 4}}]}]
DISCIPLINES = [
    {"discipline": "fcfs"},
    {"discipline": "easy"},
    {"discipline": "conservative"},
    {"discipline": "tuned"},
    {"discipline": "tuned", "max_reservation": 2},
    {"discipline": "tuned", "max_reservation": 3, "search": "backwards"},
]


@st.composite
def jobs(draw, number=8, pes=True):
    made = []
    for k in range(draw(st.integers(1, number))):
        pe = draw(st.sampled_from(["", *PES])) if pes else ""
        least = draw(st.integers(1, 4))
        attributes = {"reserve": draw(st.booleans()), **({"pe": pe} if pe else {})}
        made.append(
            Job(
                f"j{k}",
                NOW - draw(st.integers(0, 3)),
                least,
                5,
                float(draw(st.integers(1, 12))),
                draw(st.integers(-2, 2)),
                least + draw(st.integers(0, 3)) * bool(pe),
                draw(st.sampled_from("ab")),
                attributes,
                draw(st.sampled_from([{"core": 1}, {"core": 1}, {"core": 2}, {"core": 1, "gpu": 1}])),
            )
        )
    return made


@st.composite
def views(draw, number=8, extra=None):
    """A cluster with something running, started by the policy itself a little earlier."""
    workers = {f"n{k}": {"core": draw(st.integers(1, 4)), "gpu": k % 2} for k in range(draw(st.integers(1, 4)))}
    given_ = {**draw(st.sampled_from(DISCIPLINES)), "parallel_environments": PES, **(extra or {})}
    early = [replace(job, id=f"r{job.id}", submit=NOW - 5) for job in draw(jobs(5))]
    before = make_view(NOW - draw(st.integers(1, 4)), workers, map(job_view, early), (), given_)
    plan = Priority().plan(before)
    by_id = {job.id: job for job in early}
    runs = [run_view(by_id[o.task], o.placement, before.now) for o in plan.orders if isinstance(o, Start)]
    waiting = sorted(draw(jobs(number)), key=lambda job: job.submit)
    return make_view(NOW, workers, map(job_view, waiting), runs, given_, memory=plan.memory)


def starts(plan):
    return [order.task for order in plan.orders if isinstance(order, Start)]


def promised(plan):
    return {order.job: order.at for order in plan.orders if isinstance(order, Reserve)}


def durations(view):
    return {gang.job: gang.expected for job in view.jobs for gang in job.gangs}


def bookings(view, plan):
    """Return (placement, start, end) of everything that runs, starts or is promised."""
    for run in view.runs:
        yield run.placement, run.started, run.until if run.until > view.now else view.now + 15
    length = durations(view)
    for order in plan.orders:
        if isinstance(order, Start):
            yield order.placement, view.now, view.now + length[order.task]
        elif isinstance(order, Reserve):
            yield order.placement, order.at, order.until


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
    kept = ReservationView("ar", {name: {"core": cores}}, NOW + begin, NOW + begin + length)
    inside = job_view(Job("in", NOW, 1, 5, 5.0, attributes={"reservation": "ar", "reserve": True}))
    plan = Priority().plan(replace(view, jobs=[*view.jobs, inside], reservations=(kept,)))
    mine, others = Profile(), Profile()
    length_of = {**durations(view), "in": 5.0}
    for order in plan.orders:
        job, start = (order.task, NOW) if isinstance(order, Start) else (order.job, order.at)
        end = start + length_of[job]
        (mine if job == "in" else others).add(start, end, order.placement.get(name, {}).get("core", 0))
        if job == "in":
            assert kept.start <= start <= end <= kept.end
    room = next(w.capacity["core"] for w in view.workers if w.id == name)
    assert others.most(max(NOW, kept.start), kept.end) <= room - cores
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
        left = [run for run in view.runs if (run.until if run.until > NOW else NOW + 15) > time]
        freed = make_view(
            time, {w.id: w.capacity for w in view.workers}, alone.jobs, left, view.settings, memory=view.memory
        )
        if starts(Priority().plan(freed)):
            assert promised(plan)[first] == time
            return
    pytest.fail("promised a time at which it does not fit")


@given(views())
def test_10_what_is_backfilled_ends_before_a_promise_or_leaves_it_alone(view):
    plan, length = Priority().plan(view), durations(view)
    capacity = {worker.id: worker.capacity for worker in view.workers}
    for k, kept in enumerate(plan.orders):
        if not isinstance(kept, Reserve):
            continue
        later = [
            order for order in plan.orders[k:] if isinstance(order, Start) and NOW + length[order.task] > kept.at
        ]
        use = {}
        others = [(run.placement, run.started, max(run.until, NOW + 15 * (run.until <= NOW))) for run in view.runs]
        others += [(order.placement, NOW, NOW + length[order.task]) for order in later]
        for placement, start, end in [*others, (kept.placement, kept.at, kept.until)]:
            for worker, amounts in placement.items():
                for kind, amount in amounts.items():
                    use.setdefault((worker, kind), Profile()).add(start, end, amount)
        for (worker, kind), line in use.items():
            assert line.most(kept.at, kept.until) <= capacity[worker].get(kind, 0)


@given(views())
def test_12_without_reservations_the_run_is_first_fit_in_order(view):
    plain = {**view.settings, "discipline": "tuned", "max_reservation": 0}
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
    kept = Priority().plan(view)
    alone = Priority().plan(replace(view, settings={**view.settings, "categories": False}))
    assert (kept.orders, kept.figures) == (alone.orders, alone.figures)
    assert [(w.job, w.reason, w.text) for w in kept.waits] == [(w.job, w.reason, w.text) for w in alone.waits]


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
    kept = (ReservationView("ar", {}, 0.0, 1.0),)
    view = make_view(NOW, {"n": {"core": 4}}, [job_view(job)], (), given_, reservations=kept)
    return Names(True).key(items(view, given_)[0])


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
    after = Lines(
        replace(view, runs=[*view.runs, *begun], memory=plan.memory["priority"]),
        given_,
        environments(given_).values(),
    )
    assert held_now(after.timeline) == held_now(run.lines.timeline)
    assert held_now(Lines(replace(view, runs=(), memory=plan.memory["priority"]), given_).timeline) == {}


def held_now(timeline):
    """Return what limits that are no resources have in use at this moment."""
    levels = {line: use.level(NOW) for line, use in timeline.entries() if line[0].startswith(("quota", "pe"))}
    return {line: level for line, level in levels.items() if level}


# ── 20: allocation rules ──

offers = st.lists(st.integers(0, 5), min_size=1, max_size=6)
rules = st.sampled_from(["fill_up", "round_robin", "pe_slots", 1, 2, 3])


def allocated(rule, count, room):
    left, got = dict(enumerate(room)), Counter()

    def take(worker, low, high):
        n = min(high, left[worker])
        if n < low:
            return 0
        left[worker] -= n
        got[worker] += n
        return n

    return got if allocate(rule, count, list(left), take) else None


@given(rules, st.integers(1, 12), offers)
def test_20_allocation_has_the_shape_of_its_rule(rule, count, room):
    got = allocated(rule, count, room)
    possible = {
        "fill_up": sum(room) >= count,
        "round_robin": sum(room) >= count,
        "pe_slots": max(room) >= count,
    }.get(rule, not isinstance(rule, str) and count % rule == 0 and sum(n >= rule for n in room) * rule >= count)
    assert (got is not None) == possible
    if got is None:
        return
    assert sum(got.values()) == count
    assert all(got[w] <= room[w] for w in got)
    if rule == "pe_slots":
        assert len(+got) == 1
    elif rule == "fill_up":
        used = [w for w in sorted(got) if got[w]]
        assert all(got[w] == room[w] for w in used[:-1])
    elif rule == "round_robin":
        most = max(got.values())
        assert all(got[w] >= most - 1 or got[w] == room[w] for w in range(len(room)))
    else:
        assert set((+got).values()) == {rule}


@given(rules, st.sets(st.integers(1, 12), min_size=1), offers, st.sampled_from(WAYS))
def test_20_every_way_finds_the_largest_count_of_a_range(rule, counts, room, way):
    possible = admissible(rule, sorted(counts))
    best = max((n for n in counts if allocated(rule, n, room)), default=None)
    assert largest(possible, lambda n: n if allocated(rule, n, room) else None, way) == best


@given(views(), st.sampled_from(WAYS))
def test_20_a_start_has_as_many_slots_as_one_job_could_have(view, way):
    wide = {**view.settings, "slot_search": way, "discipline": "tuned", "max_reservation": 0}
    for job in view.jobs:
        plan = Priority().plan(replace(view, jobs=[job], settings=wide))
        group = job.gangs[0].slots[0]
        fitting = [
            n
            for n in range(group.least, group.most + 1)
            if starts(Priority().plan(replace(view, jobs=[exactly(job, n)], settings=wide)))
        ]
        got = [sum(held["core"] for held in o.placement.values()) // group.amounts["core"] for o in plan.orders]
        assert got == ([max(fitting)] if fitting else [])


def exactly(job, count):
    gang = job.gangs[0]
    return replace(job, gangs=(replace(gang, slots=(replace(gang.slots[0], least=count, most=count),)),))


@pytest.mark.parametrize(("per", "expected"), [("slot", [2, 2]), ("worker", [1, 1]), ("job", [0, 1])])
def test_21_consumables_are_taken_by_slot_by_worker_or_once(per, expected):
    job = Job("j", 0.0, 4, 5, 5.0, amounts={"core": 1, "gpu": 1})
    given_ = {"consumables": {"gpu": {"per": per}}}
    plan = Priority().plan(
        make_view(NOW, {"a": {"core": 2, "gpu": 2}, "b": {"core": 2, "gpu": 2}}, [job_view(job)], (), given_)
    )
    placement = plan.orders[0].placement
    assert sorted(held.get("gpu", 0) for held in placement.values()) == expected
    assert {held["core"] for held in placement.values()} == {2}


def test_21_one_slot_needs_what_is_taken_once_too():
    given_ = {"consumables": {"gpu": {"per": "job"}}}
    jobs = [job_view(Job(f"j{k}", 0.0, 1, 5, 5.0, amounts={"core": 1, "gpu": 1})) for k in range(3)]
    assert starts(Priority().plan(make_view(NOW, {"a": {"core": 9, "gpu": 2}}, jobs, (), given_))) == ["j0", "j1"]


# ── 19: what a quota's filter names ──


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.integers(0, 5))
def test_19_braces_bind_each_by_name_lists_together_and_not_never_itself(users, limit):
    jobs_ = [job_view(Job(f"j{k:02}", NOW - 1, 1, 5, 9.0, requestor=user)) for k, user in enumerate(users)]
    asked = Counter(users)

    def started(scope):
        quota = {"name": "q", "limits": [{"users": scope, "to": {"slots": limit}}]}
        view = make_view(NOW, {"n": {"core": 99}}, jobs_, (), {"quotas": [quota]})
        owner = {job.id: job.requestor for job in jobs_}
        return Counter(owner[task] for task in starts(Priority().plan(view)))

    each, together, without = started("{a,b}"), started("a,b"), started("!a")
    assert all(each[user] == min(limit, asked[user]) for user in "ab")
    assert together["a"] + together["b"] == min(limit, asked["a"] + asked["b"])
    assert without["b"] + without["c"] == min(limit, asked["b"] + asked["c"])
    assert each["c"] == together["c"] == asked["c"]
    assert without["a"] == asked["a"]


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
    left = [job for name, job in by_id.items() if name not in starts(plan)]
    again = Priority().plan(make_view(NOW, pool, left, runs, view.settings, memory=plan.memory))
    assert starts(again) == []


@given(views())
def test_24_and_25_work_is_bounded_and_every_gang_has_one_verdict(view):
    given_ = check_settings(view.settings)
    waiting = items(view, given_)
    prioritise(waiting, NOW, given_, [0.0] * len(waiting))
    lines = Lines(view, given_, {e.name: e for item in waiting for e in item.environments}.values())
    assigner = Assigner(lines, given_, {})
    outcomes = Dispatch(view, given_, lines, assigner).run(ordered(waiting))
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    assert sorted(o.item.place for o in outcomes) == sorted(item.place for item in waiting)
    # a category is refused at most once for now and once for ever
    assert assigner.searches <= 2 * len({i.category for i in waiting}) + verdicts["started"] + verdicts["reserved"]
    plan = Priority().plan(view)
    assert {wait.job for wait in plan.waits} == {job.id for job in view.jobs} - set(starts(plan))
