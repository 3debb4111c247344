"""What becomes of a task at each event, for every state it may be in, and after any sequence of events."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rainbow import transitions
from rainbow.errors import Conflict
from rainbow.state_machine import BOOKED, ENDED, TASK_MOVES, Task, TaskState, ran_for
from rainbow.transitions import Assigned, Ended, Lost, transition

CASES = yaml.load((Path(__file__).parents[1] / "cases" / "transitions.yaml").read_text(), yaml.CSafeLoader)
SPACE = {"n0": {"core": 1}}
EVENTS = {
    "Assigned": Assigned(SPACE),
    "Accepted": transitions.Accepted("ann"),
    "StopOrdered": transitions.StopOrdered("its class is over its target"),
    "CancelOrdered": transitions.CancelOrdered(),
    "TakenBack": transitions.TakenBack("its cluster is drained"),
    "Lost": Lost("lost contact with the agent", 3),
    **{f"ended-{result}": Ended(result) for result in ("failed", "timed_out", "stopped", "canceled", "lost")},
    **{f"exit-{code}": Ended(exit_code=code) for code in (0, 1)},
    "canceled-exit-1": Ended(exit_code=1, canceled=True),
    "canceled-lost": Ended("lost", canceled=True),
    "service-exit-1": Ended(exit_code=1, service=True),
    "put-back-by-its-site": transitions.Pending("site:BeginTime", facts={"requeued": True}),
    **{name: getattr(transitions, name)() for name in ("Started", "Suspended", "Resumed", "Pending", "Unable")},
}
S = TaskState


def task(state: TaskState, **more: object) -> Task:
    has = state in BOOKED
    begun = state in (S.ACCEPTED, S.RUNNING, S.SUSPENDED, S.STOPPING)
    space = {"placement": SPACE if has else {}, "agent": "ann" if begun else "", "attempt": int(has)}
    return replace(Task("t", "j", 0, 0, "a", state=state, **space), **more)


@pytest.mark.parametrize("state", list(TaskState))
@pytest.mark.parametrize("name", CASES)
def test_each_event_moves_each_state_as_the_table_says(name: str, state: TaskState) -> None:
    case = CASES[name]
    if str(state) in case.get("conflict", ()):
        with pytest.raises(Conflict):
            transition(task(state), EVENTS[name], 5.0)
    else:
        after = transition(task(state), EVENTS[name], 5.0)
        assert str(after.state) == case["before"].get(str(state), str(state))
        assert after.state is not state or after == task(state), "what is no news changes nothing"


ONCE = {
    "its agent is lost": Lost("lost contact with the agent", 0, once=True),
    "it was lost at its site": Ended("lost", once=True),
    "its agent ended": Ended("stopped", once=True),
}


@pytest.mark.parametrize("how", ONCE)
def test_what_must_not_start_twice_has_failed_when_it_is_lost(how: str) -> None:
    """Whatever retries its job has; what no agent has had yet waits again."""
    after = transition(task(S.RUNNING, started_at=3.0, retries_left=2), ONCE[how], 5.0)
    assert (after.state, after.cause, after.ended_at) == (S.FAILED, "lost", 5.0)
    assert "must not start twice" in after.detail
    assert transition(task(S.ASSIGNED), ONCE["its agent is lost"], 5.0).state is S.WAITING


@pytest.mark.parametrize("cause", ["lost", "node", "preempted", "memory", ""])
def test_failure_that_a_site_calls_final_is_not_tried_again(cause: str) -> None:
    after = transition(task(S.RUNNING, retries_left=2), Ended("failed", cause=cause), 5.0)
    assert after.state is (S.FAILED if cause in transitions.FINAL else S.WAITING)


def moves_of(state: TaskState) -> set[TaskState]:
    """All states that some event brings a task to from this one."""
    befores = [task(state), task(state, retries_left=1), task(state, cause="lost")]
    results = set()
    for event in EVENTS.values():
        for before in befores:
            with suppress(Conflict):
                results.add(transition(before, event, 5.0).state)
    return results - {state}


@pytest.mark.parametrize("state", list(TaskState))
def test_every_move_of_the_table_is_made_by_some_event(state: TaskState) -> None:
    assert moves_of(state) == TASK_MOVES[state]


@pytest.mark.parametrize(
    ("event", "before", "state", "told"),
    [
        (Ended(exit_code=0), {}, S.COMPLETED, {"exit_code": 0, "ended_at": 9.0}),
        (Ended(exit_code=2), {}, S.FAILED, {"exit_code": 2}),
        (Ended(exit_code=2), {"retries_left": 1}, S.WAITING, {"retries_left": 0, "detail": "attempt 1 ended FAILED"}),
        (Ended("timed_out"), {"retries_left": 2}, S.WAITING, {"retries_left": 1}),
        (Ended(exit_code=2, canceled=True), {"retries_left": 1}, S.FAILED, {}),
        (Ended("stopped"), {"retries_left": 1}, S.WAITING, {"retries_left": 1, "detail": "stopped and requeued"}),
        (Ended("stopped", canceled=True), {}, S.CANCELED, {}),
        (Ended("canceled"), {"retries_left": 1}, S.CANCELED, {}),
        (Ended("lost", detail="gone"), {}, S.WAITING, {"not_before": 10.0, "detail": "gone", "placement": {}}),
        (Ended("lost", canceled=True), {}, S.CANCELED, {"placement": {}}),
        (Ended("stopped"), {"cause": "lost", "detail": "no worker"}, S.WAITING, {"not_before": 10.0}),
        (Ended("lost", max_lost=1), {}, S.FAILED, {"cause": "lost"}),
        (Ended(exit_code=0, service=True), {"retries_left": 1}, S.WAITING, {"retries_left": 0}),
        (Ended(exit_code=0, service=True), {"started_at": -90.0}, S.WAITING, {"retries_left": 5}),
        (Ended(exit_code=3, service=True), {}, S.FAILED, {"exit_code": 3}),
    ],
)
def test_an_end_is_judged_by_how_it_came(
    event: Ended, before: dict[str, object], state: TaskState, told: dict[str, object]
) -> None:
    after = transition(task(S.RUNNING, **before), event, 9.0)
    assert (after.state, {key: getattr(after, key) for key in told}) == (state, told)


def test_what_a_site_holds_it_lets_continue_itself_and_a_new_start_says_so() -> None:
    held = transition(task(S.RUNNING, started_at=1.0), transitions.Suspended("held at its site"), 5.0)
    assert (held.state, held.hold, held.detail) == (S.SUSPENDED, "site", "held at its site")
    for event in (transitions.Resumed(), transitions.Started()):
        after = transition(held, event, 8.0)
        assert (after.state, after.hold, after.detail, after.paused) == (S.RUNNING, "", "", 3.0)


def test_a_task_that_ends_while_it_is_suspended_has_not_run_since() -> None:
    held = transition(task(S.RUNNING, started_at=1.0, paused=2.0), transitions.Suspended(), 5.0)
    over = transition(held, Ended("stopped", canceled=True), 9.0)
    assert (over.state, ran_for(over, 9.0), over.paused) == (S.CANCELED, 2.0, 6.0)


@pytest.mark.parametrize("state", list(TaskState))
def test_what_its_site_puts_back_into_its_queue_waits_there_again(state: TaskState) -> None:
    after = transition(task(state, started_at=1.0), EVENTS["put-back-by-its-site"], 5.0)
    again = state in (S.RUNNING, S.SUSPENDED)
    assert after.state is (S.ACCEPTED if again else state)
    assert after.started_at == (None if again else 1.0)


@given(st.lists(st.tuples(st.sampled_from(sorted(EVENTS)), st.floats(0, 1e6)), max_size=30), st.integers(0, 2))
def test_after_any_events_space_is_held_by_booked_tasks_alone_and_an_end_is_final(
    events: list[tuple[str, float]], retries: int
) -> None:
    now, one = 0.0, task(S.WAITING, retries_left=retries)
    for name, seconds in events:
        now, before = now + seconds, one
        try:
            one = transition(one, EVENTS[name], now)
        except Conflict:
            continue
        assert one.attempt - before.attempt == (name == "Assigned")
        assert one.retries_left <= max(retries, transitions.STARTS)
        if one.state is S.WAITING:
            assert (one.placement, one.agent, one.started_at) == ({}, "", None)
        if before.state in (S.COMPLETED, S.CANCELED):
            assert one == before
        if one.state in ENDED:
            assert one.ended_at is not None
