"""A policy that does not come back is named, and the other clusters' steps go on meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rainbow.scheduling import policies
from rainbow.service.scheduler.loop import Loop
from tests.conftest import ADMIN, Api, jobspec
from tests.scenarios.test_end_to_end import until


class Hangs:
    """A policy that plans nothing, and stays in it as long as the gate is shut."""

    def __init__(self, plain: Any) -> None:
        self.plain, self.gate, self.asked = plain, threading.Event(), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def plan(self, view: Any) -> Any:
        self.asked += 1
        self.gate.wait(60)
        return self.plain.plan(view)


@pytest.fixture
def hangs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hangs]:
    policy = Hangs(policies.get("load_based"))
    monkeypatch.setitem(policies._built_in, "hangs", policy)
    yield policy
    policy.gate.set()


def test_other_clusters_start_their_tasks_while_a_policy_hangs_and_it_is_named(
    api: Api, hangs: Hangs, capsys: pytest.CaptureFixture[str]
) -> None:
    service = api.service
    service.settings = replace(service.settings, step_seconds=0.3, forecast_share=0.0)  # a forecast asks it, too
    oak, elm = api.register("oak", policy={"name": "hangs"}), api.register("elm")
    for each in (oak, elm):
        each.say("heartbeat")
    loop = Loop(service)
    loop.start()
    try:
        api.good("POST", "/v1/jobs", jobspec(), oak.token)
        until(lambda: service.catalogue["oak"].id in service.overdue, seconds=20)
        api.good("POST", "/v1/jobs", jobspec(), elm.token)
        until(lambda: bool(elm.say("receive")["tasks"]), seconds=20)
        assert hangs.asked == 1, "its cluster is not stepped again until it has come back"

        answer = api.good("GET", "/v1/clusters/oak/scheduler", None, oak.secret)
        assert answer["fault"].startswith("the policy has not come back for 0.3 s, in ")
        assert "threading.py" in answer["fault"]
        assert answer["figures"] == {}
        api.problem(503, "try-later", "POST", "/v1/clusters/oak/plan", None, oak.secret)
        metrics = api.call("GET", "/metrics?brief=true", None, ADMIN).get_data(as_text=True)
        assert 'rainbow_steps_overdue{cluster="oak"}' in metrics

        hangs.gate.set()
        until(lambda: bool(oak.say("receive")["tasks"]), seconds=20)
        assert service.overdue == {}
        assert service.faults == {}
        time.sleep(0.1)
        assert sum(thread.name == "scheduler" for thread in threading.enumerate()) == 1
    finally:
        hangs.gate.set()
        loop.stop()
