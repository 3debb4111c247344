"""Counting and planning of the load-based policy."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rainbow.errors import PlanError, PolicyError
from rainbow.graph import read_cluster
from rainbow.matching import Take
from rainbow.scheduling import LoadBased, RunView, Start, check_plan
from rainbow.scheduling.cluster_index import Ranked
from rainbow.scheduling.interface import cluster_index_of
from rainbow.scheduling.load_based.entitlements import ClassCount, starts, targets
from rainbow.scheduling.load_based.whole_workers import IdleWorkers
from rainbow.simulation import Arrival
from rainbow.simulation.world import Compiled, Requests
from rainbow.state_machine import WorkerState
from tests.conftest import grid
from tests.support.policies.views import job, plan, reasons, started, view

EXAMPLES = yaml.load(
    (Path(__file__).parents[3] / "cases" / "load_based" / "worked-examples.yaml").read_text(), yaml.CSafeLoader
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e["name"])
def test_worked_example_ends_at_its_starts(example):
    classes = [ClassCount(*row[:4]) for row in example["classes"]]
    assert starts(example["idle"], example["workers"], classes) == {row[0]: row[4] for row in example["classes"]}


counts = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=6
).filter(lambda rows: any(percent for percent, _, _ in rows))


def classes_of(rows):
    return [
        ClassCount(f"c{k}", float(percent), running, waiting) for k, (percent, running, waiting) in enumerate(rows)
    ]


@given(counts, st.integers(0, 60))
def test_starts_use_every_idle_worker_somebody_waits_for(rows, idle):
    classes = classes_of(rows)
    workers = idle + sum(c.running for c in classes)
    granted = starts(idle, workers, classes)
    assert sum(granted.values()) == min(idle, sum(c.waiting for c in classes))
    assert all(0 <= granted[c.name] <= c.waiting for c in classes)


@given(counts, st.integers(0, 60))
def test_entitlement_comes_before_loans(rows, idle):
    classes = classes_of(rows)
    workers = idle + sum(c.running for c in classes)
    target, granted = targets(workers, {c.name: c.percent for c in classes}), starts(idle, workers, classes)
    starving = any(c.running + granted[c.name] < target[c.name] and granted[c.name] < c.waiting for c in classes)
    lent = any(granted[c.name] and c.running + granted[c.name] > target[c.name] for c in classes)
    assert not (starving and lent)


@given(counts, st.integers(0, 60))
def test_one_more_idle_worker_lowers_nobody(rows, idle):
    classes = classes_of(rows)
    workers = idle + 1 + sum(c.running for c in classes)
    fewer, more = starts(idle, workers, classes), starts(idle + 1, workers, classes)
    assert all(more[name] >= fewer[name] for name in fewer)


@given(counts, st.integers(0, 60), st.randoms(use_true_random=False))
def test_order_of_classes_is_no_matter(rows, idle, rng):
    classes = classes_of(rows)
    mixed = list(classes)
    rng.shuffle(mixed)
    assert starts(idle, 100, classes) == starts(idle, 100, mixed)


# ── planning ──


def test_plan_takes_turns_between_jobs_of_a_class():
    assert started(plan(view([job("a", 1, 1, 1, 1), job("b", 1, 1, submitted=1.0)]))) == ["a-0", "b-0", "a-1", "b-1"]


def test_gang_larger_than_what_is_idle_waits_and_keeps_it():
    run = RunView("x-0", "x", "user", 0, {"node0": {"core": 1}}, 0.0)
    of = view([job("wide", 4), job("narrow", 1, submitted=1.0)], runs=[run])
    assert started(plan(of)) == []
    assert reasons(of, plan(of)) == {"wide": "workers-busy", "narrow": "kept"}


def test_gang_that_no_ready_worker_can_host_holds_nobody_up():
    of = view([job("impossible", 9), job("narrow", 1, submitted=1.0)])
    assert started(plan(of)) == ["narrow-0"]
    assert reasons(of, plan(of)) == {"impossible": "no-ready-host"}


def test_idle_class_lends_its_workers():
    settings = {
        "classes": {"day": 75, "night": 25},
        "default_class": "day",
        "requestors": [{"match": "n.*", "class": "night"}],
    }
    made = plan(view([job("only", 1, 1, 1, 1, requestor="nina")], settings=settings))
    assert len(started(made)) == 4
    assert made.figures["classes"]["night"]["loaned"] == 3


def test_class_without_percent_runs_on_what_nobody_wants():
    settings = {
        "classes": {"paid": 100, "spare": 0},
        "default_class": "paid",
        "requestors": [{"match": "s", "class": "spare"}],
    }
    both = [job("p", 1, 1, 1), job("s", 1, 1, requestor="s")]
    assert started(plan(view(both, settings=settings))) == ["p-0", "p-1", "p-2", "s-0"]


def test_what_lies_outside_every_worker_is_given_to_one_job_at_a_time():
    of = replace(view([job("a", 1), job("b", 1, submitted=1.0)]), consumables={"licence": 1})

    def place(demand, free):
        return Take((("s", {free[0]: {"core": 1}, "": {"licence": 1}}),), {}) if free else None

    made = plan(replace(of, place=place))
    assert started(made) == ["a-0"]
    assert [wait.job for wait in made.waits] == ["b"]
    with pytest.raises(PlanError):
        check_plan(of, replace(made, orders=(*made.orders, Start("b-0", {"node1": {"core": 1}, "": {"licence": 1}}))))


def test_no_ready_worker_is_said():
    of = view([job("a", 1)], state=WorkerState.NEW)
    assert plan(of).orders == ()
    assert reasons(of, plan(of)) == {"a": "no-worker-ready"}


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"classes": {}}, "/classes"),
        ({"classes": {"a": -1}}, "/classes/a"),
        ({"classes": {"a": 0}, "default_class": "a"}, "/classes"),
        ({"classes": {"a": 1}}, "/default_class"),
        ({"requestors": [{"match": "(", "class": "default"}]}, "/requestors/0/match"),
        ({"requestors": [{"match": "x", "class": "none"}]}, "/requestors/0/class"),
        ({"percents": {}}, "/percents"),
    ],
)
def test_bad_setting_is_refused_by_pointer(settings, pointer):
    with pytest.raises(PolicyError) as fault:
        LoadBased().check(settings)
    assert fault.value.pointer == pointer


class Untouched(tuple):
    """Gangs that may be counted and picked one by one, never walked."""

    def __iter__(self):
        raise AssertionError("a round walked over every waiting task")


def test_round_looks_at_no_task_that_does_not_start():
    jobs = [job(name, *[1] * 50, submitted=float(k)) for k, name in enumerate("abc")]
    lazy = [replace(j, gangs=Untouched(j.gangs), waiting=50) for j in jobs]
    made = LoadBased().plan(view(lazy, workers=4))
    assert started(made) == started(plan(view(jobs, workers=4)))
    assert made.figures["classes"]["default"]["waiting"] == 146


KINDS = ("a", "b", "c")
moves = st.lists(st.tuples(st.booleans(), st.frozensets(st.sampled_from(KINDS)), st.integers(1, 4)), max_size=12)


@given(st.lists(st.sampled_from(KINDS), max_size=9), moves)
def test_idle_workers_of_some_kinds_are_those_not_taken_in_their_natural_order(kinds, moves):
    idle = IdleWorkers(
        {kind: Ranked((k, f"w{k}") for k, of in enumerate(kinds) if of == kind) for kind in set(kinds)}
    )
    remaining = dict.fromkeys(range(len(kinds)))
    taken = []
    for gives, some, count in moves:
        own = [f"w{k}" for k in sorted(remaining) if kinds[k] in some]
        assert idle.first(some, count) == own[:count]
        assert (idle.count(some), list(idle), len(idle)) == (
            len(own),
            [f"w{k}" for k in sorted(remaining)],
            len(remaining),
        )
        if gives and taken:
            idle.give(taken[-1])
            remaining |= {int(name[1:]): None for name in taken.pop()}
        else:
            idle.take(own[:count])
            taken.append(own[:count])
            remaining = {k: None for k in remaining if f"w{k}" not in own[:count]}


def test_matcher_is_asked_as_often_as_tasks_start():
    requests = []
    of = view([job("a", *[1] * 60), job("b", *[1] * 60)], workers=40)
    plan_of = LoadBased().plan(
        replace(of, place=lambda demand, free: requests.append(len(free)) or of.place(demand, free))
    )
    assert len(started(plan_of)) == 40
    assert len(requests) <= 2 * 41
    assert max(requests) == 1


@pytest.mark.parametrize("rounding", ["exact", "classic"])
def test_empty_requestor_and_no_worker_start_nothing(rounding):
    of = view([job("a", *[1] * 215, requestor="")], workers=0, settings={"rounding": rounding})
    assert plan(of).orders == ()
    assert reasons(of, plan(of)) == {"a": "no-worker-ready"}


def test_answers_kept_from_quiet_plan_to_quiet_plan_are_those_of_the_workers_there_are():
    cluster = read_cluster(grid(4, 4), name="oak")
    compiled, requests = Compiled(cluster), Requests([cluster])
    arrivals = [Arrival(f"j{k}", float(k), 14 - 6 * (k % 3), 60.0, 60.0, "ann") for k in range(9)]
    jobs = [compiled.job(one, requests.of(one)) for one in arrivals]
    of = replace(compiled.view(5_000.0, {"unit": "core"}), jobs=jobs, quiet=True)
    of = replace(of, census=cluster_index_of(of))
    for state in (WorkerState.READY, WorkerState.LOST, WorkerState.READY):
        first = replace(of.workers[0], state=state)
        of.census.put_worker(first)
        now = replace(of, workers=[first, *of.workers[1:]])
        assert LoadBased().plan(now) == LoadBased().plan(replace(now, census=None))
        held = {worker for start in LoadBased().plan(now).orders for worker in start.placement}
        assert held == {worker.id for worker in now.workers if worker.state is WorkerState.READY}
