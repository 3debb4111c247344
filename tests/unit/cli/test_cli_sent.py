"""The command line: what it sends, and where jobspecs, settings and credentials come from."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from rainbow.cli import session
from rainbow.cli.exit_codes import Exit
from tests.conftest import ADMIN, REGISTRATION, grid, jobspec
from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures


def test_a_jobspec_comes_from_a_file_or_stdin(shell: Shell) -> None:
    text = json.dumps(jobspec())
    assert shell.code("submit", shell.file("job.yaml", text)) is Exit.OK
    assert shell.code("submit", "-", stdin=text) is Exit.OK
    assert shell.code("match", "-", stdin=text) is Exit.OK


def test_a_commands_own_flags_are_its_own(shell: Shell) -> None:
    result = shell("submit", "--wait", "-n", "1", "-c", "2", "--", "echo", "-n", "--wait", "; touch x")
    assert "--wait ; touch x" in result.stdout


def test_one_key_is_one_job(shell: Shell) -> None:
    path = shell.file("job.json", jobspec())
    assert len({shell.json("submit", "--key", "once", path)["id"] for _ in range(2)}) == 1


def test_a_cluster_is_registered_with_all_that_belongs_to_it(shell: Shell) -> None:
    io = {"graph": {"nodes": {"d": {"metadata": {"type": "ssd"}}}, "edges": [{"source": "n0", "target": "d"}]}}
    saved = shell.folder / "own" / "credentials.json"
    words = ["cluster", "register", shell.file("graph.json", grid(3, 1)), "--name", "ash"]
    words += ["--subsystem", f"io={shell.file('io.json', io)}", "--state", shell.file("state.json", {"price": 9})]
    words += ["--policy", "load_based", "--save", saved]
    result = shell(*words, RAINBOW_REGISTRATION_SECRET=REGISTRATION)
    assert result.exit_code == 0, result.output
    assert "rbs_" not in result.stdout
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    own = {"RAINBOW_CREDENTIALS": str(saved), "RAINBOW_URL": ""}
    assert shell.json("cluster", "show", "ash", **own)["subsystems"] == ["io"]
    assert shell.json("state", "show", "--cluster", "ash", **own)["state"] == {"price": 9}
    assert shell.json("state", "set", "--cluster", "ash", shell.file("new.json", {"price": 8}), **own) == {"price": 8}
    assert shell.code("subsystem", "delete", "--cluster", "ash", "io", **own) is Exit.OK
    assert shell.json("cluster", "show", "ash", **own)["subsystems"] == []
    again = ["subsystem", "register", shell.folder / "io.json", "--cluster", "ash", "--name", "io"]
    assert shell.json(*again, **own)["vertices"] == 1
    assert shell.code("cluster", "delete", "ash", **own) is Exit.OK


def test_a_refused_jobspec_names_the_file_and_the_place_in_it(shell: Shell) -> None:
    path = shell.file("job.yaml", "version: 1\nresources: x\n")
    assert re.search(rf"{re.escape(str(path))}: .*line 1, column 1", shell("submit", path).stderr)
    assert "job.yaml" not in shell("submit", "-", stdin="version: 1\nresources: x\n").stderr


def test_a_refused_registration_names_the_file_and_the_place_in_it(shell: Shell) -> None:
    graph = grid(1, 1)
    graph["graph"]["nodes"]["n0"]["metadata"]["size"] = "x"
    path = shell.file("bad.json", graph)
    answer = shell("cluster", "register", path, "--name", "yew", "--secret", REGISTRATION).stderr
    assert answer.startswith(f"rainbow: {path}: ")
    assert "/graph/nodes/n0/" in answer
    assert "/graph/graph" not in answer


def test_token_and_secret_are_shown_once_if_they_are_not_saved(shell: Shell) -> None:
    words = ["cluster", "register", shell.file("graph.json", grid(1, 1)), "--name", "yew", "--secret", REGISTRATION]
    shown = shell(*words).stdout
    secret = re.search(r"rbs_\S+", shown)
    assert re.search(r"rbt_\S+", shown)
    assert secret
    assert shell.code("cluster", "delete", "yew", "--secret", secret.group()) is Exit.OK


def test_flags_come_before_the_environment_and_that_before_the_file(shell: Shell) -> None:
    assert shell.code("jobs") is Exit.OK
    assert shell.code("jobs", RAINBOW_TOKEN="rbt_wrong") is Exit.NOT_ALLOWED
    assert shell.code("jobs", "--token", shell.token, RAINBOW_TOKEN="rbt_wrong") is Exit.OK
    assert shell.code("jobs", RAINBOW_TOKEN_FILE=str(shell.file("tokens", f"{shell.token}\n"))) is Exit.OK
    assert shell.code("jobs", RAINBOW_TOKEN_FILE=str(shell.file("tokens", "rbt_wrong\n"))) is Exit.NOT_ALLOWED
    assert shell.code("jobs", "--token", ADMIN) is Exit.OK
    assert shell.code("worker", "list", "--cluster", "oak", RAINBOW_SECRET="rbs_wrong") is Exit.NOT_ALLOWED
    assert shell.code("worker", "list", "--cluster", "oak", "--secret", shell.secret, RAINBOW_SECRET="x") is Exit.OK
    assert shell.code("jobs", RAINBOW_URL="http://127.0.0.1:1", RAINBOW_CREDENTIALS="") is Exit.UNAVAILABLE


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00", b"[1]", b'{"clusters": 1}', b'{"clusters": {"a": {}}}', b'{"clusters": {"a": 1}}', b"x"],
)
def test_a_credentials_file_that_is_none_is_refused_and_kept(shell: Shell, content: bytes) -> None:
    path = shell.file("odd.json", content)
    said = shell("jobs", RAINBOW_CREDENTIALS=str(path))
    assert (said.exit_code, "object" in said.stderr) == (Exit.ERROR, False)
    words = ["cluster", "register", shell.file("g.json", grid(1, 1)), "--name", "fir", "--save", path]
    assert shell.code(*words, "--secret", REGISTRATION) is Exit.ERROR
    assert path.read_bytes() == content
    assert shell.code("cluster", "show", "fir", "--token", ADMIN) is Exit.NOT_FOUND


def test_saved_credentials_are_added_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({"clusters": {"a": {"token": "rbt_a", "secret": "rbs_a"}}}))
    path.chmod(0o644)
    session.save(path, "http://here", "b", "rbt_b", "rbs_b")
    result = session.read(path)
    assert (result.url, result.tokens, result.secret("b"), result.secret("c")) == (
        "http://here",
        ["rbt_a", "rbt_b"],
        "rbs_b",
        None,
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["credentials.json"]
