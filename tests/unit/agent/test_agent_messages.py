"""What the agent makes of the server's answers, and what it says in which order, without a server."""

from __future__ import annotations

import time

from rainbow.agent import Result
from rainbow.agent.messages import MOST_OUTPUT, batch, run_of, stale_runs
from rainbow.client import Problem, responses
from rainbow.errors import Unavailable
from tests.support.agent_sites import Watched
from tests.support.told import ClusterForecast, offer, run_for, said


def test_what_is_not_accepted_is_not_started() -> None:
    received = {"tasks": [offer("a"), offer("b")], "stop": [], "lease": 60.0}
    refused = {"accepted": ["b"], "refused": [{"id": "a", "reason": "it is ACCEPTED"}]}
    watched = Watched()
    run_for(ClusterForecast(receive=received, accept=refused), 0.7, watched)
    assert {run[0] for run in watched.started} == {"b"}


def test_a_stop_for_what_does_not_run_here_is_confirmed() -> None:
    forecast = ClusterForecast(receive={"tasks": [], "stop": [{"id": "t", "attempt": 3}], "lease": 60.0})
    run_for(forecast, 0.3, Watched())
    event = forecast.events_told[0][0]
    assert (event["task"], event["attempt"], event["event"], event["result"]) == ("t", 3, "ended", "stopped")


def test_an_event_the_server_refuses_does_not_keep_the_others() -> None:
    received = iter([{"tasks": [offer("a"), offer("bad"), offer("c")], "stop": [], "lease": 60.0}])
    forecast = ClusterForecast(accept={"accepted": ["a", "bad", "c"], "refused": []})
    forecast.receive = lambda *_, **__: (
        next(received, None) or time.sleep(0.1) or {"tasks": [], "stop": [], "lease": 60.0}
    )  # type: ignore[method-assign]
    forecast.refuse = lambda events: Problem(400, {}) if any(e["task"] == "bad" for e in events) else None
    run_for(forecast, 1.0, Watched())
    good = [e["task"] for events in forecast.events_told if forecast.refuse(events) is None for e in events]
    assert sorted(good) == ["a", "a", "c", "c"]


def test_events_are_told_again_in_order_after_a_fault() -> None:
    received = iter([{"tasks": [offer("a")], "stop": [], "lease": 60.0}])
    forecast = ClusterForecast(accept={"accepted": ["a"], "refused": []})
    forecast.receive = lambda *_, **__: (
        next(received, None) or time.sleep(0.1) or {"tasks": [], "stop": [], "lease": 60.0}
    )  # type: ignore[method-assign]
    forecast.refuse = lambda _: Unavailable() if len(forecast.events_told) == 1 else None
    run_for(forecast, 1.5, Watched())
    recorded = [event["event"] for events in forecast.events_told[1:] for event in events]
    assert forecast.events_told[0][0]["event"] == "started"
    assert recorded == ["started", "ended"]


def test_a_late_agent_stops_what_is_no_longer_its_own() -> None:
    received = iter([{"tasks": [{**offer("a"), "command": ["sleep", "64"]}], "stop": [], "lease": 0.3}])
    nothing = {"tasks": [], "stop": [], "lease": 0.3}
    forecast = ClusterForecast(accept={"accepted": ["a"], "refused": []})
    forecast.receive = lambda *_, **__: next(received, None) or time.sleep(0.05) or nothing  # type: ignore[method-assign]
    forecast.heartbeat = lambda *_, **__: {"stop": [], "stale": ["a"], "lease": 0.3}  # type: ignore[method-assign]
    watched = Watched()
    begun = time.monotonic()
    run_for(forecast, 1.5, watched)
    assert (said(forecast), watched.started) == ([("a", "started")], [("a", 1)])
    assert time.monotonic() - begun < 10


def test_an_offer_becomes_a_run() -> None:
    options = {**offer("t", 2), "command": ["a", "b"], "environment": {"A": "1", "B": None}, "duration": 5.0}
    run = run_of(options)  # type: ignore[arg-type]  # the shape is that of an offer
    assert (run.id, run.command, run.environment, run.duration) == (("t", 2), ("a", "b"), {"A": "1", "B": None}, 5.0)


def test_a_batch_speaks_of_one_attempt_at_a_task() -> None:
    events: list[responses.Event] = [
        {"task": "a", "attempt": 1, "event": "ended"},
        {"task": "b", "attempt": 1, "event": "started"},
        {"task": "a", "attempt": 2, "event": "started"},
    ]
    assert batch(events, 50) == events[:2]
    assert batch(events, 1) == events[:1]
    assert batch([], 50) == []


def test_a_batch_ends_before_it_has_too_much_output() -> None:
    events = [said_by(f"t{k}") for k in range(5)]
    assert [event["task"] for event in batch(events, 256)] == ["t0", "t1"]
    assert len(batch([said_by("t", MOST_OUTPUT + 1)], 256)) == 1


def said_by(task: str, characters: int = MOST_OUTPUT // 2) -> responses.Event:
    return {"task": task, "attempt": 1, "event": "ended", "output": "x" * characters}


def test_stale_runs_are_the_older_attempts() -> None:
    assert stale_runs(["a", "x"], [("a", 2), ("b", 1), ("a", 1)]) == [("a", 1)]


def test_stopped_is_a_result_of_the_protocol() -> None:
    answers = {"exited", "timed_out", "stopped", "failed", "lost", "canceled"}
    assert {str(result) for result in Result} == answers
