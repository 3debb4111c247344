"""What is shipped to run the server with: the systemd unit and the Containerfile say what the command understands.

Neither systemd nor a container runs here: systemd's own checker reads the unit, our commands those of the container.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rainbow.cli import main
from tests.scenarios.test_end_to_end import ROOT
from tests.support.live import rainbow_at

DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "rainbow.service").read_text()
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()


def understood(words: list[str]) -> None:
    """Fail if the command line is not one of ours."""
    name, *arguments = words
    main.commands[name].make_context(name, arguments)


def test_commands_of_the_unit_are_understood(tmp_path: Path) -> None:
    commands = re.findall(r"^ExecStart(?:Pre)?=/opt/rainbow/bin/rainbow (.*)$", UNIT, re.M)
    assert len(commands) == 2
    (tmp_path / "rainbow.yaml").write_text("")
    for command in commands:
        understood(shlex.split(command.replace("/etc/rainbow", str(tmp_path))))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_unit_is_one_to_systemd(tmp_path: Path) -> None:
    unit = tmp_path / "rainbow.service"
    unit.write_text(UNIT.replace("/opt/rainbow/bin/rainbow", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "rainbow.service" in line]) == (0, [])


def test_command_of_the_container_is_understood() -> None:
    command = json.loads(re.findall(r"^CMD (.*)$", CONTAINERFILE, re.M)[0])
    assert re.findall(r"^ENTRYPOINT (.*)$", CONTAINERFILE, re.M) == ['["rainbow"]']
    understood(command)


def test_health_check_of_the_container_tells_a_server_from_none(tmp_path: Path) -> None:
    check = json.loads(re.findall(r"^HEALTHCHECK CMD (.*)$", CONTAINERFILE, re.M)[0])
    with rainbow_at(tmp_path) as url:
        requests = [sys.executable, *(part.replace("http://127.0.0.1:8080", url) for part in check[1:])]
        assert subprocess.run(requests, capture_output=True, check=False).returncode == 0
    assert subprocess.run(requests, capture_output=True, check=False).returncode != 0


def test_extras_that_the_container_installs_are_ours() -> None:
    [extras] = re.findall(r'"/src\[([a-z,]+)\]"', CONTAINERFILE)
    declared = re.findall(r"^([a-z]+) = \[", (ROOT / "pyproject.toml").read_text(), re.M)
    assert set(extras.split(",")) <= set(declared)
