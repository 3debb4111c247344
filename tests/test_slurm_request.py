"""A request goes over to Slurm whole or is refused in words: options of sbatch, and what Slurm makes of them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.agent import Run
from rainbow.agent.executors.shared_folder import given_in
from rainbow.agent.executors.slurm.call import placed
from rainbow.jobspec import parse_jobspec
from rainbow.jobspec.handover import handover
from rainbow.jobspec.sbatch import Call
from rainbow.jobspec.sbatch.request import Carried, NotCarriedError, carried, site_options
from rainbow.scheduling import gangs
from rainbow.testing.runs import until
from tests.slurm import Slurm, slurm

CASES = yaml.load((Path(__file__).parent / "cases" / "slurm" / "requests.yaml").read_text(), yaml.CSafeLoader)
HOSTS = ["n0001", "n0002", "n0003", "n0004"]
SAID = [case for case in CASES if "words" in case]


def asked(document: dict[str, Any]) -> Carried:
    document = {"tasks": [{"command": ["true"]}], **document}
    request = parse_jobspec(document)
    [gang] = gangs(request)
    return carried(
        handover(request, gang.tasks[0].labels, len(gang.tasks), request.name, "ann"), request.duration, HOSTS
    )


def words(found: Carried) -> list[str]:
    return Call(found.components).argv()


def called(case: dict[str, Any]) -> str:
    return str(case["name"])


@pytest.mark.parametrize("case", SAID, ids=called)
def test_request_is_said_in_options_of_sbatch(case: dict[str, Any]) -> None:
    found = asked(case["jobspec"])
    assert words(found) == shlex.split(case["words"])
    assert list(found.notes) == case.get("notes", [])


@pytest.mark.parametrize("case", [case for case in CASES if "refused" in case], ids=called)
def test_what_slurm_cannot_be_told_is_refused_in_words(case: dict[str, Any]) -> None:
    with pytest.raises(NotCarriedError) as caught:
        asked(case["jobspec"])
    assert str(caught.value) == case["refused"]


def test_value_of_an_option_stays_one_word() -> None:
    assert site_options({"comment": "a\n#SBATCH --uid=0\0b"}) == {"comment": "a #SBATCH --uid=0 b"}


def test_slurm_has_what_was_asked_for(on_slurm: Slurm) -> None:
    cases = {}
    for case in [case for case in SAID if "slurm" in case]:
        held = ("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true")
        cases[on_slurm.run(*held, *words(asked(case["jobspec"]))).strip().partition(";")[0]] = case
    for job, shown in on_slurm.records(cases).items():
        assert set(cases[job]["slurm"].split()) <= set(shown.split()), (cases[job]["name"], shown)


class Threaded(Slurm):
    """A Slurm whose nodes have four cores of two hardware threads."""

    def _configure(self, ports: list[int]) -> None:
        super()._configure(ports)
        text = self.conf.read_text().replace("CoresPerSocket=8", "CoresPerSocket=4")
        self.conf.write_text(text.replace("ThreadsPerCore=1", "ThreadsPerCore=2"))


@pytest.mark.soak
def test_cores_that_a_policy_has_placed_are_whole_cores_where_slurm_counts_threads() -> None:
    run = Run(("t", 1), "j", ("x",), placement={"n0001": {"core": 2}})
    call = Call(placed(run, pinned=True).components).argv()
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
