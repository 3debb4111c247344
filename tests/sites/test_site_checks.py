"""What a site would refuse is refused before the job is accepted, in its words; nobody asks, nothing is asked."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Executor
from rainbow.agent.cluster_survey import survey
from rainbow.agent.executors.slurm.accounts import Identity
from rainbow.agent.executors.slurm.executor import SlurmExecutor
from rainbow.client import Client, Problem
from rainbow.service.placement import site_checks
from rainbow.testing.executors import until
from tests.conftest import REGISTRATION, grid, jobspec
from tests.support.live import agent_of, rainbow_at
from tests.support.slurm import Slurm

FORBIDDING = "users: {ann: root}\nforbidden: [reservation, partition=short]\n"


@dataclass
class Sites:
    """A server, and clusters that are one Slurm, each with an agent of its own."""

    url: str
    stack: ExitStack
    folder: Path
    tokens: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, users: str = "", executor: Executor | None = None) -> Executor:
        with Client(self.url, REGISTRATION) as registering:
            made = registering.register_cluster(name, grid(4, 8), policy={"name": "delegate"})
        self.tokens[name], self.secrets[name] = made["token"], made["secret"]
        file = self.folder / f"{name}.yaml"
        file.write_text(users)
        identity = Identity("service", file) if users else None
        runs = executor or SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, self.folder / name, identity)
        self.stack.enter_context(agent_of(self.url, name, made["secret"], runs))
        with Client(self.url, made["secret"]) as owner:
            until(lambda: any(one["state"] == "READY" for one in owner.workers(name)), 10)
        return runs

    @property
    def user(self) -> Client:
        return self.stack.enter_context(Client(self.url, list(self.tokens.values())))

    def rainbow(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        tokens = ",".join(self.tokens.values())
        environment = {**os.environ, "RAINBOW_URL": self.url, "RAINBOW_TOKEN": tokens, "COLUMNS": "160"}
        command = [sys.executable, "-m", "rainbow", *words]
        return subprocess.run(command, env=environment, input=text, capture_output=True, text=True)


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    monkeypatch.setattr(site_checks, "NOTED", 0.0)
    with ExitStack() as stack:
        yield Sites(stack.enter_context(rainbow_at(tmp_path)), stack, tmp_path)


@pytest.fixture
def enforcing(on_slurm: Slurm) -> Iterator[None]:
    """Let Slurm refuse what a partition's limits do not allow, as many sites do."""
    text = on_slurm.conf.read_text()
    on_slurm.conf.write_text(f"{text}EnforcePartLimits=ALL\n")
    on_slurm.run("scontrol", "reconfigure")
    yield
    on_slurm.conf.write_text(text)
    on_slurm.run("scontrol", "reconfigure")


def next_number() -> int:
    """Return the number that Slurm gives to this question."""
    said = subprocess.run(["sbatch", "--test-only", "--wrap=true"], capture_output=True, text=True).stderr
    return int(re.findall(r"Job (\d+) to start", said)[0])


def spec(**site: Any) -> dict[str, Any]:
    made = jobspec(command=["true"])
    made["resources"] = [{"type": "slot", "count": 1, "label": "it", "with": [{"type": "core", "count": 1}]}]
    made["attributes"] = {"system": {"duration": 60}, **({"site": {"slurm": site}} if site else {})}
    return made


SCRIPT = "#!/bin/sh\n#SBATCH -n 1\ntrue\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-p", "nosuch"], "nosuch|[Ii]nvalid partition"),
        (["--reservation=nosuch"], "reservation"),
        (["-p", "short", "-t", "60"], "time limit|Requested time"),
    ],
)
@pytest.mark.usefixtures("enforcing")
def test_what_slurm_would_refuse_is_refused_at_submit_in_its_words_and_makes_no_job(
    options: list[str], words: str, on_slurm: Slurm, sites: Sites
) -> None:
    sites.add("oak")
    before = on_slurm.run("squeue", "-h", "-t", "all", "-o", "%i").split()
    done = sites.rainbow("sbatch", *options, text=SCRIPT)
    assert done.returncode != 0, done.stdout
    assert "Submitted" not in done.stdout
    assert re.search(words, done.stdout + done.stderr), done.stdout + done.stderr
    assert sites.user.jobs()["jobs"] == []
    assert on_slurm.run("squeue", "-h", "-t", "all", "-o", "%i").split() == before


def test_a_second_site_that_takes_it_gets_it(on_slurm: Slurm, sites: Sites) -> None:
    sites.add("ash", FORBIDDING)
    sites.add("elm")
    made = sites.user.submit(spec(partition="short"), requestor="ann")
    assert made["cluster"] == "elm"
    assert made["decision"]["check"]["result"] == "passed"
    [refusal] = made["decision"]["refusals"]
    assert (refusal["cluster"], refusal["reason"]) == ("ash", "site-refuses")
    assert "this site forbids --partition=short" in refusal["text"]
    answer = sites.user.match(spec(partition="short"), login="ann")
    assert [one["cluster"] for one in answer["candidates"]] == ["elm"]
    assert sites.user.wait(made["id"], 60)["state"] == "COMPLETED"


def test_a_requestor_without_an_account_is_refused_by_name(on_slurm: Slurm, sites: Sites) -> None:
    del on_slurm
    file = sites.folder / "mapped.yaml"
    file.write_text("users: {ann: nobody}\n")
    executor = SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, sites.folder / "oak", Identity("root", file))
    sites.add("oak", executor=executor)
    with pytest.raises(Problem) as refused:
        sites.user.submit(spec(), requestor="bob")
    assert "requestor bob has no account at this site" in str(refused.value)
    assert sites.user.jobs()["jobs"] == []


@pytest.mark.soak  # after the tests above it counted 13 numbers, alone 11: whose the two are is open
def test_ten_users_cost_ten_numbers_a_minute_and_nobody_costs_none(on_slurm: Slurm, sites: Sites) -> None:
    del on_slurm
    runs = sites.add("oak")
    first = next_number()
    for _ in range(3):
        for user in range(10):
            sites.user.match(spec(), login=f"user{user}")
    assert first < next_number() <= first + 11
    first = next_number()
    answers = [survey("slurm", runs.waits()).state for _ in range(5)]  # type: ignore[attr-defined]
    assert next_number() == first + 1
    assert answers[0]["expected_wait_1"] == 0


def test_a_site_that_is_slow_or_away_takes_the_job_unchecked(
    on_slurm: Slurm, sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del on_slurm
    slow, real = tmp_path / "bin" / "sbatch", shutil.which("sbatch")
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\ncase "$*" in *--test-only*) sleep 4;; esac\nexec {real} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    sites.add("oak")
    made = sites.user.submit(spec())
    assert made["decision"]["check"] == {"result": "unchecked"}
    assert sites.user.wait(made["id"], 60)["state"] == "COMPLETED"
