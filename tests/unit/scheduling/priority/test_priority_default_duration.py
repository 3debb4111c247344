"""What a task without a duration counts as: it ends after `default_duration` seconds, or runs for ever."""

from dataclasses import replace

import pytest

from rainbow.scheduling import Priority, ReservationView, Reserve
from rainbow.scheduling.plan_diagram import diagram
from tests.support.policies.dispatching import job_view
from tests.support.policies.priority_cases import FOUR, NOW, asking, placed, plan, running, view, waits

USUAL = 60.0


def endless(name, worker, started=NOW - 10):
    """A task that fills a worker and whose job named no duration."""
    return replace(running(name, worker, 2, started), until=0.0)


def full(started=NOW - 10):
    return [endless(f"r{k}", f"n{k}", started) for k in range(4)]


def promised(made):
    return {o.job: o.at for o in made.orders if isinstance(o, Reserve)}


@pytest.mark.parametrize(
    ("started", "compat", "at"),
    [
        (NOW - 10, "", NOW + 50),
        (NOW - 200, "", NOW + 15),  # it has outlived it: within the next interval, as in the original
        (NOW - 55, "", NOW + 5),
        (NOW - 55, "grid_engine", NOW + 15),
        (NOW - 200, "grid_engine", NOW + 15),
    ],
)
def test_task_without_a_duration_ends_after_the_default_one(started, compat, at):
    settings = {"discipline": "tuned", "max_reservation": 1, "reserve": "all", "compat": compat}
    made = plan(view([asking("j", 8)], runs=full(started), default_duration=USUAL, **settings))
    assert promised(made) == {"j": at}
    assert waits(made)["j"].reason == "reserved"


def test_backfilling_behind_a_task_without_a_duration():
    jobs = [asking("wide", 8), asking("short", 1, 40.0), asking("long", 1, 60.0)]
    made = plan(view(jobs, runs=full()[:3], default_duration=USUAL))
    assert set(placed(made)) == {"short"}
    assert waits(made)["long"].facts["reasons"] == {"busy": 3, "reserved for other jobs": 1}


def test_own_duration_is_stronger_than_the_default_one():
    runs = [running(f"r{k}", f"n{k}", 2, walltime=500.0) for k in range(4)]
    assert promised(plan(view([asking("j")], runs=runs, default_duration=USUAL))) == {"j": NOW + 490}


def test_without_a_default_space_is_promised_and_no_time():
    made = plan(view([asking("j"), asking("k")], runs=full()))
    wait, behind = waits(made)["j"], waits(made)["k"]
    assert (wait.reason, wait.facts["endless"], wait.facts["start"]) == ("reserved", 4, None)
    assert wait.text == "0/4 workers: 4 busy; space is kept until 1 task without a time limit ends"
    assert (behind.reason, behind.facts["reasons"]) == ("busy", {"busy": 4})


def test_never_is_what_no_end_of_a_task_changes():
    large = replace(asking("j"), amounts={"core": 3})
    wait = waits(plan(view([large], runs=full())))["j"]
    assert (wait.reason, wait.text) == ("never", "0/4 workers: 4 too small; will never fit")


def test_within_a_reservation_that_is_taken_no_time_is_found_yet():
    stored = ReservationView("ar", {"n0": {"core": 2}}, NOW - 5, NOW + 50)
    inside = replace(endless("r", "n0"), attributes={"reservation": "ar"})
    jobs = [asking("short", 1, 20.0, reservation="ar"), asking("long", 1, 60.0, reservation="ar")]
    answer = waits(plan(view(jobs, runs=[inside], reservations=(stored,))))
    assert {job: wait.reason for job, wait in answer.items()} == {"short": "no-time", "long": "never"}


def test_advance_reservation_is_found_behind_the_default_duration():
    of = view([], runs=full(), default_duration=USUAL)
    assert Priority().keep(of, job_view(asking("ar", 8)), None, 100.0).start == NOW + 50
    assert Priority().keep(of, job_view(asking("ar", 8)), NOW + 60, 100.0).start == NOW + 60
    assert Priority().keep(of, job_view(asking("ar", 8)), NOW + 40, 100.0).placement is None


def test_drawn_as_it_is_planned():
    of = view(
        [asking("j", 8), asking("k", 1, 0.0)], runs=full()[:3], default_duration=USUAL, discipline="conservative"
    )
    made = diagram(of, plan(of))
    assert all(made.free(worker, "core", NOW, NOW + 1_000) >= 0 for worker in FOUR)
