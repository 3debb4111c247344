"""What a caller may not see is no job to any of Slurm's commands; what a caller may not change stays."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.slurm.job_rows import SHORT, state_of
from rainbow.state_machine import TaskState
from tests.conftest import Api, Cluster, jobspec

INVALID = "slurm_load_jobs error: Invalid job id specified\n"


def run(api: Api, token: str, command: str, *words: str, user: str = "ann") -> dict[str, Any]:
    body = {"words": list(words), "user": user, "uid": 1000, "at": api.service.clock()}
    results: dict[str, Any] = api.good("POST", f"/v1/slurm/{command}", body, token)
    assert results["exit"] or not results["err"], (command, words, results)
    return results


@pytest.fixture
def two(api: Api) -> tuple[Cluster, dict[str, str], dict[str, int]]:
    """A cluster that shows one's own jobs only; tokens and jobs of ann and bob."""
    oak = api.register("oak", visibility="own")
    named = {who: {"clusters": ["oak"], "requestors": [who]} for who in ("ann", "bob")}
    tokens = {who: api.good("POST", "/v1/tokens", body, oak.secret)["token"] for who, body in named.items()}
    return oak, tokens, {who: api.good("POST", "/v1/jobs", jobspec(), tokens[who])["number"] for who in tokens}


def test_another_users_private_job_is_no_job(api: Api, two: Any) -> None:
    _, tokens, numbers = two
    other = str(numbers["bob"])
    for words in (("squeue", "-j", other), ("scontrol", "show", "job", other)):
        assert run(api, tokens["ann"], *words) == run(api, tokens["ann"], *words[:-1], "9999") | {"err": INVALID}
    for words in (("squeue",), ("squeue", "-t", "all", "-u", "bob"), ("sacct", "-a", "-j", other), ("sacct", "-a")):
        assert "bob" not in run(api, tokens["ann"], *words)["out"]
    assert run(api, tokens["ann"], "scancel", other)["exit"] == 0
    assert run(api, tokens["ann"], "scancel", "-u", "bob")["exit"] == 0
    for verb in ("hold", "suspend", "release"):
        assert run(api, tokens["ann"], "scontrol", verb, other)["exit"] == 1
    assert run(api, tokens["bob"], "squeue", "-h", "-o", "%i %t")["out"] == f"{other} PD\n"
    refused = run(api, tokens["ann"], "sbatch", "-d", f"afterok:{other}", "--wrap", "true")
    assert refused["err"] == "sbatch: error: Batch job submission failed: Job dependency problem\n"
    assert run(api, tokens["ann"], "scontrol", "write", "batch_script", other, "-")["exit"] == 1


def test_scancel_of_a_user_touches_no_other(api: Api, two: Any) -> None:
    oak, _, numbers = two
    assert run(api, oak.secret, "scancel", "-u", "ann")["exit"] == 0
    remaining = run(api, oak.secret, "squeue", "-t", "all", "-h", "-o", "%i %t")["out"]
    assert sorted(remaining.splitlines()) == [f"{numbers['ann']} CA", f"{numbers['bob']} PD"]


def test_scancel_of_an_element_leaves_the_others(api: Api, two: Any) -> None:
    ann = two[1]["ann"]
    number = api.good("POST", "/v1/jobs", jobspec(array="1-3"), ann)["number"]
    assert run(api, ann, "scancel", f"{number}_2")["exit"] == 0
    remaining = run(api, ann, "squeue", "-j", str(number), "-r", "-t", "all", "-h", "-o", "%i %t")["out"]
    assert sorted(remaining.splitlines()) == [f"{number}_1 PD", f"{number}_2 CA", f"{number}_3 PD"]


def test_scontrol_changes_a_job(api: Api, two: Any) -> None:
    _, tokens, numbers = two
    own = str(numbers["ann"])
    words = ("update", f"JobId={own}", "TimeLimit=10", "Name=other")
    assert run(api, tokens["ann"], "scontrol", *words)["exit"] == 0
    shown = run(api, tokens["ann"], "scontrol", "show", "job", own)["out"]
    assert "JobName=other\n" in shown
    assert " TimeLimit=00:10:00 " in shown
    assert run(api, tokens["ann"], "scontrol", "update", f"JobId={numbers['bob']}", "TimeLimit=10")["exit"] == 1
    assert run(api, tokens["ann"], "scontrol", "update", f"JobId={own}", "Gres=x")["exit"] == 1
    assert run(api, tokens["ann"], "scontrol", "hold", own)["exit"] == 0
    assert "JobHeldUser" in run(api, tokens["ann"], "squeue", "-h", "-j", own)["out"]
    assert run(api, tokens["ann"], "scontrol", "release", own)["exit"] == 0


def test_every_state_of_a_task_is_one_of_slurms() -> None:
    causes = ("", "memory", "deadline", "lost", "node", "preempted", "directory")
    results = {state_of(str(state), cause) for state in TaskState for cause in causes}
    assert results == SHORT.keys()
