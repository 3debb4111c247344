"""The command line: a jobspec file, or a command after -- with a few numbers; durations as users write them."""

from __future__ import annotations

import pytest

from rainbow.cli.exit_codes import INTERRUPTED, Exit
from rainbow.client import Client
from rainbow.jobspec.times import seconds_of
from tests.conftest import REGISTRATION, grid
from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures

SECRET = {"RAINBOW_REGISTRATION_SECRET": REGISTRATION}
JOBSPEC = {
    "version": 1,
    "resources": [{"type": "slot", "label": "default", "count": 1, "with": [{"type": "core", "count": 1}]}],
    "tasks": [{"command": ["true"], "slot": "default", "count": {"per_slot": 1}}],
}


@pytest.mark.parametrize("verb", ["submit", "match"])
@pytest.mark.parametrize("numbers", [["-n", "2"], ["-c", "1"], ["-g", "1"], ["-t", "5"], ["-n", "2", "-t", "5"]])
def test_numbers_beside_a_jobspec_are_refused(shell: Shell, verb: str, numbers: list[str]) -> None:
    result = shell(verb, shell.file("hello.json", JOBSPEC), *numbers)
    assert result.exit_code == Exit.USAGE
    assert "-n, -c, -g and -t go with a command after --" in result.stderr


def test_a_file_after_dashes_is_a_command(shell: Shell) -> None:
    script = shell.file("job.sh", "#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    assert "ran" in shell("submit", "--wait", "-n", "1", "--", script).stdout
    assert "ran" in shell("submit", "--wait", "--", script).stdout


def test_a_command_alone_gets_one_core(shell: Shell) -> None:
    job = shell.json("submit", "--wait", "--", "echo", "here")
    assert (job["state"], job["tasks"][0]["output"]) == ("COMPLETED", "here\n")
    assert shell.json("job", "show", job["id"])["tasks"][0]["placement"] in ({"n0": {"core": 1}}, {"n1": {"core": 1}})
    assert shell.code("match", "--", "hostname") is Exit.OK
    assert shell.code("submit", "hostname") is Exit.USAGE
    for words in (["hostname"], ["-N", "1", "misspelt.sh"], ["-c", "2", "./misspelt.yaml", "argument"]):
        assert "not found; to submit a command, put it after --" in shell("submit", *words).stderr


def test_a_file_and_a_command_are_not_both(shell: Shell) -> None:
    result = shell("submit", shell.file("hello.json", JOBSPEC), "--", "true")
    assert result.exit_code == Exit.USAGE
    assert "not both" in result.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90", 90),
        ("2.5", 2.5),
        ("250ms", 0.25),
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1.5h", 5400),
        ("1d", 86400),
        ("01:30:00", 5400),
        ("100:00:01", 360001),
        ("1-12:00:00", 129600),
        ("30:00", 1800),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("UNLIMITED", 0),
        ("", None),
        ("-5", None),
        ("10 m", None),
        ("1w", None),
        ("1:99:00", 9540),  # as sbatch reads it
        ("nan", None),
        ("inf", None),
        ("1e9", None),
        ("٣", None),
        ("9" * 400, None),
    ],
)
def test_durations_are_read(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_a_limit_of_time_is_kept(shell: Shell) -> None:
    assert shell("submit", "--wait", "-t", "300ms", "--", "sleep", "60").exit_code == Exit.JOB_FAILED
    result = shell("submit", "-t", "soon", "--", "true")
    assert result.exit_code == Exit.USAGE
    assert "invalid duration 'soon': expected seconds, or a duration such as 90s, 10m, 2h, 1d" in result.stderr
    assert shell.code("reserve", "create", "--cluster", "oak", "-n", "1", "-t", "0") is Exit.USAGE


@pytest.mark.parametrize("words", [("submit", "--wait", "--"), ("sbatch", "--wait", "--wrap")])
def test_interrupting_the_wait_says_that_the_job_continues(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "wait", interrupted)
    result = shell(*words, "true")
    assert result.exit_code == INTERRUPTED
    job = shell("job", "last").stdout.strip()
    assert f"job {job} continues; rainbow job cancel {job} ends it" in result.stderr


def test_match_names_the_file_of_a_refused_jobspec(shell: Shell) -> None:
    assert f"{shell.file('bad.yaml', 'resources: 7')}: " in shell("match", shell.folder / "bad.yaml").stderr


def test_a_name_that_may_not_be_is_answered_in_words(shell: Shell) -> None:
    result = shell("cluster", "register", shell.file("graph.json", grid(1, 1)), "--name", "a b", **SECRET)
    assert "name must be 1 to 100 letters, digits, dots, underscores or hyphens, a letter or " in result.stderr
    assert 'got "a b"' in result.stderr
