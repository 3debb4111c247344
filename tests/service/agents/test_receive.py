"""Whole jobs taken by clusters that schedule for themselves: `rainbow receive` and `rainbow report`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.cli.exit_codes import Exit
from rainbow.client import Client
from rainbow.service.scheduler.step import step
from tests.conftest import REGISTRATION, Api, Clock, Cluster, grid, jobspec
from tests.support.live import rainbow_at
from tests.support.shell import Shell, variables_of

PULL = "pull:here"


@pytest.fixture
def oak(api: Api) -> Cluster:
    return api.register("oak", grid(1, 1), policy={"name": "delegate"})


def submit(cluster: Cluster, spec: Any = None) -> str:
    return str(cluster.api.good("POST", "/v1/jobs", spec or jobspec(), cluster.token)["id"])


def test_whole_jobs_are_offered_in_order_with_their_jobspecs(oak: Cluster) -> None:
    spec = {**jobspec(), "tasks": jobspec()["tasks"] * 3}
    ids = [submit(oak, spec), submit(oak), submit(oak)]
    step(oak.api.service, "oak")
    answer = oak.say("receive", PULL, max=2)
    assert [job["id"] for job in answer["jobs"]] == ids[:2]
    assert answer["jobs"][0]["jobspec"] == spec
    assert [task["job"] for task in answer["tasks"]] == [ids[0]] * 3 + [ids[1]]
    assert "jobs" not in oak.say("receive", "an agent", max=2)


def test_a_job_that_was_pulled_is_kept_however_long_nobody_is_heard_of(oak: Cluster, clock: Clock) -> None:
    job = submit(oak)
    [offer] = oak.take(PULL)
    clock.now += 1_000_000
    step(oak.api.service, "oak")
    assert oak.api.good("GET", f"/v1/jobs/{job}", None, oak.token)["tasks"][0]["state"] == "ACCEPTED"
    oak.end(offer, PULL)
    assert oak.api.good("GET", f"/v1/jobs/{job}", None, oak.token)["state"] == "COMPLETED"


def test_who_pulls_speaks_for_no_worker(oak: Cluster) -> None:
    oak.say("receive", PULL)
    [worker] = oak.api.good("GET", "/v1/clusters/oak/workers", None, oak.secret)["workers"]
    assert worker["state"] == "NEW"


def test_whole_jobs_are_only_for_clusters_that_schedule_for_themselves(api: Api) -> None:
    elm = api.register("elm")
    body = {"agent": PULL, "max": 1}
    answer = api.problem(409, "conflict", "POST", "/v1/clusters/elm/receive", body, elm.secret)
    assert "delegate" in answer["detail"]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with rainbow_at(tmp_path) as url:
        with Client(url, REGISTRATION) as client:
            registration = client.register_cluster("oak", grid(1, 1), policy={"name": "delegate"})
        saved = tmp_path / "credentials.json"
        one = {"token": registration["token"], "secret": registration["secret"]}
        saved.write_text(json.dumps({"url": url, "clusters": {"oak": one}}))
        yield Shell(tmp_path, url, registration["token"], registration["secret"], variables_of(url, saved))


def test_receive_takes_a_job_and_report_ends_it(shell: Shell) -> None:
    job = shell.json("submit", "-n", "1", "-c", "1", "--", "echo", "; touch x")["id"]
    [taken] = shell.json("receive", "--cluster", "oak", "--wait", "5")
    assert (taken["id"], taken["tasks"][0]["command"]) == (job, ["echo", "; touch x"])
    assert shell.json("receive", "--cluster", "oak") == []
    assert shell.code("report", job, "--cluster", "oak", "--started") is Exit.OK
    assert shell.json("job", "show", job)["state"] == "RUNNING"
    wrote = shell.file("out", "done\n")
    assert shell.code("report", job, "--cluster", "oak", "--exit-code", "3", "--written", wrote) is Exit.OK
    [task] = shell.json("job", "show", job)["tasks"]
    assert (task["state"], task["exit_code"], task["output"]) == ("FAILED", 3, "done\n")
    assert shell.code("report", job, "--cluster", "oak", "--exit-code", "0") is Exit.CONFLICT


def test_receive_into_a_folder_has_the_job_there_before_it_is_accepted(shell: Shell, tmp_path: Path) -> None:
    job = shell.json("submit", "-n", "1", "-c", "1", "--", "true")["id"]
    out = tmp_path / "jobs"
    waiting = ("receive", "--cluster", "oak", "--wait", "5", "--out", out)
    assert shell.json(*waiting, "--no-accept")[0]["id"] == job
    assert json.loads((out / f"{job}.json").read_text())["id"] == job
    assert shell.json("job", "show", job)["tasks"][0]["state"] == "ASSIGNED"
    assert shell.json(*waiting)[0]["id"] == job  # killed before it had accepted, it takes the same again
    assert shell.json("job", "show", job)["tasks"][0]["state"] == "ACCEPTED"
    assert [path.name for path in out.iterdir()] == [f"{job}.json"]


def test_two_takers_take_every_job_once(shell: Shell) -> None:
    jobs = {shell.json("submit", "-n", "1", "-c", "1", "--", "true")["id"] for _ in range(6)}
    one = shell.json("receive", "--cluster", "oak", "--wait", "5", "-n", "3", "--as", "one")
    two = shell.json("receive", "--cluster", "oak", "--wait", "5", "-n", "9", "--as", "two")
    assert sorted(job["id"] for job in one + two) == sorted(jobs)


def test_a_canceled_job_is_told_to_who_has_it(shell: Shell) -> None:
    job = shell.json("submit", "-n", "1", "-c", "1", "--", "true")["id"]
    shell.json("receive", "--cluster", "oak", "--wait", "5")
    shell("job", "cancel", job)
    assert f"job {job} was canceled" in shell("receive", "--cluster", "oak").stderr
    assert shell.code("report", job, "--cluster", "oak", "--stopped") is Exit.OK
    assert shell.json("job", "show", job)["state"] == "CANCELED"


@pytest.mark.parametrize("words", [(), ("--started", "--stopped"), ("--exit-code", "x"), ("--exit-code", "256")])
def test_report_wants_one_word(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell.code("report", "j", "--cluster", "oak", *words) is Exit.USAGE


# ── a cluster that only pulls, as a script of its operator's would be ──

SCRIPT = """
set -eu
rainbow() { "$PYTHON" -m rainbow "$@"; }
rainbow receive --cluster oak --wait 10 --out jobs --as operator > /dev/null
for file in jobs/*.json; do
    job=$(basename "$file" .json)
    rainbow report "$job" --cluster oak --started
    set +e
    "$PYTHON" run.py "$file" > "$job.out"
    code=$?
    set -e
    rainbow report "$job" --cluster oak --exit-code "$code" --written "$job.out"
done
"""
RUN = """
import json, subprocess, sys
[task] = json.load(open(sys.argv[1]))["tasks"]
sys.exit(subprocess.run(task["command"]).returncode)
"""


def test_a_cluster_that_only_pulls_runs_whole_jobs_by_a_script(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(RUN)
    with rainbow_at(tmp_path) as url:
        with Client(url, REGISTRATION) as registering:
            registration = registering.register_cluster("oak", grid(1, 2), policy={"name": "delegate"})
        with Client(url, registration["token"]) as user:
            good = user.submit(jobspec(command=["echo", "; touch x", "naïve"]))["id"]
            bad = user.submit(jobspec(command=["sh", "-c", "exit 7"]))["id"]
            ours = {"PYTHON": sys.executable, "PYTHONPATH": str(Path(__file__).parents[3])}
            ours |= {
                "RAINBOW_URL": url,
                "RAINBOW_TOKEN": registration["token"],
                "RAINBOW_SECRET": registration["secret"],
            }
            subprocess.run(["sh", "-c", SCRIPT], cwd=tmp_path, env={**os.environ, **ours}, check=True, timeout=120)
            [one], [other] = (user.job(job)["tasks"] for job in (good, bad))
    assert (one["state"], one["exit_code"], one["output"]) == ("COMPLETED", 0, "; touch x naïve\n")
    assert (other["state"], other["exit_code"], one["agent"]) == ("FAILED", 7, "pull:operator")
    assert not (tmp_path / "x").exists()
