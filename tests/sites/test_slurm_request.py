"""A request goes over to Slurm whole or is refused in words: options of sbatch, and what Slurm makes of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.agent import Run
from rainbow.agent.executors.shared_folder import given_in
from rainbow.agent.executors.slurm.call import INDEX, CallPlace, placed
from rainbow.agent.executors.slurm.call import SbatchCall as Asked
from rainbow.agent.executors.slurm.call import call_of as call_of_run
from rainbow.jobspec import Request, parse_jobspec
from rainbow.jobspec.handover import handover
from rainbow.jobspec.sbatch import GivenOptions, Surroundings, call_of, jobspec_of_call, read_call
from rainbow.jobspec.sbatch.request import Carried, NotCarriedError, carried, site_options
from rainbow.scheduling import gangs
from rainbow.testing.executors import until
from tests.support.slurm import Slurm, slurm

CASES = yaml.load((Path(__file__).parents[1] / "cases" / "slurm" / "requests.yaml").read_text(), yaml.CSafeLoader)
SCRIPTS = yaml.load((Path(__file__).parents[1] / "cases" / "sbatch.yaml").read_text(), yaml.CSafeLoader)["beside"]
HOSTS = ["n0001", "n0002", "n0003", "n0004"]
SAID = [case for case in CASES if "words" in case]


def asked(document: dict[str, Any]) -> Carried:
    document = {"tasks": [{"command": ["true"]}], **document}
    request = parse_jobspec(document)
    [gang] = gangs(request)
    return carried(
        handover(request, gang.tasks[0].labels, len(gang.tasks), request.name, "ann"), request.duration, HOSTS
    )


def words(result: Carried) -> list[str]:
    return GivenOptions(result.components).argv()


def called(case: dict[str, Any]) -> str:
    return str(case["name"])


@pytest.mark.parametrize("case", SAID, ids=called)
def test_request_is_said_in_options_of_sbatch(case: dict[str, Any]) -> None:
    result = asked(case["jobspec"])
    assert words(result) == shlex.split(case["words"])
    assert list(result.notes) == case.get("notes", [])


@pytest.mark.parametrize("case", [case for case in CASES if "refused" in case], ids=called)
def test_what_slurm_cannot_be_told_is_refused_in_words(case: dict[str, Any]) -> None:
    with pytest.raises(NotCarriedError) as caught:
        asked(case["jobspec"])
    assert str(caught.value) == case["refused"]


def test_value_of_an_option_stays_one_word() -> None:
    assert site_options({"comment": "a\n#SBATCH --uid=0\0b"}) == {"comment": "a #SBATCH --uid=0 b"}


# ── beside a plain sbatch: Slurm shows the same job (contract 12.1) ──

RICH = """
GresTypes=gpu
Licenses=matlab:4,ansys:2
SelectTypeParameters=CR_Core_Memory
PartitionName=night Nodes=n0003,n0004 MaxTime=INFINITE State=UP
"""
HAS = {"n0001": "Feature=fast,std", "n0002": "Feature=std,ib", "n0003": "Feature=fast,ib,std Gres=gpu:a100:2"}
HAS["n0004"] = HAS["n0003"]
# what is another in every job
OTHER = {"JobId", "ArrayJobId", "HetJobId", "HetJobIdSet", "SubmitTime", "EligibleTime", "AccrueTime", "StartTime"}
OTHER |= {"EndTime", "LastSchedEval", "Deadline", "PreemptEligibleTime", "RunTime", "Priority", "Command", "StdIn"}
OTHER |= {"Scheduler", "AllocNode:Sid", "Reason", "BatchHost"}
MARK = "rainbow=j/0/1/aa"
TMP = "/tmp"  # noqa: S108 - nothing is written: the jobs are held
# what Rainbow says where nobody says it; the files of a job have another number
PLAIN = f"--job-name=rainbow --chdir={TMP} --output=rainbow-%j.out"


class Rich(Slurm):
    """A Slurm with GPUs, properties, licences and disks."""

    def _configure(self, ports: list[int]) -> None:
        super()._configure(ports)
        text = self.conf.read_text().replace("SelectTypeParameters=CR_Core\n", "")
        for name, has in HAS.items():
            text = text.replace(f"NodeName={name} ", f"NodeName={name} TmpDisk=10000 {has} ")
        self.conf.write_text(text + RICH)
        gpus = "NodeName=n[0003-0004] Name=gpu Type=a100 File=/dev/tty[1-2]\n"
        (self.folder / "gres.conf").write_text(gpus)


@pytest.fixture(scope="module")
def rich() -> Iterator[Slurm]:
    with slurm(Rich) as made:
        yield made


def held(site: Slurm, said: Sequence[str], script: Path) -> str:
    """Return the number of a job that is submitted with these words, held; "": Slurm does not take it."""
    return site.run("sbatch", "--parsable", "--hold", *said, str(script)).strip()


def fields(record: str) -> dict[str, str]:
    """Return what a record says, with the job's own number and mark taken out."""
    job = record.split(maxsplit=1)[0].removeprefix("JobId=")
    text = record.replace(MARK, "").replace(f"-{job}.", "-N.")
    result = re.findall(r"(\S+?)=(.*?)(?= \S+=|\s*$)", text)
    return {key: value.strip() for key, value in result if key not in OTHER and value.strip() not in ("", "(null)")}


def by_executor(request: Request, name: str) -> Asked:
    """Return the call of sbatch with which the executor hands over a request, an array undivided."""
    answer = handover(request, request.tasks[0].slots, 1, name, "ann")
    system: Any = request.attributes.get("system") or {}
    array, folder = str(system.get("array") or ""), str(system.get("cwd") or TMP)
    environment = {INDEX: "0"} if array else {}
    run = Run(("j-0", 1), "j", ("true",), folder, environment, request.duration, request=answer)
    return call_of_run(run, carried(answer, request.duration, HOSTS), MARK, 1, CallPlace(Path(TMP), {}), ids=array)


def shown(site: Slurm, pairs: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Return the records of all jobs; each must be there."""
    assert [name for name, pair in pairs.items() if not all(pair)] == []
    return site.records({job for pair in pairs.values() for job in pair})


def differing(records: Mapping[str, str], pairs: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return where Slurm shows the two jobs of a pair differently."""
    said = {job: fields(record) for job, record in records.items()}
    results: dict[str, Any] = {}
    for name, (one, other) in pairs.items():
        keys = [key for key in said[one] | said[other] if said[one].get(key) != said[other].get(key)]
        results |= {name: [(key, said[one].get(key), said[other].get(key)) for key in keys]} if keys else {}
    return results


def test_request_is_shown_by_slurm_as_the_call_of_sbatch_that_the_table_names(rich: Slurm, tmp_path: Path) -> None:
    """Every row: only the number, times and the comment's mark differ; and it has what the request asks for."""
    script, cases = tmp_path / "job.sh", {}
    script.write_text("#!/bin/sh\ntrue\n")
    for case in SAID:
        request = parse_jobspec({"tasks": [{"command": ["true"]}], **case["jobspec"]})
        call = by_executor(request, request.name)
        script.write_text(call.script)
        plain = [*PLAIN.split(), *shlex.split(case["words"])]
        cases[case["name"]] = held(rich, plain, script), held(rich, call.words, script)
    records = shown(rich, cases)
    has = {name: set(records[ours].split()) for name, (_, ours) in cases.items()}
    assert [case["name"] for case in SAID if not set(case.get("slurm", "").split()) <= has[case["name"]]] == []
    assert differing(records, cases) == {}


@pytest.mark.parametrize("both", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_script_is_shown_by_slurm_as_sbatch_hands_it_over(both: bool, rich: Slurm, tmp_path: Path) -> None:
    """By its options alone (nothing is dropped) or by the executor (nothing is asked for twice)."""
    now, script, plain_script = datetime.now().astimezone(), tmp_path / "job.sh", tmp_path / "plain.sh"
    plain_script.write_text("#!/bin/sh\nsleep 1\n")
    beside: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(SCRIPTS):
        text = f"#!/bin/sh\n#SBATCH {PLAIN}\n#SBATCH {line}\nsleep 1\n"
        script.write_text(text)
        plain = held(rich, (), script)
        document, _ = jobspec_of_call(read_call(text, ["job.sh"], {}, "job.sh"), Surroundings(now, TMP))
        request = parse_jobspec(document)
        if both or number % 2:
            beside[f"{line} -> options alone"] = plain, held(rich, call_of(request, now.tzinfo).argv(), plain_script)
        if both or not number % 2:
            beside[line] = plain, held(rich, by_executor(request, request.name).words, script)
    assert differing(shown(rich, beside), beside) == {}
    assert len(SCRIPTS) >= 40


class Threaded(Slurm):
    """A Slurm whose nodes have four cores of two hardware threads."""

    def _configure(self, ports: list[int]) -> None:
        super()._configure(ports)
        text = self.conf.read_text().replace("CoresPerSocket=8", "CoresPerSocket=4")
        self.conf.write_text(text.replace("ThreadsPerCore=1", "ThreadsPerCore=2"))


@pytest.mark.soak
def test_cores_that_a_policy_has_placed_are_whole_cores_where_slurm_counts_threads() -> None:
    run = Run(("t", 1), "j", ("x",), placement={"n0001": {"core": 2}})
    call = GivenOptions(placed(run, pinned=True).components).argv()
    with slurm(Threaded) as threaded:
        send = ("sbatch", "--parsable", "--output=/dev/null", *call, "--wrap=sleep 30")
        jobs = [threaded.run(*send).strip() for _ in range(2)]
        until(lambda: threaded.run("squeue", "-h", "-t", "R", "-o", "%i").count("\n") == 2)
        node = threaded.run("scontrol", "-o", "show", "node", "n0001")
        held = [given_in(threaded.run("scontrol", "-d", "-o", "show", "job", job) + node) for job in jobs]
    assert held == [{"n0001": {"core": [0, 1]}}, {"n0001": {"core": [2, 3]}}]


def test_placed_cores_are_not_hardware_threads() -> None:
    run = Run(("t", 1), "j", ("x",), placement={"n1": {"core": 2}})
    assert {"cpus-per-task": "2", "threads-per-core": "1"}.items() <= placed(run, pinned=False).options.items()
