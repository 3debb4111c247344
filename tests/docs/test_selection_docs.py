"""The commands of docs/selection.md against a server: what is shown is what they print, ids and digests aside."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from rainbow.api import create_app
from rainbow.cli import main
from rainbow.client import Client
from rainbow.service import open_service
from rainbow.service.core.reload import Configuration, ConfigWatch
from rainbow.service.core.settings import read_config
from tests.conftest import REGISTRATION, grid
from tests.support.agent_sites import until
from tests.support.live import http, url_of
from tests.support.pages import commands, steady

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "selection.md").read_text()
OFFLINE = ("policy", "config check")
STATES = yaml.load((ROOT / "policies" / "founding-test.yaml").read_text(), yaml.CSafeLoader)["states"]
STATES["bravo"]["nodes_free"] = 2
GRAPHS = {"alpha": grid(20, 2), "bravo": grid(4, 2), "carol": grid(7, 2)}
ADMIN = "rba_documentation"


LOG = re.compile(r"^[0-9-]{10} [0-9:]{8} \[.*\n", re.M)  # of the server beside


@pytest.fixture
def served(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Serve cheapest.yaml to the founding text's three clusters; the environment of whoever may do everything."""
    file = tmp_path / "rainbow.yaml"
    shutil.copy(ROOT / "policies" / "cheapest.yaml", file)
    text = file.read_text().replace("scheduler:", f"scheduler:\n  secret: {REGISTRATION}\n  admin: {ADMIN}", 1)
    file.write_text(text)
    settings = read_config(file)
    service = open_service(str(tmp_path / "rainbow.db"), settings, str(file))
    service.state(Configuration).watch = ConfigWatch(service, file, settings)
    with http(create_app(service)) as port:
        with Client(url_of(port), REGISTRATION) as client:
            for name, state in STATES.items():
                client.register_cluster(name, GRAPHS[name], state=state)
        file.write_text(text.replace("stale_after: 600", "stale_after: 300"))  # so that there is something to reload
        yield {"RAINBOW_URL": url_of(port), "RAINBOW_TOKEN": ADMIN, "COLUMNS": "110", "NO_COLOR": "1"}
    service.close()


def test_commands_that_ask_a_server_print_what_is_shown(
    served: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    typed = [(command.removeprefix("rainbow "), output) for command, output in commands(PAGE)]
    shown = [(command, output) for command, output in typed if not command.startswith(OFFLINE)]
    assert [" ".join(command.split()[:2]) for command, _ in shown] == [
        *("submit --why", "config reload", "submit --why", "job why", "job replay")
    ]
    for command, output in shown:
        words = shlex.split(command)
        if words[:2] == ["job", "why"]:
            _until_it_waits(served, words[2])
        result = CliRunner().invoke(main, words, env=served)
        assert steady(LOG.sub("", result.output)) == steady(output), result.output


def _until_it_waits(served: dict[str, str], job: str) -> None:
    """Wait for the scheduler's first step with the job, which says why it waits."""
    with Client(served["RAINBOW_URL"], ADMIN) as client:
        until(lambda: client.why(job)["wait"] is not None)
