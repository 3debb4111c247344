"""A user who comes from sbatch: scripts and their options, by `rainbow submit`, `sbatch` and `jobspec`."""

from __future__ import annotations

import getpass
import re
from itertools import pairwise
from typing import Any

import pytest

from rainbow.cli.exit_codes import Exit
from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures

SCRIPT = """#!/bin/bash
#SBATCH -J hello -n 2
#SBATCH -a 1,3-4 -t 10
echo "$SLURM_JOB_NAME $SLURM_ARRAY_TASK_ID $1 in $PWD"
[ "$SLURM_ARRAY_TASK_ID" != 3 ] || exit 7
"""


def outputs(job: dict[str, Any]) -> list[str]:
    return [task["output"] for task in job["tasks"]]


def test_a_script_is_submitted_as_it_is(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options are read, its elements run with their ids, its arguments reach it, in the folder of the call."""
    monkeypatch.chdir(shell.folder)
    path = shell.file("job.sh", SCRIPT)
    job = shell.json("submit", path, "word")
    ended = shell.json("job", "show", job["id"]) if shell("job", "wait", job["id"]) else {}
    assert ended["name"] == "hello"
    assert outputs(ended) == [f"hello {k} word in {shell.folder}\n" for k in (1, 3, 4)]
    assert [task["exit_code"] for task in ended["tasks"]] == [0, 7, 0]


def test_sbatch_takes_the_options_of_sbatch(shell: Shell) -> None:
    path = shell.file("job.sh", SCRIPT)
    said = shell("sbatch", "-a", "0", "--wait", path, "-n", "x")
    assert re.fullmatch(r"Submitted batch job [0-9]+\n", said.stdout)
    assert said.exit_code == Exit.OK
    assert shell("sbatch", "--parsable", "-W", path).exit_code == 7
    made = shell("sbatch", "--parsable", "--wrap", "echo $0; exit 3", "-W")
    job = shell.json("job", "show", made.stdout.strip())
    assert (made.exit_code, job["name"]) == (3, "wrap")
    assert shell("sbatch", "-W", "-Q", "-a0", stdin=SCRIPT).exit_code == 0


def test_what_is_not_carried_is_told_or_refused(shell: Shell) -> None:
    """Never dropped silently."""
    path = shell.file("job.sh", "#!/bin/sh\n#SBATCH -p batch --mail-type=END --exclusive=user\ntrue\n#SBATCH -n 3\n")
    said = shell("sbatch", path)
    assert said.exit_code == Exit.OK
    answers = (
        "--exclusive=user: sent to the site",
        "line 4: ignored #SBATCH",
        "--mail-type: only clusters of kind slurm",
    )
    assert [words for words in answers if words not in said.stderr] == []
    unknown = shell("sbatch", "--nosuch", path)
    assert (unknown.exit_code, "unrecognized option '--nosuch'" in unknown.stderr) == (Exit.USAGE, True)
    refused = shell("sbatch", "--uid=0", path)
    assert refused.exit_code == Exit.ERROR
    assert "--uid cannot be carried: the site decides" in refused.stderr
    wrong = shell("sbatch", shell.file("wrong.sh", "#!/bin/sh\n#SBATCH --partiton=x\n"))
    assert "did you mean partition" in wrong.stderr
    assert "line 2" in wrong.stderr
    assert "begins with #!" in shell("sbatch", shell.file("none.sh", "true\n")).stderr


def test_test_only_says_where_and_submits_nothing(shell: Shell) -> None:
    path = shell.file("job.sh", SCRIPT)
    before = shell("history", "--format", "jobid", "-P").stdout
    assert "the job could run on oak" in shell("sbatch", "--test-only", path).stderr
    assert shell("sbatch", "--test-only", "-N", "9", "-n", "9", path).exit_code == Exit.NO_MATCH
    assert shell("history", "--format", "jobid", "-P").stdout == before


def test_n_counts_tasks_and_says_so_once(shell: Shell) -> None:
    """Nodes before; now Slurm's meaning."""
    first = shell(
        "submit", "--wait", "-n", "2", "-c", "2", "--", "sh", "-c", "echo $RAINBOW_TASK_RANK of $RAINBOW_TASK_COUNT"
    )
    assert sorted(re.findall(r"^\d of 2$", first.stdout, re.MULTILINE)) == ["0 of 2", "1 of 2"]
    again = shell("submit", "-n", "1", "--", "true")
    assert "-n is a number of tasks" not in again.stderr
    wide = shell.json("submit", "--wait", "-N", "2", "-n", "4", "--", "true")
    assert [len(task["placement"]) for task in wide["tasks"]] == [2]


def test_the_options_of_submit_mean_what_they_mean_to_sbatch(shell: Shell) -> None:
    words = ["-N", "1", "-n", "2", "-c", "1", "-a", "0-1%1", "-D", "/usr", "--export", "A=1", "-J", "mine"]
    said = ["--comment", "words", "-p", "batch", "-A", "me", "-q", "low", "-e", "err", "-o", "out", "-o", "json"]
    job = shell.json("submit", *words, *said, "--", "sh", "-c", "echo $A {index} $RAINBOW_ARRAY_INDEX $PWD")
    assert job["decision"]["warnings"]
    shell("job", "wait", job["id"])
    shown = shell.json("job", "show", job["id"])
    assert shown["name"] == "mine"
    assert outputs(shown) == [f"1 {k} {k} /usr\n" * 2 for k in (0, 1)]


def test_jobs_wait_for_each_other_by_short_ids(shell: Shell) -> None:
    first = shell.json("submit", "-H", "--", "true")["id"]
    second = shell.json("submit", "-d", f"afterok:{first[:14]}", "--", "true")["id"]
    assert shell.json("job", "show", second[:20])["wait"]["reason"] == "dependency"
    assert shell.json("job", "why", first)["wait"]["reason"] == "held"
    assert "several jobs begin with" in shell("job", "show", first[:5]).stderr
    assert "give at least 4 digits of an id" in shell("job", "show", first[:3]).stderr
    assert shell.code("job", "show", "ffff") is Exit.NOT_FOUND
    shell("job", "resume", first[:14])
    assert shell("job", "wait", second).exit_code == Exit.OK


def test_elements_run_so_many_at_once(shell: Shell) -> None:
    """%K of an array holds for every policy: with room for eight, two never overlap."""
    job = shell.json("submit", "-a", "0-3%1", "--", "sh", "-c", "date +%s%N; sleep 0.2; date +%s%N")["id"]
    wait = shell.json("job", "show", job)["wait"]
    assert wait is None or wait["reason"] != "fits-nowhere"
    shell("job", "wait", job)
    spans = sorted([int(word) for word in text.split()] for text in outputs(shell.json("job", "show", job)))
    assert len(spans) == 4
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_the_requestor_is_the_login_by_default(shell: Shell) -> None:
    job = shell.json("submit", "--", "true")["id"]
    assert shell.json("job", "show", job)["requestor"] == getpass.getuser()
    named = shell.json("submit", "--requestor", "ann", "--", "true")["id"]
    assert shell.json("job", "show", named)["requestor"] == "ann"
    limited = shell.json("token", "mint", "--cluster", "oak", "--requestor", "bob")["token"]
    other = shell.json("submit", "--", "true", RAINBOW_TOKEN=limited)["id"]
    assert shell.json("job", "show", other)["requestor"] == "bob"


def test_a_translation_needs_no_server(shell: Shell) -> None:
    path = shell.file("job.sh", SCRIPT)
    away = {"RAINBOW_URL": "http://127.0.0.1:9"}
    document = shell("jobspec", "--from", path, **away).stdout
    assert "array: 1,3-4" in document
    spec = shell.file("job.yaml", document)
    call = shell("jobspec", "--to", "sbatch", spec, **away).stdout
    assert call == "sbatch --ntasks=2 --cpus-per-task=1 --time=10 --job-name=hello --array=1,3-4\n"
    assert shell("jobspec", path, "--to", "sbatch", **away).stdout == call
    script = shell.file("again.sh", shell("jobspec", spec, "--to", "script", **away).stdout)
    assert (
        shell.json("jobspec", script, "--to", "json")["resources"]
        == shell.json("jobspec", path, "--to", "json")["resources"]
    )
    assert (
        shell.code("jobspec", shell.file("two.yaml", "resources: {a: {type: rack}}\n"), "--to", "sbatch")
        is Exit.ERROR
    )


def test_times_are_what_the_place_says(shell: Shell) -> None:
    """A bare number is minutes beside a script, as to sbatch, and seconds elsewhere, told once."""
    path = shell.file("job.sh", "#!/bin/sh\ntrue\n")
    spec = "resources: {a: {type: core}}\ntasks: [{command: [sleep, '60'], resources: a}]\n"
    assert shell.code("match", path, "-t", "10") is Exit.OK
    answer = shell("submit", "-t", "1", "--wait", "--", "sleep", "60")
    assert answer.exit_code == Exit.JOB_FAILED
    for limit in ("00:01", "0.5s", "250ms"):
        timed = shell.file("timed.yaml", f'{spec}attributes: {{system: {{duration: "{limit}"}}}}\n')
        assert shell("submit", "--wait", timed).exit_code == Exit.JOB_FAILED
    wrong = shell("submit", shell.file("wrong.yaml", f"{spec}attributes: {{system: {{duration: soon}}}}\n"))
    assert "duration is a number of seconds, or a duration" in wrong.stderr
