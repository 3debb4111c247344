"""The command line: jobs by their names, with one token for several users."""

from __future__ import annotations

import pytest

from rainbow.cli.exit_codes import Exit
from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures


def waiting(shell: Shell, name: str, **more: str) -> str:
    """Submit a job that waits, as some user."""
    words = ("submit", "--begin", "now+1hour", "-J", name, "--", "true")
    return str(shell.json(*words, **more)["id"])


@pytest.mark.parametrize("said", ["last", "$(rainbow job last)"])
def test_cancel_last_never_touches_another_users_job(shell: Shell, said: str) -> None:
    """The help and the README teach both forms; the credentials file is the same for both users."""
    bobs = waiting(shell, "bobs", LOGNAME="bob")
    alices = waiting(shell, "alices", LOGNAME="alice")
    job = said if said == "last" else shell("job", "last", LOGNAME="bob").stdout.strip()
    assert shell.code("job", "cancel", job, LOGNAME="bob") is Exit.OK
    states = {job["id"]: job["state"] for job in shell.json("jobs", "--all")}
    assert (states[bobs], states[alices]) == ("CANCELED", "WAITING")
    assert shell.json("job", "show", shell("job", "last", LOGNAME="alice").stdout.strip())["id"] == alices
    assert shell.code("job", "cancel", "last", LOGNAME="nobody-yet") is Exit.NOT_FOUND
    assert shell.json("job", "cancel", "last", LOGNAME="alice")["id"] == alices


def test_a_name_of_several_jobs_is_listed_and_none_is_touched(shell: Shell) -> None:
    jobs = [waiting(shell, "train") for _ in range(3)]
    numbers = [str(shell.json("job", "show", job)["number"]) for job in jobs]
    result = shell("job", "cancel", "train")
    assert result.exit_code == Exit.NOT_FOUND
    assert result.stderr == f"rainbow: 3 jobs are named train: {', '.join(reversed(numbers))}; give a number\n"
    assert {job["state"] for job in shell.json("jobs") if job["name"] == "train"} == {"WAITING"}
    for job in jobs[1:]:
        shell("job", "cancel", job)
    assert shell.json("job", "why", "train")["id"] == jobs[0]
    assert shell.json("job", "cancel", "train")["id"] == jobs[0]


@pytest.mark.parametrize("name", ["a/b", "x:y", "..", "two words", "-y", "\x1b[31m", "line\nbreak", "é‮x"])
def test_hostile_names_name_their_job(shell: Shell, name: str) -> None:
    job = waiting(shell, name)
    assert shell.json("job", "show", "--", name)["id"] == job
    assert shell.json("job", "cancel", "--", name)["id"] == job
