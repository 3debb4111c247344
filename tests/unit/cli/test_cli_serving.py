"""The command line: configuration is checked, and a server that cannot start says why."""

from __future__ import annotations

import socket
import threading

import pytest

from rainbow.api.server import listener_at
from rainbow.cli.exit_codes import Exit
from tests.conftest import SHARED
from tests.support.live import Script, http
from tests.support.ports import free_port
from tests.support.services import package
from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures


def test_config_check_names_the_line(shell: Shell) -> None:
    text = "scheduler:\n  algorithms:\n    selection:\n      name: nonsense\n"
    result = shell("config", "check", shell.file("config.yaml", text))
    assert result.exit_code == Exit.ERROR
    assert "line 4" in result.stderr


def test_config_check_shows_no_secret(shell: Shell) -> None:
    result = shell("config", "check", shell.file("config.yaml", "scheduler: {secret: hush-hush, odd: 1}\n"))
    assert result.exit_code == 0
    assert "hush" not in result.output
    assert "ignored scheduler.odd" in result.stderr


@pytest.mark.skipif(not SHARED.exists(), reason="upstream's files are not here")
@pytest.mark.parametrize("name", ["rainbow-config.yaml", "rainbow-selection-config.yaml"])
def test_config_check_takes_upstreams_files(shell: Shell, name: str) -> None:
    assert shell.code("config", "check", SHARED / "inputs" / "rainbow" / "scheduler" / name) is Exit.OK


def test_serve_on_a_taken_address_says_so_in_a_line(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rainbow.api.server.FREED", 0.0)
    with http(Script([])) as port:
        result = shell("serve", "--port", str(port), "--database", f"sqlite:///{shell.folder / 'x.db'}")
    assert result.exit_code == Exit.ERROR
    assert (
        result.stderr
        == f"rainbow: cannot listen on 127.0.0.1:{port}: Address already in use; use --port to choose another port\n"
    )
    assert not (shell.folder / "x.db").exists()


def test_serve_on_an_address_of_another_machine_says_which_option(shell: Shell) -> None:
    result = shell("serve", "--host", "192.0.2.1", "--port", str(free_port()))  # of no machine: RFC 5737
    assert result.exit_code == Exit.ERROR
    assert "; use --host with an address of ours" in result.stderr


def test_serve_names_a_database_that_it_cannot_make(shell: Shell) -> None:
    shell.file("plain", "no directory")
    result = shell("serve", "--port", str(free_port()), "--database", f"sqlite:///{shell.folder}/plain/x.db")
    assert result.exit_code == Exit.ERROR
    text = f"rainbow: cannot make database file {shell.folder}/plain/x.db: "
    assert result.stderr.startswith(text)
    assert result.stderr.endswith("; choose another with --database\n")


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("postgresql+psycopg://ann:hush@127.0.0.1:1/x", Exit.UNAVAILABLE, "Connection refused"),
        ("postgresql://ann:hush@127.0.0.1:port/x", Exit.ERROR, "must be given as a path or a URL"),
    ],
)
def test_who_opens_a_database_is_told_its_trouble(shell: Shell, url: str, code: Exit, said: str) -> None:
    package("psycopg")
    result = shell("db", "upgrade", "--database", url)
    assert result.exit_code == code
    assert said in result.stderr
    assert "hush" not in result.stderr


def test_serve_waits_for_an_address_that_a_killed_servers_worker_still_has() -> None:
    with socket.create_server(("127.0.0.1", 0)) as worker:
        port = worker.getsockname()[1]
        ending = threading.Timer(0.3, worker.close)
        ending.start()
        with listener_at("127.0.0.1", port) as mine:
            assert mine.getsockname()[1] == port
        ending.join()


def test_serve_with_a_bad_configuration_says_where(shell: Shell) -> None:
    result = shell(
        "serve", "--config", shell.file("c.yaml", "scheduler:\n  tick: never\n"), "--port", str(free_port())
    )
    assert result.exit_code == Exit.ERROR
    assert "line 2" in result.stderr
    assert len(result.stderr.splitlines()) == 1
