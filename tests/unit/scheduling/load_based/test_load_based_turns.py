"""I10: fairness between the jobs of a class, and the order inside a job, over whole plans."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.scheduling.interface import cluster_index_of
from rainbow.scheduling.load_based.class_queues import Queue
from tests.support.policies.views import job, plan, running, started, view

queues = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12), st.integers(0, 2)), min_size=1, max_size=6)


@settings(deadline=None)
@given(queues, st.integers(0, 30))
def test_i10_waiting_jobs_differ_by_one_unless_they_did_before(rows, idle):
    held = sum(run for run, _, _ in rows)
    runs = [running(f"j{k}-{900 + n}", 0) for k, (run, _, _) in enumerate(rows) for n in range(run)]
    runs = [running(run.task, worker) for worker, run in enumerate(runs)]
    jobs = [
        job(f"j{k}", *[1] * wait, running=run, submitted=float(k), priority=priority)
        for k, (run, wait, priority) in enumerate(rows)
    ]
    taken = started(plan(view([j for j in jobs if j.gangs], workers=held + idle, runs=runs)))
    assert len(taken) == min(idle, sum(wait for _, wait, _ in rows))
    mine = {k: [task for task in taken if task.startswith(f"j{k}-")] for k in range(len(rows))}
    for k, (run, wait, _) in enumerate(rows):
        assert mine[k] == [f"j{k}-{n}" for n in range(len(mine[k]))]
        for other, (other_run, other_wait, _) in enumerate(rows):
            if mine[k] and len(mine[other]) < other_wait:
                assert run + len(mine[k]) <= other_run + len(mine[other]) + 1
        assert len(mine[k]) <= wait


def test_of_jobs_that_run_equally_many_the_one_of_higher_priority_goes_first():
    jobs = [job("old", 1, 1), job("new", 1, 1, submitted=1.0, priority=2), job("few", 1, submitted=2.0)]
    assert started(plan(view(jobs, workers=4))) == ["new-0", "old-0", "few-0", "new-1"]


@pytest.mark.parametrize(
    ("rounding", "order"),
    [("exact", ["a-0", "a-1", "b-0", "a-2"]), ("classic", ["a-0", "b-0", "a-1", "b-1"])],
)
def test_of_equals_the_earlier_goes_first_and_with_classic_the_one_that_came_to_that_number_first(rounding, order):
    jobs = [job("a", 1, 1, 1), job("b", 1, 1, 1, running=1, submitted=1.0)]
    of = view(jobs, workers=5, runs=[running("b-9", 0)], settings={"rounding": rounding})
    assert started(plan(of)) == order


def test_the_job_with_the_fewest_running_tasks_is_next():
    jobs = [job("many", *[1] * 9, running=2), job("few", 1, 1, 1, submitted=1.0)]
    runs = [running(f"many-9{n}", n) for n in range(2)]
    names = [task.split("-")[0] for task in started(plan(view(jobs, workers=8, runs=runs)))]
    assert names == ["few", "few", "many", "few", "many", "many"]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(1, 3)), max_size=8),
    st.lists(st.booleans(), max_size=8),
)
def test_jobs_of_several_requestors_come_in_one_order_of_turns(rows, moves):
    jobs = [job(f"j{k}", *[1] * gangs, requestor=who, running=run) for k, (who, run, gangs) in enumerate(rows)]
    jobs = [replace(one, gangs=tuple(replace(gang, expected=9.0) for gang in one.gangs)) for one in jobs]
    census = cluster_index_of(view(jobs))
    queue = Queue(census, "abc")
    begun = Counter()
    for starts in moves:
        if (head := queue.head()) is not None and starts:
            queue.advance()
            begun[head[0].id] += 1
        elif head is not None:
            queue.give_up(None)
    remaining = [one for one in jobs if begun[one.id] < len(one.gangs)]
    assert list(queue.in_turn_within(8.9, 100)) == []
    assert list(queue.in_turn_within(9.0, 100)) == sorted(remaining, key=lambda one: census.turn(one, begun[one.id]))
