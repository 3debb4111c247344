"""An agent without a server: a client that answers what it is told to and keeps what it hears."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from rainbow.agent import Agent, Executor
from rainbow.agent.journal import Journal
from rainbow.client import responses


class ClusterForecast:
    """Stands where the client stands; keeps the events it was told."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.events_told: list[list[responses.Event]] = []
        self.refuse: Callable[[list[responses.Event]], Exception | None] = lambda events: None

    def receive(self, *_: Any, **__: Any) -> Any:
        time.sleep(0.05)
        return self.answers.get("receive", {"tasks": [], "stop": [], "lease": 60.0})

    def accept(self, name: str, agent: str, tasks: Any, *, seq: int) -> Any:
        return self.answers.get("accept", {"accepted": [], "refused": []})

    def events(self, name: str, agent: str, events: list[responses.Event], *, seq: int) -> Any:
        self.events_told.append(events)
        fault = self.refuse(events)
        if fault:
            raise fault
        return {"recorded": [event["task"] for event in events], "stale": []}

    def heartbeat(self, *_: Any, **__: Any) -> Any:
        return {"stop": [], "stale": [], "lease": 60.0}


def said(forecast: ClusterForecast) -> list[tuple[str, str]]:
    """Return what the events told are of, and how each ended."""
    return [
        (event["task"], event.get("result", event["event"])) for events in forecast.events_told for event in events
    ]


def offer(task: str = "t", attempt: int = 1) -> responses.Offer:
    return {
        "id": task,
        "attempt": attempt,
        "job": "j",
        "name": "task-0",
        "command": ["true"],
        "cwd": "",
        "environment": {},
        "duration": 0.0,
        "processes": 1,
        "placement": {},
    }


def run_for(forecast: ClusterForecast, seconds: float, executor: Executor, journal: Journal | None = None) -> None:
    """Run an agent for so long; it has ended when this returns."""
    # it has the client's verbs
    agent = Agent(forecast, "oak", executor, journal, say=lambda _: None)  # type: ignore[arg-type]
    thread = threading.Thread(target=agent.run)
    thread.start()
    time.sleep(seconds)
    agent.stop()
    thread.join(20)
    assert not thread.is_alive()
