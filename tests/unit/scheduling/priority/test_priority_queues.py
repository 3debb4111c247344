"""Queues of the priority policy: who may use them, how full, when, and what is suspended there."""

from dataclasses import replace

import pytest

from rainbow.scheduling.priority.config.load_formulas import WorkerLoads
from rainbow.scheduling.priority.config.settings import check_settings
from tests.support.policies.priority_cases import FOUR, NOW, asking, held, placed, plan, running, view, waits, where


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
    assert waits(made)["d"].facts["reasons"] == {"in no enabled queue": 2, "no access": 2}


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
    assert WorkerLoads(of, given_).values["n0"]["np_load_avg"] == pytest.approx(0.1 + 2 * 0.5 * 0.5 / 2)
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
