"""What is shipped to run the server with: the systemd unit and the Containerfile say what the command understands.

Neither systemd nor a container runs here: systemd's own checker reads the unit, our commands those of the container.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from rainbow.cli import main
from tests.scenarios.test_end_to_end import ROOT, until
from tests.scenarios.test_two_processes import Processes
from tests.support.live import rainbow_at
from tests.support.ports import free_port
from tests.support.postgres import Postgres

DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()


def understood(words: list[str]) -> None:
    """Fail if the command line is not one of ours."""
    name, *arguments = words
    main.commands[name].make_context(name, arguments)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_commands_of_a_unit_are_understood(unit: Path, tmp_path: Path) -> None:
    commands = re.findall(r"^ExecStart(?:Pre)?=-?/opt/rainbow/bin/rainbow (.*)$", unit.read_text(), re.M)
    assert commands
    (tmp_path / "rainbow.yaml").write_text("")
    for command in commands:
        words = command.replace("/etc/rainbow", str(tmp_path)).replace("%i", "oak")
        understood(shlex.split(words.replace("$SHARDS", "--shard http://10.0.0.1:8080")))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_again_however_late_its_database_comes(unit: Path) -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.M))
    assert (settings["StartLimitIntervalSec"], settings["Restart"]) == ("0", "on-failure")
    if settings.get("Type") == "notify" and "ExecStart" in settings and "route" not in settings["ExecStart"]:
        assert settings["TimeoutStartSec"] == "infinity"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_is_one_to_systemd(unit: Path, tmp_path: Path) -> None:
    file = tmp_path / unit.name.replace("@", "@oak")
    file.write_text(unit.read_text().replace("/opt/rainbow/bin/rainbow", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "rainbow" in line]) == (0, [])


@pytest.mark.parametrize("command", ["serve", "scheduler"])
def test_a_process_tells_systemd_when_it_is_ready(command: str, tmp_path: Path, postgres_server: Postgres) -> None:
    port, name = free_port(), str(tmp_path / "notify")
    options = ["--port", str(port), "--no-scheduler"] if command == "serve" else []
    database = postgres_server.new_database()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name)
        systemd.settimeout(60)
        processes = Processes(tmp_path, database)
        try:
            processes.start(command, *options, NOTIFY_SOCKET=name)
            assert systemd.recv(100) == b"READY=1"
            if command == "serve":
                assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        finally:
            processes.end()


def test_command_of_the_container_is_understood() -> None:
    command = json.loads(re.findall(r"^CMD (.*)$", CONTAINERFILE, re.M)[0])
    assert re.findall(r"^ENTRYPOINT (.*)$", CONTAINERFILE, re.M) == ['["rainbow"]']
    understood(command)


def healthy(port: int) -> int:
    """Run the health check of the container against a port."""
    [script] = json.loads(re.findall(r"^HEALTHCHECK CMD (.*)$", CONTAINERFILE, re.M)[0])[1:]
    assert f"COPY deploy/{Path(script).name} {script}" in CONTAINERFILE
    asked = [sys.executable, str(DEPLOY / Path(script).name)]
    return subprocess.run(asked, env={"RAINBOW_PORT": str(port)}, capture_output=True, check=False).returncode


def test_health_check_of_the_container_tells_a_server_from_none(tmp_path: Path) -> None:
    with rainbow_at(tmp_path) as url:
        port = int(url.rpartition(":")[2])
        assert healthy(port) == 0
    assert healthy(port) == 1


def test_health_check_of_the_container_follows_tls(tmp_path: Path) -> None:
    config = tmp_path / "tls.yaml"
    config.write_text(f"server: {{certificate: {tmp_path}/cert.pem, key: {tmp_path}/key.pem}}\n")
    names = ["-keyout", f"{tmp_path}/key.pem", "-out", f"{tmp_path}/cert.pem", "-subj", "/CN=rainbow.example.org"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names], capture_output=True, check=True
    )
    processes, port = Processes(tmp_path, f"sqlite:///{tmp_path}/tls.db"), free_port()
    try:
        processes.start("serve", "--port", str(port), "--config", str(config))
        until(lambda: healthy(port) == 0)
    finally:
        processes.end()


def test_extras_that_the_container_installs_are_ours() -> None:
    [extras] = re.findall(r'"/src\[([a-z,]+)\]"', CONTAINERFILE)
    declared = re.findall(r"^([a-z]+) = \[", (ROOT / "pyproject.toml").read_text(), re.M)
    assert set(extras.split(",")) <= set(declared)
