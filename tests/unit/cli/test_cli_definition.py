"""`rainbow job show`: what a job is, as a table, as YAML and as JSON."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from rainbow.client import Client
from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures

SCRIPT = "#!/bin/bash\n#SBATCH -J scripted\n#SBATCH --export=WORD=plum\necho hello\n"
THREE = """
resources: {work: {type: core, replicas: 1}}
tasks:
- {name: a, command: [echo, "1"], resources: work}
- {name: b, command: [echo, "2"], resources: work, depends_on: [a]}
- {name: c, command: [echo, "3"], resources: work, depends_on: [a, b]}
"""


@pytest.fixture
def jobs(shell: Shell) -> dict[str, str]:
    """A job of each kind, by number; none of them starts."""

    def made(*words: object) -> str:
        return shell("submit", "--parsable", *words).stdout.strip()

    command = made("-H", "-t", "10m", "-c", "2", "-J", "train", "-D", "/srv/net", "--", "./train.sh", "a b")
    chained = made("-H", "-J", "next", "-d", f"afterok:{command}", "--", "true")
    return {
        "command": command,
        "chained": chained,
        "script": made("-H", shell.file("job.sh", SCRIPT)),
        "array": made("-H", "-a", "0-7%2", "-J", "sweep", "--", "echo", "{index}"),
        "three": made(shell.file("three.yaml", THREE)),
    }


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("command", ["command +./train.sh 'a b'", "in +/srv/net", "asks for +1 task of 2 cpus", "time limit +10m"]),
        ("command", [r"before +job \d+ \(next\), waiting", r"output +rainbow job logs \d+"]),
        ("chained", [r"after +job \d+ \(train\), waiting"]),
        ("script", [r"script +rainbow job show \d+ --script", "environment +WORD"]),
        ("array", ["asks for +8 elements, at most 2 at once, each 1 task of 1 cpu", "command +echo '{index}'"]),
        ("three", ["task a +echo 1", r"task c +echo 3  \(.*, after a, b\)"]),
    ],
)
def test_all_of_the_definition_is_in_every_form(
    shell: Shell, jobs: dict[str, str], kind: str, lines: list[str]
) -> None:
    number = jobs[kind]
    shown = shell("job", "show", number).stdout
    assert re.match(rf"job {number}  \S+  (WAITING|RUNNING|COMPLETED) on oak, ", shown)
    for line in lines:
        assert re.search(rf"^  {line}", shown, re.MULTILINE), (line, shown)
    document = shell.json("job", "show", number)
    assert yaml.safe_load(shell("job", "show", number, "-o", "yaml").stdout)["definition"] == document["definition"]
    for key in ("command", "resources", "limits", "after", "before", "directory", "environment", "output"):
        assert key in document["definition"]


def test_what_was_submitted_is_printed(shell: Shell, jobs: dict[str, str]) -> None:
    assert shell("job", "show", jobs["script"], "--script").stdout == SCRIPT
    assert shell("job", "show", jobs["three"], "--jobspec").stdout.strip() == THREE.strip()
    written = shell("job", "show", jobs["command"], "--jobspec")
    assert yaml.safe_load(written.stdout)["tasks"][0]["command"] == ["./train.sh", "a b"]
    assert written.stderr == ""
    whole = json.loads(shell("job", "show", jobs["command"], "--jobspec", "-o", "json").stdout)
    assert whole["jobspec"] == yaml.safe_load(written.stdout)
    assert "has no script" in shell("job", "show", jobs["command"], "--script").stderr


def test_values_of_the_environment_are_for_the_user(shell: Shell, jobs: dict[str, str]) -> None:
    with Client(shell.url, shell.secret) as owner:
        token = owner.mint_token(["oak"], requestors=["somebody"])["token"]
    shown = shell("job", "show", jobs["script"], "--jobspec", "--token", token)
    assert "WORD: '***'" in shown.stdout
    assert "plum" not in shown.stdout
    assert shown.stderr == "rainbow: values of environment variables are shown only to the job's user\n"


def test_the_headline_names_what_failed(shell: Shell) -> None:
    words = ("-a", "1,13", "--", "sh", "-c", "test {index} = 1 || { echo no such file: input.13 >&2; exit 5; }")
    number = shell("submit", "--parsable", *words).stdout.strip()
    assert shell("job", "wait", number).exit_code == 7
    shown = shell("job", "show", number).stdout.splitlines()
    assert re.match(rf"job {number}  sh  FAILED on oak, ended ", shown[0])
    where = r"(on n\d )?after \d+s: no such file: input.13; of 2, 1 completed, 1 failed$"
    assert re.match(rf"  Element 13 failed with exit code 5 {where}", shown[1])
    tasks = shown[shown.index("") + 2 :]
    assert tasks[0].startswith(f"{number}_13")
