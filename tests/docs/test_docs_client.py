"""docs/client.md: its examples run against a live server with an agent, and each method has a docstring."""

from __future__ import annotations

import doctest
import json
import time
from pathlib import Path
from typing import Any

from rainbow.client import Client
from rainbow.client.transport import FIRST_PAUSE, LONGEST_PAUSE, TRIES
from tests.conftest import REGISTRATION
from tests.support.live import agent_of, rainbow_at

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "client.md").read_text()
REGISTERED = "## Submit, wait, ask why"


def run(text: str, names: dict[str, Any]) -> doctest.TestResults:
    """Run a part of the page; what it names is there for the next part."""
    runner = doctest.DocTestRunner(verbose=False)
    test = doctest.DocTestParser().get_doctest(text, {}, "client.md", "docs/client.md", 0)
    test.globs = names
    return runner.run(test, clear_globs=False)


def test_examples_run_against_a_server_with_an_agent(tmp_path: Path) -> None:
    willow = ROOT / "graphs" / "willow"
    with rainbow_at(tmp_path) as url:
        names: dict[str, Any] = {
            "url": url,
            "registration_secret": REGISTRATION,
            "graph": json.loads((willow / "cluster.json").read_text()),
            "io": json.loads((willow / "io.subsystem.json").read_text()),
        }
        before, after = PAGE.split(REGISTERED)
        assert run(before, names).failed == 0
        with agent_of(url, "willow", names["made"]["secret"]):
            with Client(url, names["made"]["secret"]) as owner:
                _until_the_agent_was_heard(owner)
            done = run(after, names)
    assert done.failed == 0
    assert done.attempted > 25


def _until_the_agent_was_heard(owner: Client) -> None:
    while any(worker["state"] == "NEW" for worker in owner.workers("willow")):
        time.sleep(0.05)


def test_every_method_has_words_for_the_page_made_from_them() -> None:
    public = [name for name in dir(Client) if not name.startswith("_")]
    assert len(public) > 40
    assert [name for name in public if not getattr(Client, name).__doc__] == []


def test_page_says_how_often_and_after_what_pauses_a_call_is_sent_again() -> None:
    pauses = [f"{FIRST_PAUSE * 2**k:g}" for k in range(TRIES - 1)]
    words = " ".join(PAGE.split())
    assert TRIES == 5
    assert f"up to five times, after {', '.join(pauses[:-1])} and {pauses[-1]} seconds" in words
    assert f"more than {LONGEST_PAUSE:g} seconds" in words
