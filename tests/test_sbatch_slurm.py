"""Scripts beside a real Slurm: it shows the same job, whether its user or Rainbow calls sbatch (contract 12.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from rainbow.jobspec import Request, parse_jobspec
from rainbow.jobspec.handover import handover
from rainbow.jobspec.sbatch import Call, Caller, call_of, jobspec_of_call, read_call
from rainbow.jobspec.sbatch.request import carried
from tests.slurm import Slurm

CASES = yaml.load((Path(__file__).parent / "cases" / "sbatch.yaml").read_text(), yaml.CSafeLoader)
SCRIPT = "#!/bin/sh\nsleep 1\n"
# what is another in every call
OTHER = {"JobId", "ArrayJobId", "SubmitTime", "EligibleTime", "AccrueTime", "StartTime", "EndTime", "LastSchedEval"}
OTHER |= {"Deadline", "AllocNode:Sid", "Priority", "Command", "StdOut", "StdErr", "Reason", "RunTime", "WorkDir"}
OTHER |= {"PreemptEligibleTime", "Scheduler", "Comment"}  # the executor adds its key to the comment


def held(slurm: Slurm, words: Sequence[str], script: Path) -> str:
    """Return the number of a job that is submitted with these words, held; "": Slurm does not take it."""
    return slurm.run("sbatch", "--parsable", "--hold", *words, str(script)).strip()


def fields(record: str) -> dict[str, str]:
    return {key: value for key, value in re.findall(r"(\S+?)=(\S*)", record) if key not in OTHER}


def handed_over(request: Request, hosts: Sequence[str]) -> Call:
    """Return the call that the executor makes of a request, with the array that the server divides."""
    found = dict(
        carried(handover(request, request.tasks[0].slots, 1, request.name, "ann"), request.duration, hosts).options
    )
    system: Any = request.attributes["system"]
    return Call(({**found, **({"array": system["array"]} if "array" in system else {})},))


def test_slurm_shows_the_same_job_of_a_script_and_of_its_jobspec(on_slurm: Slurm, tmp_path: Path) -> None:
    """By the pure translation and by the executor: nothing is dropped, nothing is asked for twice."""
    script = tmp_path / "job.sh"
    script.write_text(SCRIPT)
    now = datetime.now().astimezone()
    beside: list[tuple[str, str, str]] = []  # the call, the number of the user's job, that of ours
    for line in CASES["beside"]:
        words = line.split()
        plain = held(on_slurm, words, script)
        document, _ = jobspec_of_call(read_call(SCRIPT, [*words, "job.sh"], {}, "job.sh"), Caller(now, str(tmp_path)))
        request = parse_jobspec(document)
        calls = [call_of(request, now.tzinfo).argv(), handed_over(request, on_slurm.nodes).argv()]
        different = {tuple(call) for call in calls} if plain else ()
        beside += [(f"{line} -> {' '.join(argv)}", plain, held(on_slurm, argv, script)) for argv in different]
    assert [call for call, _, ours in beside if not ours] == []
    said = {
        job: fields(record) for job, record in on_slurm.records({job for row in beside for job in row[1:]}).items()
    }
    differing = {
        call: [(key, said[one].get(key), said[other].get(key)) for key in said[one] | said[other]]
        for call, one, other in beside
        if said[one] != said[other]
    }
    assert differing == {}
    assert len({plain for _, plain, _ in beside}) > len(CASES["beside"]) * 0.8
