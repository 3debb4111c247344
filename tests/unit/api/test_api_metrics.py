"""Metrics: none stays empty, and only the administrator reads them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rainbow.service.core.counters import METRICS
from rainbow.service.scheduler.forecaster import Forecaster
from rainbow.service.scheduler.loop import step_safely
from tests.conftest import ADMIN, Cluster, jobspec


def test_no_metric_stays_empty(oak: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    oak.say("heartbeat")
    a_forecast_turns_out(oak)
    a_promise_breaks(oak)
    oak.api.good("POST", "/v1/jobs", jobspec(), oak.token)
    step_safely(oak.api.service, "oak")
    monkeypatch.setattr("rainbow.service.scheduler.step.check_plan", lambda *_: 1 / 0)
    oak.api.good("POST", "/v1/jobs", jobspec(), oak.token)
    step_safely(oak.api.service, "oak")
    text = oak.api.call("GET", "/metrics", None, ADMIN).get_data(as_text=True)
    samples = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"^(\w+)[{ ]", text, re.M)}
    silent = set(METRICS) - samples - {"rainbow_thread_failures_total"}  # no thread of this test fails
    assert silent == {"rainbow_connections", "rainbow_steps_overdue"}  # no front; no step hangs
    assert "process_cpu_seconds_total" in samples
    for kind in ("read", "write", "commit"):
        assert float(re.search(rf'rainbow_store_seconds_count{{kind="{kind}"}} (\S+)', text)[1]) > 0  # type: ignore[index]


def a_forecast_turns_out(oak: Cluster) -> None:
    """Forecast a job that waits, and again when it has started."""
    clock: Any = oak.api.service.clock
    for _ in range(3):  # the third one waits
        oak.api.good("POST", "/v1/jobs", jobspec(2, duration=600), oak.token)
    begun, forecaster = oak.take(), Forecaster(oak.api.service)
    forecaster.turn()
    clock.now += 60
    oak.say("heartbeat")
    for offer in begun:
        oak.end(offer)
    [last] = oak.take()
    clock.now += 60
    oak.say("heartbeat")
    forecaster.turn()
    oak.end(last)


def a_promise_breaks(oak: Cluster) -> None:
    """Promise a start, and change to a policy that promises none."""
    where = "/v1/clusters/oak/scheduler"
    before = oak.api.good("GET", where, None, oak.secret)
    oak.api.good("PUT", where, {"policy": "priority"}, oak.secret)
    for _ in range(5):  # one of them waits
        oak.api.good("POST", "/v1/jobs", jobspec(2, duration=600), oak.token)
    begun = oak.take()
    oak.api.good("PUT", where, {key: before[key] for key in ("policy", "settings")}, oak.secret)
    for offer in begun:
        oak.end(offer)


def test_metrics_are_the_administrators(oak: Cluster) -> None:
    oak.api.good("POST", "/v1/jobs", jobspec(), oak.token)
    oak.api.problem(403, "forbidden", "GET", "/metrics", None, oak.secret)
    oak.api.problem(401, "unauthenticated", "GET", "/metrics")
    text = oak.api.call("GET", "/metrics", None, ADMIN).get_data(as_text=True)
    assert 'rainbow_jobs{cluster="oak",state="WAITING"} 1' in text
    assert 'rainbow_workers{cluster="oak",state="NEW"} 2' in text
    assert float(re.search(r'^rainbow_thread_cpu_seconds{thread="MainThread"} (.*)$', text, re.M)[1]) > 0  # type: ignore[index]
    assert "rainbow_clusters 1" in text
    assert 'rainbow_tasks_waiting{cluster="oak"} 1' in text
    assert 'rainbow_phase_seconds_bucket{le="+Inf",phase="match"}' in text
