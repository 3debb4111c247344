"""The command line: every exit code, and when it is given."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from rainbow.cli.exit_codes import Exit
from tests.conftest import REGISTRATION, grid
from tests.support.live import Script, http, url_of
from tests.support.shell import ROOT, Shell, server, shell

__all__ = ["server", "shell"]  # fixtures


def test_a_job_that_completes_is_0_and_one_that_fails_7(shell: Shell) -> None:
    assert shell.code("submit", "--wait", "-n", "1", "--", "true") is Exit.OK
    assert shell.code("submit", "--wait", "-n", "1", "--", "sh", "-c", "exit 4") is Exit.JOB_FAILED


def test_a_jobspec_that_is_none_is_1_and_says_where(shell: Shell) -> None:
    result = shell("submit", shell.file("bad.yaml", "version: 1\nresources:\n  - type: node\n    count: [\n"))
    assert result.exit_code == Exit.ERROR
    assert re.search(r"^rainbow: .*line \d+", result.stderr)
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["submit"],
        ["submit", "no-such-file.yaml"],
        ["submit", "-n", "2"],
        ["submit", "-n", "0", "--", "true"],
        ["submit", "-N", "0", "--", "true"],
        ["submit", "--mem", "5Q", "--", "true"],
        ["submit", "--nice", "abc", "--", "true"],
        ["sbatch", "-n", "0", "--wrap", "true"],
        ["jobs", "--url", "ftp://localhost"],
        ["jobs", "--url", "127.0.0.1:8080"],
        ["reserve", "create", "--cluster", "oak", "-c", "1"],
        ["reserve", "create", "--cluster", "oak", "-c", "1", "-t", "9", "--start", "soon"],
        ["reserve", "maintenance", "n0", "--cluster", "oak", "--end", "2030-01-01T00:00:00Z"],
        ["token", "mint", "--cluster", "oak", "--expires", "soon"],
        ["submit", "a", "b"],
        ["submit", "--"],
        ["submit", "hostname"],
        ["match", "--selector-options", "x"],
        ["jobs", "--state", "odd"],
        ["jobs", "-o", "xml"],
        ["job", "show"],
        ["cluster", "register", "no-such-file.json", "--name", "x"],
        ["agent", "--cluster", "oak", "--executor", "no-such-executor"],
        ["serve", "--port", "100000"],
        ["config", "check", "no-such-file.yaml"],
    ],
)
def test_a_wrong_command_line_is_2(shell: Shell, words: Sequence[str]) -> None:
    assert shell.code(*words) is Exit.USAGE


def test_options_of_the_script_are_1_and_those_of_the_command_line_2(shell: Shell) -> None:
    bad, good = (shell.file(name, f"#!/bin/sh\n#SBATCH -n {name}\ntrue\n") for name in "01")
    assert shell.code("sbatch", bad) is Exit.ERROR
    assert shell.code("sbatch", "-n", "0", good) is Exit.USAGE


@pytest.mark.parametrize(
    "words",
    [
        ["reserve", "create", "--cluster", "oak", "-c", "1", "-t", "9", "--start", "2020-01-01T00:00:00Z"],
        ["token", "mint", "--cluster", "oak", "--expires", "2020-01-01T00:00:00Z"],
    ],
)
def test_a_time_in_the_past_is_1_for_no_cluster_is_asked_for(shell: Shell, words: Sequence[str]) -> None:
    result = shell(*words)
    assert (result.exit_code, "is in the past" in result.stderr) == (Exit.ERROR, True)


def test_what_fits_nowhere_is_3_with_the_reasons(shell: Shell) -> None:
    for verb in ("submit", "match"):
        result = shell(verb, "-N", "3", "--", "true")
        assert result.exit_code == Exit.NO_MATCH
        assert re.search(r"oak\s.*requested 3 nodes in total, the cluster has 2", result.stdout)
        match = shell(verb, "-o", "json", "-N", "3", "--", "true")
        assert match.exit_code == Exit.NO_MATCH
        assert json.loads(match.stdout)["refusals"][0]["cluster"] == "oak"


@pytest.mark.parametrize("verb", ["show", "why", "cancel", "wait"])
def test_a_job_nobody_knows_is_4(shell: Shell, verb: str) -> None:
    assert shell.code("job", verb, "nobody") is Exit.NOT_FOUND


def test_a_cluster_nobody_knows_is_4(shell: Shell) -> None:
    assert shell.code("cluster", "show", "elm") is Exit.NOT_FOUND
    assert shell.code("submit", "-n", "1", "--cluster", "elm", "--", "true") is Exit.NOT_FOUND


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "--token", "rbt_wrong"],
        ["state", "show", "--cluster", "oak", "--secret", "rbs_wrong"],
        ["agent", "--cluster", "oak", "--secret", "rbs_wrong"],
        ["worker", "list", "--cluster", "elm"],
        ["cluster", "register", "-", "--name", "elm"],
    ],
)
def test_a_wrong_or_missing_credential_is_5(shell: Shell, words: Sequence[str]) -> None:
    assert shell.code(*words, stdin="{}") is Exit.NOT_ALLOWED


def test_a_token_where_a_secret_is_needed_is_5(shell: Shell) -> None:
    words = ["state", "set", "--cluster", "oak", "--secret", shell.token, str(shell.file("state.json", {"price": 1}))]
    assert shell.code(*words) is Exit.NOT_ALLOWED


def test_a_name_that_is_taken_is_6(shell: Shell) -> None:
    words = ["cluster", "register", shell.file("oak.json", grid(1, 1)), "--name", "oak", "--secret", REGISTRATION]
    assert shell.code(*words) is Exit.CONFLICT


def test_a_server_that_is_away_is_75(shell: Shell) -> None:
    with http(Script([])) as port:
        pass
    result = shell("jobs", "--url", url_of(port))
    assert result.exit_code == Exit.UNAVAILABLE
    text = (
        f"rainbow: cannot reach the server at {url_of(port)}: Connection refused; check --url and that the server is"
    )
    assert result.stderr.startswith(text)


def test_a_wait_that_is_over_is_75(shell: Shell) -> None:
    job = shell.json("submit", "-n", "1", "--", "sleep", "60")["id"]
    assert shell.code("job", "wait", job, "--timeout", "0.1") is Exit.UNAVAILABLE
    assert shell.code("job", "cancel", job) is Exit.OK
    assert shell.code("job", "wait", job) is Exit.JOB_FAILED
    assert shell.code("job", "cancel", job) is Exit.OK  # it is canceled


def test_agent_ends_at_sigterm_with_0_and_with_a_wrong_secret_with_5(shell: Shell) -> None:
    command = [sys.executable, "-m", "rainbow", "agent", "--cluster", "oak"]
    variables = {
        **os.environ,
        **{key: value for key, value in shell.variables.items() if value},
        "PYTHONPATH": str(ROOT),
    }
    wrong = subprocess.run(
        [*command, "--secret", "rbs_wrong"], env=variables, capture_output=True, text=True, timeout=30
    )
    assert wrong.returncode == Exit.NOT_ALLOWED
    assert len(wrong.stderr.splitlines()) == 2
    with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True) as agent:
        assert agent.stderr
        assert "started for cluster oak" in agent.stderr.readline()
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(20) == 0
