"""What always holds of the priority policy: which slots a job gets (20) and what they take (21)."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.scheduling import Priority, Start
from rainbow.scheduling.priority.model import WAYS
from rainbow.scheduling.priority.placement.slot_allocation import admissible, allocate, largest
from tests.support.policies.dispatching import Job, job_view, make_view
from tests.support.policies.priority_views import NOW, starts, views

offers = st.lists(st.integers(0, 5), min_size=1, max_size=6)
rules = st.sampled_from(["fill_up", "round_robin", "pe_slots", 1, 2, 3])


def allocated(rule, count, room):
    remaining, got = dict(enumerate(room)), Counter()

    def take(worker, low, high):
        n = min(high, remaining[worker])
        if n < low:
            return 0
        remaining[worker] -= n
        got[worker] += n
        return n

    return got if allocate(rule, count, list(remaining), take) else None


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
        begun = [o.placement for o in plan.orders if isinstance(o, Start)]
        got = [sum(held["core"] for held in placement.values()) // group.amounts["core"] for placement in begun]
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
