"""The disk is full, or may only be read: a clear 503, nothing lost, and all goes on when that is over."""

from __future__ import annotations

import resource
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import sqlalchemy as sa

from rainbow.client import Client
from tests.conftest import Api, Clock, grid, jobspec, open_service_at
from tests.scenarios.test_end_to_end import until
from tests.scenarios.test_two_processes import SPEC, Processes, register
from tests.support.ports import free_port
from tests.support.postgres import Postgres, postgres

ROOM = 6 << 20  # bytes a file may have while "the disk is full"


class Sqlite:
    """A SQLite file; the disk is full for the server that writes it."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/rainbow.db"

    def limit(self, server: int, most: int | None) -> None:
        soft = resource.RLIM_INFINITY if most is None else most
        for process in [psutil.Process(server), *psutil.Process(server).children(recursive=True)]:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))


class Server:
    """A PostgreSQL with small segments of its log; the disk is full for all its processes."""

    def __init__(self, own: Postgres) -> None:
        self.own, self.url = own, own.new_database()

    def limit(self, _server: int, most: int | None) -> None:
        self.own.limit_files("unlimited" if most is None else str(most))


@contextmanager
def store_of(kind: str, folder: Path) -> Iterator[Sqlite | Server]:
    if kind == "sqlite":
        yield Sqlite(folder)
        return
    with postgres("--wal-segsize=1") as own:
        yield Server(own)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_full_disk_is_503_and_loses_nothing_and_goes_on_when_there_is_room(kind: str, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with store_of(kind, tmp_path) as store:
        processes = Processes(tmp_path, store.url)
        try:
            server = processes.start("serve", "--port", str(port))
            until(Client(url, tries=1).ready)
            oak = register(url, grid(2, 2))
            store.limit(server.pid, ROOM)
            stored, refused = _fill(url, oak["token"])
            assert len(stored) > 5
            assert {answer.status_code for answer in refused} == {503}
            assert {answer.json()["code"] for answer in refused} == {"unavailable"}
            assert all(int(answer.headers["Retry-After"]) > 0 for answer in refused)
            assert _listed(url, oak["token"]) == sorted(stored)
            store.limit(server.pid, None)
            with Client(url, oak["token"]) as client:
                stored.append(client.submit(SPEC)["id"])
            assert _listed(url, oak["token"]) == sorted(stored)
            assert "Traceback" not in (tmp_path / "0-serve.log").read_text()
        finally:
            processes.end()


def _fill(url: str, token: str) -> tuple[list[str], list[httpx.Response]]:
    """Submit large jobs until five of them are refused."""
    stored: list[str] = []
    refused: list[httpx.Response] = []
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as api:
        while len(refused) < 5:
            large = jobspec(command=["true", secrets.token_hex(60_000)])
            answer = api.post("/v1/jobs", json=large)
            if answer.status_code == 201:
                stored.append(answer.json()["id"])
            else:
                refused.append(answer)
            assert len(stored) < 500, "the disk was never full"
    return stored, refused


def _listed(url: str, token: str) -> list[str]:
    with Client(url, token) as client:
        return sorted(job["id"] for job in client.all_jobs())


# ── a store that may only be read ──


@contextmanager
def check_read_only(api: Api, token: str) -> Iterator[None]:
    """What a server says while its store may only be read, and that it goes on after the block."""
    for _ in range(3):
        answer = api.call("POST", "/v1/jobs", jobspec(), token)
        assert (answer.status_code, answer.get_json()["code"]) == (503, "unavailable")
        assert int(answer.headers["Retry-After"]) > 0
    assert api.good("GET", "/v1/clusters", None, token)["clusters"]
    assert api.good("POST", "/v1/match", jobspec(), token)["candidates"]
    yield
    made = api.good("POST", "/v1/jobs", jobspec(), token)["id"]
    assert [job["id"] for job in api.good("GET", "/v1/jobs", None, token)["jobs"]] == [made]
    api.service.close()


def test_file_that_may_only_be_read_is_503_answers_reads_and_goes_on(tmp_path: Path, clock: Clock) -> None:
    """As on a file system that was mounted anew for reading; the file's own mode says nothing to root."""

    def only_read(raw: Any, _: Any) -> None:
        raw.execute("PRAGMA query_only=ON")

    api = Api(open_service_at(f"sqlite:///{tmp_path}/x.db", clock))
    oak, engine = api.register("oak"), api.service.store.engine
    sa.event.listen(engine, "connect", only_read)
    engine.dispose()
    with check_read_only(api, oak.token):
        sa.event.remove(engine, "connect", only_read)
        engine.dispose()


def test_postgresql_that_stands_by_is_503_answers_reads_and_goes_on_when_promoted(clock: Clock) -> None:
    with postgres() as own:
        api = Api(open_service_at(own.new_database(), clock))
        oak = api.register("oak")
        own.stand_by()
        with check_read_only(api, oak.token):
            own.promote()
