"""An account that may run one core: when its three jobs start, by whoever is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rainbow.cli.main import main
from rainbow.service.scheduler.forecaster import Forecaster
from rainbow.text import rfc3339
from tests.conftest import ADMIN, Api, Clock, Cluster, jobspec
from tests.support.page_client import Browser

LENGTH = 500.0


def submit(oak: Cluster, name: str) -> str:
    spec = jobspec(1, duration=LENGTH)
    spec["resources"] = [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}]
    spec["tasks"] = [{"command": ["true"], "slot": "task", "count": {"total": 1}}]
    job = oak.api.good(
        "POST", "/v1/jobs", {"jobspec": spec, "name": name, "account": "bio", "requestor": "ann"}, oak.token
    )
    return str(job["id"])


def start_next(oak: Cluster) -> dict[str, Any]:
    """Let the cluster's agent take the one task that it may start, and start it."""
    [offer] = oak.take()
    oak.say("events", events=[{"task": offer["id"], "attempt": offer["attempt"], "event": "started"}])
    return offer


def end(oak: Cluster, clock: Clock, offer: dict[str, Any]) -> None:
    clock.now += LENGTH
    answer = {"task": offer["id"], "attempt": offer["attempt"], "event": "ended", "result": "exited", "exit_code": 0}
    oak.say("events", events=[answer])


@pytest.mark.parametrize("policy", ["priority", "load_based"])
def test_eta_page_step_and_simulation_agree_on_an_account_of_one_core(
    api: Api, oak: Cluster, clock: Clock, policy: str, tmp_path: Path, database: str
) -> None:
    api.service.settings = replace(api.service.settings, forecast_share=1.0)
    settings = {"unit": "core"} if policy == "load_based" else {}
    api.good("PUT", "/v1/clusters/oak/scheduler", {"policy": policy, "settings": settings}, oak.secret)
    api.good("PUT", "/v1/accounts/bio", {"users": {"ann": {}}, "limits": {"running_cores": 1}}, ADMIN)
    oak.say("heartbeat")
    submit(oak, "before")
    end(oak, clock, start_next(oak))  # so that lengths are known
    begun = clock.now
    jobs = [submit(oak, "like") for _ in range(3)]
    offer = start_next(oak)
    Forecaster(api.service).turn()
    due = [rfc3339(begun + LENGTH * k) for k in range(3)]
    etas = [api.good("GET", f"/v1/jobs/{job}/eta", None, oak.token) for job in jobs]
    assert [one["start"] for one in etas] == due
    forecast = api.good("GET", "/v1/clusters/oak/forecast", None, oak.secret)
    assert {one["id"]: one["start"] for one in forecast["jobs"]} == dict(zip(jobs, due, strict=True))
    page = Browser(api, oak.secret, acts=True)
    for job, start in zip(jobs[1:], due[1:], strict=True):
        expected = f'<b>Expected to start</b> <time datetime="{str(start).replace(".000", "")}"'
        assert expected in page.get(f"/jobs/{job}")
    for k, job in enumerate(jobs):  # what is expected comes
        assert (offer["job"], clock.now) == (job, begun + k * LENGTH)
        end(oak, clock, offer)
        offer = start_next(oak) if job != jobs[-1] else {}
    file, stored = tmp_path / "now.yaml", {"policy": policy, "settings": settings}
    file.write_text(json.dumps(stored))
    history = ("--history", "..", "--database", database, "--windows", "1", "-o", "json")
    answer = CliRunner().invoke(main, ["policy", "simulate", str(file), str(file), *history])
    assert answer.exit_code == 0, answer.output
    ratios = json.loads(answer.stdout)["ratios"]
    assert [ratios[name]["new"] for name in ("wait", "longest_wait")] == [1500 / 4, 1000.0]  # of four jobs
