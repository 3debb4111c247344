"""Slurm's commands over Rainbow, as a user types them: a day, what is refused, and the words of its errors."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rainbow.slurm.job_rows import SHORT
from tests.support.agent_sites import until
from tests.support.asking import shared_folder
from tests.support.shell import Shell, server, shell
from tests.unit.slurm.commands import Commands, slurm

__all__ = ["server", "shell", "slurm"]  # fixtures

SCRIPT = "#!/bin/bash -u\necho $SLURM_JOB_ID\nuntil [ -e go ]; do sleep 0.1; done\nexit ${1-0}\n"


def test_a_day_with_slurms_commands(slurm: Commands, shell: Shell) -> None:
    """An array of which one element may not run yet: submitted, looked at, canceled, remembered."""
    path = shell.file("job.sh", SCRIPT)
    number = int(re.fullmatch(r"Submitted batch job (\d+)\n", slurm("sbatch", "-a", "1-3%2", "-c", "2", path))[1])  # type: ignore[index]
    until(lambda: slurm("squeue", "-h", "-t", "R", "-o", "%i") == f"{number}_2\n{number}_1\n")
    lines = slurm("squeue", "--me").splitlines()
    assert lines[0] == "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
    assert lines[1].split() == [f"{number}_[3%2]", "oak", "job.sh", "root", "PD", "0:00", "1", "(JobArrayTaskLimit)"]
    assert {line.split()[4] for line in lines[2:]} == {"R"}
    assert slurm("sacct", "-X", "-n", "-P", "-o", "JobIDRaw,State", "-j", number).splitlines() == [
        f"{number + 1}|RUNNING",
        f"{number + 2}|RUNNING",
        f"{number}|PENDING",
    ]
    assert f"JobId={number} ArrayJobId={number} ArrayTaskId=3%2" in slurm("scontrol", "show", "job", f"{number}_3")
    shell.file("go", "")
    until(lambda: slurm("squeue", "-h", "-j", number) == "")
    assert slurm("sacct", "-X", "-n", "-P", "-o", "JobID,State,ExitCode", "-j", number).splitlines() == [
        f"{number}_{k}|COMPLETED|0:0" for k in (1, 2, 3)
    ]
    assert (shell.folder / f"slurm-{number}_1.out").read_text() == f"{number + 1}\n"
    assert "COMPLETED" in slurm("squeue", "-t", "all", "-o", "%T", "-j", number)


def test_what_fails_is_told_in_slurms_words(slurm: Commands, shell: Shell) -> None:
    answer = json.loads((shared_folder() / "inputs" / "slurm-errors.json").read_text())
    shell.file("e.sh", "#!/bin/sh\nexit 3\n")
    ended = slurm("sbatch", "--parsable", "e.sh").strip()
    until(lambda: slurm("sacct", "-X", "-n", "-o", "State", "-j", ended).strip() == "FAILED")
    for case in answer:
        words = shlex.split(case["call"].replace("3 (ended)", ended))
        done = slurm.run(*words)
        assert (done.stdout + done.stderr, done.returncode) == (case["text"], case["exit"]), case["call"]


def test_a_failed_job_has_slurms_code_and_reason(slurm: Commands, shell: Shell) -> None:
    shell.file("fail.sh", "#!/bin/sh\nexit 3\n")
    assert slurm.run("sbatch", "-W", "fail.sh").returncode == 3
    [line] = slurm("squeue", "-h", "-t", "F", "-O", "JobArrayID,StateCompact,Reason").splitlines()[:1]
    assert line.split()[1:] == ["F", "NonZeroExitCode"]
    killed = slurm("sbatch", "--parsable", "--wrap", "kill -9 $$").strip()
    until(lambda: "FAILED|0:9" in slurm("sacct", "-X", "-n", "-P", "-o", "State,ExitCode", "-j", killed))


def test_an_environment_goes_with_the_job_and_no_credential(slurm: Commands, shell: Shell) -> None:
    shell.file("env.sh", "#!/bin/sh\nenv\n")
    assert slurm.run("sbatch", "-W", "-oenv.out", "env.sh", OWN="kept", RAINBOW_SECRET="rbs_secret").returncode == 0
    written = (shell.folder / "env.out").read_text()
    assert "OWN=kept\n" in written
    assert "rbs_secret" not in written


def test_clusters_and_partitions_choose_a_cluster(slurm: Commands, shell: Shell) -> None:
    shell.file("plain.sh", "#!/bin/sh\n")
    assert re.fullmatch(r"Submitted batch job \d+ on cluster oak\n", slurm("sbatch", "-M", "oak", "plain.sh"))
    assert re.fullmatch(r"\d+;oak\n", slurm("sbatch", "--parsable", "--clusters=oak", "plain.sh"))
    assert re.fullmatch(r"\d+\n", slurm("sbatch", "--parsable", "-p", "oak", "plain.sh"))
    assert "invalid entry for --cluster" in slurm.run("sbatch", "-M", "elm", "plain.sh").stderr
    shell.file("chosen.sh", "#!/bin/sh\n#SBATCH -M oak\n")
    assert " on cluster oak\n" in slurm("sbatch", "chosen.sh")
    assert slurm("squeue", "-M", "oak").startswith("CLUSTER: oak\n")


def test_why_no_cluster_takes_a_job_is_said(slurm: Commands, shell: Shell) -> None:
    shell.file("plain.sh", "#!/bin/sh\n")
    done = slurm.run("sbatch", "--mem=1500", "plain.sh")
    assert done.stderr.splitlines() == [
        "sbatch: error: oak: the cluster has no resource of type memory",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
    ]


def test_steps_run_inside_a_job(slurm: Commands, shell: Shell) -> None:
    shell.file(
        "step.sh", "#!/bin/sh\nsrun -n2 --cpu-bind=q -o step_%t.out sh -c 'echo $SLURM_PROCID; exit $SLURM_PROCID'\n"
    )
    done = slurm.run("sbatch", "-W", "-n2", "step.sh", PATH=f"{slurm.folder}:/usr/bin:/bin")
    assert done.returncode == 1
    assert [(shell.folder / f"step_{rank}.out").read_text() for rank in (0, 1)] == ["0\n", "1\n"]
    assert "not carried" in slurm.run("srun", "hostname").stderr


def test_a_server_that_is_away_is_told(slurm: Commands) -> None:
    done = slurm.run("squeue", RAINBOW_URL="http://127.0.0.1:9")
    assert (done.stderr, done.returncode) == (
        "squeue: error: Unable to contact slurm controller (connect failure)\n",
        1,
    )


def test_other_files_are_never_overwritten(shell: Shell) -> None:
    folder = shell.folder / "bin"
    folder.mkdir()
    (folder / "squeue").write_text("mine")
    refused = shell("slurm-shims", folder)
    assert refused.exit_code != 0
    assert [one.name for one in folder.iterdir()] == ["squeue"]
    (folder / "squeue").unlink()
    assert shell("slurm-shims", folder).exit_code == shell("slurm-shims", folder).exit_code == 0
    assert shell.token not in "".join(one.read_text() for one in folder.iterdir())


def test_the_file_needs_nothing_of_rainbow(slurm: Commands) -> None:
    text = (slurm.folder / "rainbow-slurm-command").read_text()
    names = set(re.findall(r"^\s*(?:import|from) (\w+)", text, re.M))
    assert names <= sys.stdlib_module_names
    first = text.splitlines()[0].removeprefix("#!").split()
    assert subprocess.run([*first, "-c", "import rainbow"], capture_output=True, cwd="/").returncode != 0


HARD = ["%" + "i" * 10_000, "%999999999i", "%\x00i", "a\x1fb", "%i\n%j", "%.i", "%", "ü%j", "%20000i"]


@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
def test_no_format_breaks_a_row_or_the_server(slurm: Commands, shell: Shell, text: str) -> None:
    if "\x00" in text:
        with pytest.raises(ValueError, match="null"):
            slurm.run("squeue", "-o", text)
        return
    shell.file("plain.sh", "#!/bin/sh\n")
    slurm("sbatch", "-J", "two\nlines", "plain.sh")
    for words in (
        ("squeue", "-t", "all", "-h", "-o", text),
        ("sacct", "-X", "-n", "-o", text),
        ("sinfo", "-o", text),
    ):
        done = slurm.run(*words)
        assert len(done.stdout) <= 1 << 20
        assert done.returncode in (0, 1)
    rows = slurm("squeue", "-t", "all", "-h", "-o", "%i|%j").splitlines()
    assert all(re.fullmatch(r"\d+(_.*)?\|.+", row) for row in rows), rows


def test_states_are_slurms(slurm: Commands) -> None:
    states = set(slurm("sacct", "-a", "-X", "-n", "-P", "-S", "2020-01-01", "-o", "State").split("\n"))
    assert {one.partition(" by ")[0] for one in states if one} <= SHORT.keys()
    assert os.path.basename(Path(slurm.folder, "squeue").resolve()) == "rainbow-slurm-command"
