"""`rainbow job why`: where a job was before, and what it waits for as long as it waits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rainbow.cli import session
from rainbow.client import Client
from tests.conftest import REGISTRATION, grid
from tests.scenarios.test_end_to_end import until
from tests.support.live import Script, http, rainbow_at, url_of
from tests.support.shell import Shell, variables_of


def test_a_job_that_was_moved_says_from_where_when_and_why(tmp_path: Path) -> None:
    saved = tmp_path / "credentials.json"
    with rainbow_at(tmp_path) as url:
        for name in ("elm", "oak"):
            with Client(url, REGISTRATION) as client:
                registration = client.register_cluster(name, grid(2, 1))
            session.save(saved, url, name, registration["token"], registration["secret"])
        shell = Shell(tmp_path, url, "", "", variables_of(url, saved))
        job = shell.json("submit", "--", "true")
        other = ({"elm", "oak"} - {job["cluster"]}).pop()
        assert "MOVED FROM" not in shell("job", "why", job["id"]).stdout
        shell("cluster", "drain", job["cluster"])
        until(lambda: shell.json("job", "show", job["id"])["cluster"] == other)
        text = shell("job", "why", job["id"], COLUMNS="80").stdout
        time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
        assert re.search(
            rf"^MOVED FROM +TO +WHEN +BECAUSE\n{job['cluster']} +{other} +{time} +its cluster ", text, re.M
        )


@pytest.mark.parametrize(("state", "waits"), [("WAITING", True), ("RUNNING", False), ("COMPLETED", False)])
def test_only_what_waits_says_what_it_waits_for(tmp_path: Path, state: str, waits: bool) -> None:
    wait: dict[str, Any] = {"reason": "no-room", "text": "nothing is free", "since": None, "facts": {}}
    reported = {
        "id": "j",
        "state": state,
        "answer": f"{state} on oak",
        "cluster": "oak",
        "decision": {},
        "wait": wait,
    }
    answer = (200, {"Content-Type": "application/json"}, json.dumps(reported).encode())
    with http(Script([answer])) as port:
        shell = Shell(tmp_path, "", "", "", variables_of(url_of(port), tmp_path / "none.json"))
        text = shell("job", "why", "j", RAINBOW_TOKEN="rbt_x").stdout
    assert text.startswith(f"{state} on oak\n")
    assert ("since" in text) is waits
