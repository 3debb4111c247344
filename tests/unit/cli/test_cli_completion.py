"""Completion in real shells: numbers and names of jobs, clusters, users; silence where no server answers well."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shell import ROOT, Shell, server, shell

__all__ = ["server", "shell"]  # fixtures


def completed(shell: Shell, which: str, line: str, **variables: str) -> list[str]:
    """Return what a shell offers for the end of a line; nothing else may be written."""
    command = shell.folder / "rainbow"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m rainbow "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, **shell.variables, **variables, "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{shell.folder}:{environment['PATH']}"
    script = shell("completion", which).stdout
    if which == "fish":
        typed = f"{script}\ncomplete -C {line!r}"
    else:
        words = line.split(" ")
        query = f"COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); COMP_CWORD={len(words) - 1}"
        typed = f'{script}\n{query}\n_rainbow_completion rainbow\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    result = subprocess.run([which, "-c", typed], env=environment, capture_output=True, text=True, timeout=60)
    assert result.stderr == ""
    return [word.partition("\t")[0] for word in result.stdout.split("\n") if word]


@pytest.fixture(params=["bash", "fish"])
def which(request: pytest.FixtureRequest) -> str:
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


def test_jobs_and_clusters_are_completed(shell: Shell, which: str) -> None:
    number = shell("submit", "--parsable", "-H", "-J", "train", "-n", "1", "--", "true").stdout.strip()
    shell("submit", "-H", "--name=tra in; rm", "-n", "1", "--", "true")
    assert completed(shell, which, "rainbow job why tra") == ["train"]
    assert number in completed(shell, which, f"rainbow job cancel {number}")
    assert completed(shell, which, "rainbow cluster show o") == ["oak"]


@pytest.fixture(params=["dead", "slow", "lying"])
def wrong_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that is not there, one that never answers, and one that answers something else."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        if request.param == "dead":
            listening.close()
        if request.param == "lying":
            threading.Thread(target=_lie, args=(listening,), daemon=True).start()
        yield url


def _lie(listening: socket.socket) -> None:
    while True:
        try:
            with listening.accept()[0] as one:
                one.recv(10_000)
                one.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"jobs": [1, "\\u001b"]}'[:90])
        except OSError:
            return


def test_nothing_is_said_of_a_server_that_does_not_answer_well(shell: Shell, wrong_url: str) -> None:
    assert completed(shell, "bash", "rainbow job why tra", RAINBOW_URL=wrong_url) == []


def test_a_machine_is_brought_up_and_down(shell: Shell, tmp_path: Path) -> None:
    """Up twice is as once; down ends both processes, and says so once."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = str(one.getsockname()[1])
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "RAINBOW_CREDENTIALS": str(tmp_path / "up.json")}
    variables = {**state, "RAINBOW_URL": None, "PYTHONPATH": str(ROOT)}
    try:
        first = shell("up", "desk", "--port", port, **variables)
        assert first.stdout.startswith(f"server on http://127.0.0.1:{port}, cluster desk (1 node, "), first.output
        assert shell("up", "desk", "--port", port, **variables).stdout == first.stdout
        assert shell("up", "other", **variables).exit_code == 6
        assert shell.code("run", "-n", "1", "--", "true", **variables) == 0
    finally:
        ended = shell("down", **variables)
    assert ended.stdout == "ended agent and server of cluster desk\n"
    assert shell("down", **variables).stdout == "nothing is up\n"
