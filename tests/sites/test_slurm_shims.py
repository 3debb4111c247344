"""Slurm's own squeue and scontrol, and those in front of it, say the same of the same jobs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rainbow.cli.slurm.shims import COMMANDS, FILE, text_of
from tests.scenarios.test_end_to_end import Processes, until
from tests.support.live import rainbow_at
from tests.support.registering import agent, processes_of
from tests.support.slurm import Slurm

JOBS = {  # name: options and command; ours go through Rainbow to the same Slurm
    "runs": ("-n2", "-t20", "--wrap=sleep 300"),
    "array": ("-a1-3", "-t30", "--wrap=sleep 300"),
    "fails": ("-t5", "--wrap=exit 3"),
    "ends": ("-t5", "--wrap=true"),
    "nodes": ("-N2", "-t1:00:00", "--wrap=sleep 300"),
    "held": ("-H", "-t10", "--wrap=true"),
}
FORMATS = ["%j|%T", "%t %j", "%.10j %.2t", "%j|%C|%D", "%j|%l", "%j|%u", "%j|%r", "%j|%P", "%10j|%-2t|%K"]
LONG = ["Name,State", "Name:8,StateCompact:.4", "Name,NumCPUs,NumNodes", "Name,TimeLimit", "Name,UserName,Reason"]
FIELDS = ["JobName", "JobState", "Reason", "NumNodes", "TimeLimit", "NumTasks", "ExitCode", "BatchFlag", "StdIn"]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with processes_of(tmp_path) as made:
        yield made


def lines(text: str, own: set[str]) -> list[str]:
    """Return the lines of some jobs, without order."""
    return sorted(line for line in text.splitlines() if any(re.search(rf"\b{name}\b", line) for name in own))


@pytest.mark.soak  # one time in three jobs stay pending for a minute; the cause is open
def test_slurm_and_the_commands_in_front_of_it_say_the_same(
    tmp_path: Path, processes: Processes, on_slurm: Slurm
) -> None:
    with rainbow_at(tmp_path) as url:
        agent(processes, url, "oak", "--executor", "slurm", "--identity", "service", "--quiet")
        until(lambda: (tmp_path / "credentials.json").exists())
        (tmp_path / FILE).write_text(text_of(url, str(tmp_path / "credentials.json")))
        (tmp_path / FILE).chmod(0o755)
        for name in COMMANDS:
            (tmp_path / name).symlink_to(FILE)

        def ours(*words: str) -> str:
            done = subprocess.run([tmp_path / words[0], *words[1:]], capture_output=True, text=True, cwd=tmp_path)
            assert (done.returncode, done.stderr) == (0, ""), (words, done)
            return done.stdout

        numbers = {
            name: int(ours("sbatch", "--parsable", "-o/dev/null", "-J", name, *options))
            for name, options in JOBS.items()
        }
        on_time = {"runs": "RUNNING", "fails": "FAILED", "ends": "COMPLETED", "nodes": "RUNNING", "held": "PENDING"}
        states = dict.fromkeys(("array", *on_time))

        def there() -> bool:
            for line in ours("squeue", "-h", "-t", "all", "-r", "-o", "%j %T").splitlines():
                name, _, state = line.partition(" ")
                states[name] = state
            return all(states[name] == state for name, state in on_time.items()) and states["array"] == "RUNNING"

        until(there, 60)
        names = set(JOBS) - {"held"}  # what is held here has not been handed over
        compared = 0
        for words in [*(("-o", text) for text in FORMATS), *(("-O", text) for text in LONG)]:
            for more in ([], ["-r"], ["-t", "R"]):
                call = ("squeue", "-h", *(["-t", "all"] if "-t" not in more else []), *more, *words)
                assert lines(ours(*call), names) == lines(on_slurm.run(*call), names), call
                compared += 1
        for name in ("runs", "fails", "nodes"):
            theirs = on_slurm.run("squeue", "-h", "-t", "all", "-n", name, "-o", "%i").split()[-1]
            one, other = (
                ours("scontrol", "show", "job", str(numbers[name])),
                on_slurm.run("scontrol", "show", "job", theirs),
            )
            for field in FIELDS:
                results = [re.search(rf"\b{field}=(\S*)", text) for text in (one, other)]
                assert [each and each[1] for each in results] == [results[1] and results[1][1]] * 2, (name, field)
                compared += 1
        assert compared >= 60
        ours("scancel", *map(str, numbers.values()))
        until(lambda: not lines(ours("squeue", "-h", "-o", "%j"), set(JOBS)), 60)
