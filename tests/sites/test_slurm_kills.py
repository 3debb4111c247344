"""Agents that are killed, and away: nothing is lost or doubled, every end is told right (contract 12.2 and 12.5)."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Result, Run
from rainbow.agent.executors.slurm.executor import SlurmExecutor
from rainbow.testing.executors import ends, until
from tests.support.slurm import Slurm, slurm
from tests.support.slurm_accounting import Accounted, accounted

pytestmark = pytest.mark.soak
ROUNDS = int(os.environ.get("RAINBOW_KILLS", "200"))
SEED = int(os.environ.get("RAINBOW_KILLS_SEED", "7"))
SLOT = {"type": "slot", "count": 1, "label": "a", "with": [{"type": "core", "count": 1}]}
EACH = 2  # runs that an agent starts before it is killed
# an agent: starts what it has not told the end of, and some more; tells each end in a file before it asks again
AGENT = """
import json, os, sys, time
from pathlib import Path
from rainbow.agent import Run
from rainbow.agent.executors.slurm import executor as slurm, watcher
folder, last = Path(sys.argv[1]), int(sys.argv[2])
watcher.APART, watcher.QUICK, watcher.SLOW, watcher.COST = 4.0, 0.5, 0.5, 1.0
told = {json.loads(line)[0] for line in (folder / "told").read_text().splitlines()}
made = slurm.SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, folder / "state")
here = {run[0] for run in made.running()}
slot = {"type": "slot", "count": 1, "label": "a", "with": [{"type": "core", "count": 1}]}
for number in range(last):
    task = f"k-{number}"
    if task in told or task in here:
        continue
    body = f"echo {number} >> {folder}/lines; sleep 0.{number % 7}; exit {number % 3}"
    asked = {"name": task, "resources": [slot], "system": {"output": "/dev/null"}, "site": {}, "gang": 1}
    asked["script"] = f"#!/bin/sh\\n{body}\\n" if number % 2 else ""
    made.start(Run((task, 1), task, ("sh", "-c", body), "/tmp", request=asked))
while True:
    found = made.poll()
    with (folder / "told").open("a") as file:
        for end in found:
            file.write(json.dumps([end.id[0], str(end.result), end.exit_code, end.detail]) + "\\n")
    time.sleep(0.05)
"""
# what stands before sbatch: it works, is slow, fails in passing before and after, or kills the agent around its work
SBATCH = """#!/bin/sh
case $(($(od -An -N1 -tu1 /dev/urandom) % 8)) in
0) sleep 1; exec {real} "$@";;
1) echo "sbatch: error: Unable to contact slurm controller (connect failure)" >&2; exit 1;;
2) {real} "$@" > /dev/null; echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1;;
3) kill -9 $PPID; exit 1;;
4) {real} "$@" > /dev/null; kill -9 $PPID;;
5) (sleep 1; {real} "$@" > /dev/null) & kill -9 $PPID; wait;;
*) exec {real} "$@";;
esac
"""


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    with slurm() as made:
        monkeypatch.setenv("SLURM_CONF", str(made.conf))
        yield made


def agent_of(folder: Path, last: int, *first: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PATH": os.pathsep.join([*map(str, first), os.environ["PATH"]])}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    return subprocess.Popen([sys.executable, "-c", AGENT, str(folder), str(last)], env=environment)


@pytest.mark.timeout(1_500)
def test_200_kills_around_a_sbatch_that_is_slow_or_fails_lose_and_double_nothing(
    own: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, chance = tmp_path / "bin" / "sbatch", random.Random(SEED)
    bad.parent.mkdir()
    bad.write_text(SBATCH.format(real=shutil.which("sbatch")))
    bad.chmod(0o755)
    (tmp_path / "told").touch()
    (tmp_path / "lines").touch()
    how: Counter[str] = Counter()
    for number in range(ROUNDS):
        agent = agent_of(tmp_path, (number + 1) * EACH, bad.parent)
        try:
            agent.wait(chance.uniform(0.5, 1.8))
            how["by sbatch"] += 1
        except subprocess.TimeoutExpired:
            agent.kill()
            agent.wait()
            how["by us"] += 1
        assert agent.returncode == -signal.SIGKILL
    total = ROUNDS * EACH
    last = agent_of(tmp_path, total)
    try:
        until(lambda: len(told(tmp_path)) == total, 300)
    finally:
        last.kill()
        last.wait()
    happened = Counter(map(int, (tmp_path / "lines").read_text().split()))
    with capsys.disabled():
        print(f"\n{ROUNDS} kills {dict(how)}, {total} runs, starts: {dict(Counter(happened.values()))}")
    assert {number: times for number, times in happened.items() if times != 1} == {}
    assert sorted(happened) == list(range(total))
    assert {task: set(ends) for task, ends in told(tmp_path).items()} == {
        f"k-{number}": {("exited", number % 3)} for number in range(total)
    }


def told(folder: Path) -> dict[str, list[tuple[str, int]]]:
    results: dict[str, list[tuple[str, int]]] = {}
    for line in (folder / "told").read_text().splitlines():
        task, result, code, _ = json.loads(line)
        results.setdefault(task, []).append((result, code))
    return results


class Forgetful(Accounted):
    """A Slurm whose controller forgets what has ended within seconds, as others do while an agent is away an hour."""

    def _configure(self, ports: list[int]) -> None:
        super()._configure(ports)
        self.conf.write_text(self.conf.read_text().replace("MinJobAge=300", "MinJobAge=2"))


AWAY = (
    AGENT.partition("while True:")[0]
    + "while not all(one.native for one in made._active.values()):\n    time.sleep(0.1)\n"
)


@pytest.mark.timeout(600)
def test_100_jobs_that_ended_and_were_forgotten_while_the_agent_was_away_are_all_told_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with accounted(Forgetful) as site:
        monkeypatch.setenv("SLURM_CONF", str(site.conf))
        (tmp_path / "told").touch()
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        subprocess.run([sys.executable, "-c", AWAY, str(tmp_path), "100"], env=environment, check=False)
        until(lambda: site.run("sacct", "-a", "-X", "-n", "-o", "End").count("T") == 100, 200)
        until(lambda: not site.run("squeue", "-h", "-t", "all").strip(), 200)
        assert "JobId=" not in site.run("scontrol", "-o", "show", "job")
        again = SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, tmp_path / "state")
        try:
            result = ends(again, 100, seconds=120)
        finally:
            again.close()
    said = {task: (end.result, end.exit_code) for (task, _), end in result.items()}
    assert said == {f"k-{number}": (Result.EXITED, number % 3) for number in range(100)}
    assert Counter((tmp_path / "lines").read_text().split()) == Counter(map(str, range(100)))


def test_1000_equal_tasks_of_a_job_are_handed_over_in_2_s(
    own: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the first start until Slurm's number of each is known, by the clock, with the pause that agents make."""
    made = SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, tmp_path / "state")
    request: dict[str, Any] = {"name": "many", "tasks": 1_000, "resources": [SLOT], "system": {}, "gang": 1}
    request["site"] = {"slurm": {"begin": "now+1hour"}}
    begun = time.monotonic()
    for number in range(1_000):
        made.start(Run((f"e-{number}", 1), "e", ("echo", str(number)), request=request))
    until(lambda: all(one.native for one in made._active.values()), 30)
    took = time.monotonic() - begun
    queued = own.run("squeue", "-h", "-r", "-n", "many", "-o", "%F").split()
    own.run("scancel", "--name=many")
    made._active.clear()
    made.close()
    with capsys.disabled():
        print(f"\n1,000 equal tasks handed over in {took:.2f} s, in {len(set(queued))} arrays")
    assert len(queued) == 1_000
    assert took < 2


@pytest.mark.timeout(600)
def test_1000_different_jobs_are_handed_over_in_20_s_and_cost_little_to_watch(
    own: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At most 5 % of a core for the agent and its commands, 1 % for what they ask of slurmctld."""
    made = SlurmExecutor("shared", {"PATH": os.environ["PATH"]}, tmp_path / "state")
    site: dict[str, Any] = {"slurm": {"begin": "now+1hour"}}
    begun = time.monotonic()
    for number in range(1_000):
        request = {"name": f"one-{number}", "resources": [SLOT], "system": {}, "site": site, "gang": 1}
        made.start(Run((f"d-{number}", 1), f"d{number}", ("echo", str(number)), request=request))
    until(lambda: all(one.native for one in made._active.values()), 120)
    took = time.monotonic() - begun
    time.sleep(32)  # until changes are no more
    own.run("sdiag", "-r")
    before, begun = used(), time.monotonic()
    while time.monotonic() < begun + 60:
        made.poll()
        made.pending()
        time.sleep(0.2)
    seconds = time.monotonic() - begun
    share, asked_of = (used() - before) / seconds, controller(own) / seconds
    own.run("scancel", "--user=root")
    made._active.clear()
    made.close()
    with capsys.disabled():
        print(f"\n1,000 handed over in {took:.1f} s; agent {share:.1%} of a core, slurmctld {asked_of:.2%}")
    assert took < 20
    assert share < 0.05
    assert asked_of < 0.01


def used() -> float:
    """Return the processor time of this process and of the commands it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def controller(site: Slurm) -> float:
    """Return for how many seconds slurmctld has served our questions, as sdiag says."""
    rows = [line.split() for line in site.run("sdiag").splitlines() if "REQUEST_JOB_INFO" in line]
    return sum(float(part.partition(":")[2]) for row in rows for part in row if part.startswith("total_time")) / 1e6
