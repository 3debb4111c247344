"""`expected_wait`: what a Slurm plans for jobs of several sizes; selection reads that of the job's own size."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Run
from rainbow.agent.cluster_survey import survey
from rainbow.agent.executors.run import Checked
from rainbow.agent.executors.slurm import status
from rainbow.agent.executors.slurm.executor import SlurmExecutor
from rainbow.testing.executors import until
from tests.conftest import ADMIN, Api, grid, jobspec
from tests.support.slurm import Slurm

SHORTEST = {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "expected_wait"}, {"select": "first"}]}]}
QUIET = {"expected_wait": 5, "expected_wait_high": 5, "expected_wait_1": 5, "expected_wait_16": 5}
LARGE = {"expected_wait": 0, "expected_wait_high": 600, "expected_wait_1": 0, "expected_wait_16": 600}


@pytest.mark.parametrize(("cores", "chosen", "wait"), [(1, "elm", 5), (8, "elm", 5)])
def test_selection_reads_the_wait_of_the_jobs_own_size(api: Api, cores: int, chosen: str, wait: float) -> None:
    both = [api.register(name, grid(4, 8), state=state) for name, state in (("elm", QUIET), ("oak", LARGE))]
    made = submit(api, both, cores)
    assert made["cluster"] == chosen
    states = api.good("GET", "/v1/decisions", None, ADMIN)["decisions"][0]["states"]
    assert states["elm"]["expected_wait"] == wait
    assert states["oak"]["expected_wait"] == (300 if cores == 1 else 600)
    assert api.good("GET", f"/v1/jobs/{made['id']}/replay", None, ADMIN)["equal"]


def submit(api: Api, clusters: list[Any], cores: int) -> Any:
    spec = jobspec()
    spec["resources"] = [{"type": "slot", "count": 1, "label": "it", "with": [{"type": "core", "count": cores}]}]
    selector = {"name": "constraint", "options": SHORTEST}
    return api.good("POST", "/v1/jobs", {"jobspec": spec, "selector": selector}, *(one.token for one in clusters))


def test_wait_that_is_not_known_is_left_out() -> None:
    answer = status.variables({}, (0, 8, 8), (3, None))
    assert answer == {"cores_free": 0, "cores_taken": 8, "pending_jobs": 3}


def test_survey_tells_how_long_jobs_would_wait_and_what_others_have_taken(on_slurm: Slurm, tmp_path: Path) -> None:
    executor = SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, tmp_path)
    assert "expected_wait" not in survey("slurm", executor.waits()).state
    assert asked(executor, 1, 32) == {1: 0, 32: 0}
    assert survey("slurm", executor.waits()).state["cores_free"] == 32
    taken = [
        on_slurm.run("sbatch", "--parsable", *more, "--time=10", "--output=/dev/null", "--wrap=sleep 600").strip()
        for more in (["-N2", "--exclusive"], ["-N4", "--exclusive", "--hold"])
    ]
    try:
        until(lambda: on_slurm.run("squeue", "-h", "-t", "R", "-o", "%i").strip() == taken[0])
        until(lambda: asked(executor, 16, 32)[32] > 300)
        now = survey("slurm", executor.waits()).state
        assert (now["cores_free"], now["cores_taken"], now["nodes_free"], now["pending_jobs"]) == (16, 16, 2, 1)
        assert now["expected_wait_16"] == 0
        assert now["expected_wait_32"] <= 610
        assert now["expected_wait_low"] <= now["expected_wait"] <= now["expected_wait_high"]
    finally:
        on_slurm.run("scancel", *taken)
        executor.close()


def asked(executor: SlurmExecutor, *sizes: int) -> dict[int, float]:
    """Ask about jobs of so many cores; return in how many seconds each would start."""
    for cores in sizes:
        slot = {"type": "slot", "count": 1, "label": "a", "with": [{"type": "core", "count": 1}]}
        request = {"resources": [{**slot, "count": cores}], "system": {}, "site": {}, "gang": 1}
        executor.check(str(cores), Run(("q", 0), "", (), duration=3600.0, request=request))
    answers: dict[str, Checked | None] = {}
    until(lambda: len(answers.update(executor.checked()) or answers) == len(sizes))
    return {int(size): said.wait for size, said in answers.items() if said and said.wait is not None}
