"""Scripts beside a real Slurm: it shows the same job, whether its user or Rainbow calls sbatch (contract 12.1)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.jobspec import Request, parse_jobspec
from rainbow.jobspec.handover import handover
from rainbow.jobspec.sbatch import Call, Caller, call_of, jobspec_of_call, read_call
from rainbow.jobspec.sbatch.request import carried
from tests.slurm import Slurm
from tests.slurm import slurm as running

CASES = yaml.load((Path(__file__).parent / "cases" / "sbatch.yaml").read_text(), yaml.CSafeLoader)
SCRIPT = "#!/bin/sh\nsleep 1\n"
# what is another in every call
OTHER = {"JobId", "ArrayJobId", "SubmitTime", "EligibleTime", "AccrueTime", "StartTime", "EndTime", "LastSchedEval"}
OTHER |= {"Deadline", "AllocNode:Sid", "Priority", "Command", "StdOut", "StdErr", "Reason", "RunTime", "WorkDir"}
OTHER |= {"PreemptEligibleTime", "Scheduler", "Comment"}  # the executor adds its key to the comment


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with running() as made:
        yield made


def shown(slurm: Slurm, words: Sequence[str], script: Path) -> dict[str, str]:
    """Return what Slurm shows of a job that is submitted with these words, held."""
    job = slurm.run("sbatch", "--parsable", "--hold", *words, str(script)).strip()
    if not job:
        return {}
    found = re.findall(r"(\S+?)=(\S*)", slurm.run("scontrol", "-o", "show", "job", job).splitlines()[0])
    slurm.run("scancel", job)
    return {key: value for key, value in found if key not in OTHER}


def handed_over(request: Request, hosts: Sequence[str]) -> Call:
    """Return the call that the executor makes of a request, with the array that the server divides."""
    found = dict(
        carried(handover(request, request.tasks[0].slots, 1, request.name, "ann"), request.duration, hosts).options
    )
    system: Any = request.attributes["system"]
    return Call(({**found, **({"array": system["array"]} if "array" in system else {})},))


def test_slurm_shows_the_same_job_of_a_script_and_of_its_jobspec(slurm: Slurm, tmp_path: Path) -> None:
    """By the pure translation and by the executor: nothing is dropped, nothing is asked for twice."""
    script = tmp_path / "job.sh"
    script.write_text(SCRIPT)
    now = datetime.now().astimezone()
    differing: dict[str, Any] = {}
    taken = 0
    for line in CASES["beside"]:
        words = line.split()
        plain = shown(slurm, words, script)
        taken += bool(plain)
        document, _ = jobspec_of_call(read_call(SCRIPT, [*words, "job.sh"], {}, "job.sh"), Caller(now, str(tmp_path)))
        request = parse_jobspec(document)
        for call in (call_of(request, now.tzinfo), handed_over(request, slurm.nodes)) if plain else ():
            ours = shown(slurm, call.argv(), script)
            keys = [key for key in plain | ours if plain.get(key) != ours.get(key)]
            if keys:
                differing[f"{line} -> {' '.join(call.argv())}"] = [
                    (key, plain.get(key), ours.get(key)) for key in keys
                ]
    assert differing == {}
    assert taken > len(CASES["beside"]) * 0.8
