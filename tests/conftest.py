"""A service over a real store (a SQLite file, a PostgreSQL), its clock set by hand, and the API in front of it."""

from __future__ import annotations

import ast
import copy
import functools
import gc
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import sqlalchemy as sa
import structlog
from flask import Flask
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

from rainbow.api.rate_limit import Buckets
from rainbow.api.server import create_app
from rainbow.service import Service, Settings
from rainbow.service.core import memory
from rainbow.service.live_state.mirror import mirrored
from rainbow.service.scheduler.step import step
from rainbow.service.scheduler.view import Frozen, take_snapshot
from rainbow.store import open_store
from tests.support.postgres import Postgres, postgres
from tests.support.slurm import Slurm, be_lively, slurm

LONG = bool(os.environ.get("RAINBOW_SOAK"))
EXAMPLES = 100 if LONG else 20
hypothesis.settings.register_profile(
    "rainbow", deadline=None, max_examples=EXAMPLES
)  # a busy machine is no fault of ours
hypothesis.settings.load_profile("rainbow")


def examples(many: int) -> int:
    """Return how many examples a test tries that wants this many: all in the long run, a sixth in the short one."""
    return many if LONG else many // 6


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what lives until the end: looking through it was a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def one_parser_at_a_time() -> Iterator[None]:
    """Keep threads that parse Python apart, where CPython does not (3.11: gh-106905, a SystemError now and then).

    An application is made (its routes are compiled) while a thread of another test may be writing a traceback.
    """
    lock, parse = threading.RLock(), ast.parse

    def parsed(*args: Any, **named: Any) -> Any:
        with lock:
            return parse(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ast, "parse", parsed)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_cache_of_statements() -> Iterator[None]:
    """Let all engines of a kind share what they have compiled: a third of a test of the service was spent on that.

    SQLAlchemy keeps compiled statements by engine and dialect, and most tests open a store of their own.
    """
    compiled, create = LRUCache(2_000), sa.create_engine

    def made(*args: Any, **named: Any) -> sa.Engine:
        engine = create(*args, **named)
        engine.update_execution_options(compiled_cache=compiled)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        for kind in (SQLiteDialect_pysqlite, PGDialect_psycopg):
            patch.setattr(kind, "__hash__", lambda self: hash(type(self)))
            patch.setattr(kind, "__eq__", lambda self, other: type(self) is type(other))
        patch.setattr(sa, "create_engine", made)
        yield


os.environ["RAINBOW_CHECK"] = "1"  # every step compares what is kept in memory with what is stored
REGISTRATION = "rbr_of-the-tests"
ADMIN = "rba_of-the-tests"
WHOLE_WORKERS = {"name": "load_based", "settings": {"unit": "worker"}}  # each worker serves one job at a time
SHARED = Path(__file__).parents[1].parent / "shared"


@pytest.fixture(scope="session", autouse=True)
def home_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let agents that are started as a user starts them leave nothing in this user's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def log_of_its_own() -> Iterator[None]:
    """Take back where a command that ran in this process wrote its log: the next test may read what is logged."""
    yield
    structlog.reset_defaults()


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Cluster:
    """A registered cluster with its credentials, and its agent's voice."""

    def __init__(self, api: Api, name: str, answer: dict[str, Any]) -> None:
        self.api, self.name, self.token, self.secret = api, name, answer["token"], answer["secret"]

    def serve_one_job_a_worker(self) -> None:
        """Let each worker serve one job at a time."""
        self.api.good("PATCH", f"/v1/clusters/{self.name}/scheduler", {"settings": {"unit": "worker"}}, self.secret)

    def say(self, verb: str, agent: str = "a", **body: Any) -> dict[str, Any]:
        """Send one message of the agent."""
        return self.api.good("POST", f"/v1/clusters/{self.name}/{verb}", {"agent": agent, **body}, self.secret)

    def take(self, agent: str = "a") -> list[dict[str, Any]]:
        """Step, receive what is offered and accept it."""
        step(self.api.service, self.name)
        offers: list[dict[str, Any]] = self.say("receive", agent, max=100)["tasks"]
        requirements = [{"id": offer["id"], "attempt": offer["attempt"]} for offer in offers]
        assert self.say("accept", agent, tasks=requirements)["accepted"] == [offer["id"] for offer in offers]
        return offers

    def end(self, offer: dict[str, Any], agent: str = "a", **event: Any) -> dict[str, Any]:
        """Report a task's end, by default a good one."""
        answer = {"task": offer["id"], "attempt": offer["attempt"], "event": "ended"}
        ended = {"result": "exited", "exit_code": 0, "output": "", **event}
        return self.say("events", agent, events=[{**answer, **ended}])


class Api:
    """The API as a client sees it, without a network."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.app = app_of(service)

    def call(self, method: str, path: str, body: Any = None, *tokens: str, **headers: str) -> Any:
        """Send a request: a mapping or list as JSON, text or bytes as they are. Returns Flask's answer."""
        sent: dict[str, Any] = {"data": body} if isinstance(body, (str, bytes)) else {"json": body}
        if isinstance(body, (str, bytes)):
            headers.setdefault("Content_Type", "application/yaml")
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        if tokens:
            named["Authorization"] = ", ".join(f"Bearer {token}" for token in tokens)
        return self.app.test_client().open(path, method=method, headers=named, **(sent if body is not None else {}))

    def good(self, method: str, path: str, body: Any = None, *tokens: str, **headers: str) -> Any:
        """Send a request that must succeed and return what it says."""
        answer = self.call(method, path, body, *tokens, **headers)
        assert answer.status_code < 300, answer.get_data(as_text=True)
        return answer.get_json(silent=True)

    def register(self, name: str = "oak", graph: Any = None, **more: Any) -> Cluster:
        """Register a cluster, by default two nodes of two cores."""
        body = {"name": name, "graph": graph or grid(2, 2), **more}
        return Cluster(self, name, self.good("POST", "/v1/clusters", body, REGISTRATION))

    def problem(self, status: int, code: str, method: str, path: str, body: Any = None, *tokens: str) -> Any:
        """Send a request that must be refused so; the problem is whole and tells nothing of our insides."""
        answer = self.call(method, path, body, *tokens)
        text = answer.get_data(as_text=True)
        assert answer.mimetype == "application/problem+json", text
        reported = answer.get_json()
        assert (answer.status_code, reported["status"], reported["code"]) == (status, status, code), text
        assert {"type", "title", "detail"} <= set(reported)
        assert "Traceback" not in text
        assert 'File "' not in text
        return reported


def snapshot(service: Service, name: str) -> Frozen | None:
    """Freeze a cluster as its next step would see it."""
    with mirrored(service, service.catalogue[name]) as mirror:
        return take_snapshot(service, mirror)


def grid(nodes: int, cores: int) -> dict[str, Any]:
    """A cluster of so many nodes, each with so many cores, as a JGF document."""
    vertices: dict[str, Any] = {"c0": {"metadata": {"type": "cluster", "name": "c0"}}}
    edges = []
    for node in range(nodes):
        vertices[f"n{node}"] = {"metadata": {"type": "node", "name": f"n{node}"}}
        edges.append({"source": "c0", "target": f"n{node}", "relation": "contains"})
        for core in range(cores):
            vertices[f"n{node}c{core}"] = {"metadata": {"type": "core", "name": f"core{core}"}}
            edges.append({"source": f"n{node}", "target": f"n{node}c{core}", "relation": "contains"})
    return {"graph": {"nodes": vertices, "edges": edges}}


def jobspec(nodes: int = 1, command: list[str] | None = None, **system: Any) -> dict[str, Any]:
    """A jobspec of so many nodes, each with one core."""
    slot = {"type": "slot", "count": 1, "label": "it", "with": [{"type": "core", "count": 1}]}
    task = {"command": command or ["true"], "slot": "it", "count": {"per_slot": 1}}
    attributes = {"system": {"duration": 0, **system}}
    resources = [{"type": "node", "count": nodes, "with": [slot]}]
    return {"version": 1, "resources": resources, "tasks": [task], "attributes": attributes}


@pytest.fixture
def clock() -> Clock:
    return Clock()


# the suites that run over both stores, and those whose second one is soaked: rights and policies ask no store
ON_BOTH = ("test_store", "test_api", "test_service", "test_two_processes")
RIGHTS = ("test_api_matrix", "test_api_openapi", "test_api_owning", "test_api_rights")
POLICIES = ("fair_share", "forecasts", "located", "priority", "reserving", "shares", "suspending", "symbols", "tags")
QUEUES = (
    "dependencies",
    "draining",
    "pending",
    "reasons",
    "retries",
    "steps",
)  # what they store, others store on both
FORMS = ("test_api_answers", "test_api_faults", "test_api_forms")  # refused before a store is asked
SOAKED_ON_BOTH = (
    *("test_selection_decision", "test_many_clusters"),  # the ledger
    *RIGHTS,
    *FORMS,
    *(f"test_service_{policy}" for policy in (*POLICIES, *QUEUES)),
    "test_nobody_waits",
    "test_no_starvation",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames:
        name = metafunc.module.__name__.rpartition(".")[2]
        marks = [pytest.mark.soak] if name.startswith(SOAKED_ON_BOTH) else []
        both = ["sqlite", pytest.param("postgresql", marks=marks)]
        results = both if name.startswith((*ON_BOTH, *SOAKED_ON_BOTH)) else ["sqlite"]
        metafunc.parametrize("database", results, indirect=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def slurm_server() -> Iterator[Slurm]:
    with slurm() as server:
        yield server


@pytest.fixture
def on_slurm(slurm_server: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """A Slurm of four nodes, which Slurm's commands find for as long as the test lasts; executors ask it often.

    What a test leaves there is canceled: the next one looks at what waits, and at how long it would.
    """
    monkeypatch.setenv("SLURM_CONF", str(slurm_server.conf))
    be_lively(monkeypatch)
    yield slurm_server
    remaining = slurm_server.run("squeue", "-h", "-o", "%A").split()
    if remaining:
        slurm_server.run("scancel", *set(remaining))
        until = time.monotonic() + 20
        while slurm_server.run("squeue", "-h", "-o", "%A").split() and time.monotonic() < until:
            time.sleep(0.2)


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{new_file(tmp_path / 'rainbow.db')}"
        return
    server: Postgres = request.getfixturevalue("postgres_server")
    url = server.new_database()
    yield url
    server.drop(url)


@pytest.fixture
def service(database: str, clock: Clock) -> Any:
    opened = open_service_at(database, clock)
    yield opened
    opened.close()


@pytest.fixture
def api(service: Service) -> Api:
    return Api(service)


@pytest.fixture
def oak(api: Api) -> Cluster:
    """Cluster oak of two nodes of two cores, registered."""
    return api.register("oak")


@functools.cache
def _new_store() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        open_store(f"{folder}/rainbow.db").close()
        return Path(folder, "rainbow.db").read_bytes()


def new_file(path: Path) -> Path:
    """Make a store without a row in it, unless there is one; the migrations run once for all of them."""
    if not path.exists():
        path.write_bytes(_new_store())
        path.chmod(0o600)
    return path


_app = functools.cache(create_app)


def app_of(service: Service) -> Flask:
    """Make the application that serves this service from one whose routes are compiled."""
    app = copy.copy(_app(None))  # type: ignore[arg-type]  # it serves nobody
    app.extensions = {"rainbow": service, "rainbow-buckets": Buckets()}
    return app


def open_service_at(database: str | Path, clock: Clock, **settings: Any) -> Service:
    """Open the service whose store is here (a folder: a SQLite file in it), as after a restart."""
    url = database if isinstance(database, str) else str(new_file(database / "rainbow.db"))
    options = Settings(secret=REGISTRATION, admin=ADMIN, **settings)
    return Service(open_store(url), options, clock)


# files that take a minute or so, each on one worker: begun last they would keep the others waiting
LONGEST = ("test_schemathesis", "test_two_processes", "test_page_browser", "test_slurm_", "test_agent", "contract/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(name in item.nodeid for name in LONGEST))
    if memory.IS_OFF:
        skip = pytest.mark.skip(reason="it counts what memory saves, and there is none")
        for item in items:
            if item.get_closest_marker("remembers"):
                item.add_marker(skip)
