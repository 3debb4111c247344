"""A store and an agent's journal that the version before wrote are opened, and what they hold goes on.

tests/cases/former holds both as SQL, and the credentials made then: cluster oak with a job that had completed, two
that ran and one that waited; of those two one had ended, and the agent had not told it when it was killed.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent.journal import Journal
from rainbow.api import create_app
from rainbow.client import Client
from rainbow.service import Service, Settings
from rainbow.service.scheduler.loop import Loop
from rainbow.service.scheduler.step import step
from rainbow.store import open_store
from tests.conftest import ADMIN, REGISTRATION, Api, Clock
from tests.support.live import agent_of, http, url_of

CASES = Path(__file__).parents[1] / "cases" / "former"
TOLD: dict[str, Any] = json.loads((CASES / "told.json").read_text())
JOBS: dict[str, str] = TOLD["jobs"]
TOKEN, SECRET = TOLD["oak"]["token"], TOLD["oak"]["secret"]


def written(sql: str, path: Path) -> Path:
    """Write the database that a file of SQL describes."""
    with sqlite3.connect(path) as database:
        database.executescript((CASES / sql).read_text())
    database.close()
    return path


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{written('store.sql', tmp_path / 'rainbow.db')}"


@pytest.fixture
def former(store: str, clock: Clock) -> Iterator[Api]:
    clock.now = TOLD["now"] + 1
    service = Service(open_store(store), Settings(secret=REGISTRATION, admin=ADMIN), clock)
    yield Api(service)
    service.close()


def test_a_store_of_before_is_migrated_and_says_what_it_said(former: Api) -> None:
    states = {name: former.good("GET", f"/v1/jobs/{job}", None, TOKEN)["state"] for name, job in JOBS.items()}
    assert states == {"chosen": "COMPLETED", "told": "RUNNING", "running": "RUNNING", "waiting": "WAITING"}
    assert set(former.service.catalogue) == {"oak", "elm"}
    assert former.good("GET", "/v1/clusters/elm/scheduler", None, TOLD["elm"]["secret"])["policy"] == "priority"
    assert former.good("GET", "/v1/clusters/oak/scheduler", None, SECRET)["settings"]["unit"] == "worker"


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_decision_of_before_is_taken_again_alike(former: Api, job: str) -> None:
    assert former.good("GET", f"/v1/jobs/{job}/replay", None, ADMIN)["equal"] is True


def test_a_step_goes_on_with_what_a_store_of_before_holds(former: Api) -> None:
    for job in (JOBS["told"], JOBS["running"]):
        event = {"task": f"{job}-0", "attempt": 1, "event": "ended", "result": "exited", "exit_code": 0}
        former.good("POST", "/v1/clusters/oak/events", {"agent": TOLD["agent"], "events": [event]}, SECRET)
    step(former.service, "oak")
    request = {"agent": TOLD["agent"], "max": 10}
    offers = former.good("POST", "/v1/clusters/oak/receive", request, SECRET)["tasks"]
    assert [offer["job"] for offer in offers] == [JOBS["waiting"]]


def test_a_graph_of_before_is_changed_and_changed_again(former: Api, store: str, clock: Clock) -> None:
    nodes = former.good("GET", "/v1/clusters/elm/graph", None, TOLD["elm"]["secret"])["graph"]["nodes"]
    top = next(iter(nodes))
    for name in ("x1", "x2", "x3"):
        more = {"nodes": {name: {"metadata": {"type": "node"}}}, "edges": [{"source": top, "target": name}]}
        changes = {"changes": [{"op": "add", **more}]}
        former.good("PATCH", "/v1/clusters/elm/graph", changes, TOLD["elm"]["secret"])
    again = Service(open_store(store), Settings(secret=REGISTRATION, admin=ADMIN), clock)
    result = Api(again).good("GET", "/v1/clusters/elm/graph", None, TOLD["elm"]["secret"])["graph"]["nodes"]
    assert set(result) == {*nodes, "x1", "x2", "x3"}
    assert again.catalogue["elm"].cluster.worker_count == former.service.catalogue["elm"].cluster.worker_count
    again.close()


def test_an_agent_of_before_tells_what_it_had_to_tell_and_goes_on(store: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    service = Service(
        open_store(store),
        Settings(secret=REGISTRATION, admin=ADMIN),
        lambda: TOLD["now"] + 1 + time.monotonic() - begun,
    )
    loop = Loop(service)
    loop.start()
    written("journal.sql", tmp_path / "agent.db")
    with http(create_app(service)) as port, Client(url_of(port), TOKEN) as user:
        with agent_of(url_of(port), "oak", SECRET, journal=Journal(tmp_path)) as agent:
            assert agent.id == TOLD["agent"]
            ended = {name: user.wait(job, timeout=60, every=0.05) for name, job in JOBS.items()}
        loop.stop()
    service.close()
    assert {name: job["state"] for name, job in ended.items()} == dict.fromkeys(JOBS, "COMPLETED")
    tasks = {name: job["tasks"][0] for name, job in ended.items()}
    assert (tasks["told"]["attempt"], tasks["told"]["output"]) == (1, "all done\n")
    assert (tasks["running"]["attempt"], tasks["running"]["output"]) == (2, "again\n")  # nobody had watched it
    assert tasks["waiting"]["output"] == "later\n" * 2  # one slot on each of two nodes
