"""Nobody without a credential, and nobody who waits, keeps the server from others (docs/threat-model.md)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.api.lanes import Lane
from rainbow.api.places import Places
from rainbow.testing.executors import until
from tests.conftest import ADMIN, grid, jobspec
from tests.support.ports import free_port
from tests.unit.api.test_api_server import client, register, server

CONFIG = """
limits: {connections: 400, connections_per_address: 60, header_seconds: 1, body_seconds: 1, streams: 1, waiting: 200}
server: {threads: 4, log: info}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("strangers")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[tuple[int, dict[str, Any], int]]:
    """Serve with small limits; the port, a cluster's credentials, and the process."""
    port = free_port()
    with server(folder, port, CONFIG) as process:
        yield port, register(port), process.pid


def send(port: int, *lines: str) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=10)
    if lines:
        made.sendall("\r\n".join([*lines, "", ""]).encode())
    return made


def answered(made: socket.socket) -> bytes:
    with made:
        result = b""
        while part := made.recv(65_536):
            result += part
        return result


def connections(port: int, kind: str) -> float:
    """How many connections of a kind are open, as the metrics say."""
    with client(port, ADMIN) as api:
        text = api.get("/metrics").text
    return float(text.split(f'rainbow_connections{{kind="{kind}"}} ')[1].split()[0])


def test_five_hundred_idle_and_slow_connections_leave_the_server_answering(served: Any) -> None:
    port, oak, _ = served
    attack = [sys.executable, "-m", "tests.support.strangers", str(port), "400", "100", "60"]
    strangers = subprocess.Popen(attack, cwd=Path(__file__).parents[2])
    try:
        time.sleep(2)
        with client(port, oak["token"]) as api:
            began = time.monotonic()
            assert [api.post("/v1/jobs", json=jobspec()).status_code for _ in range(20)] == [201] * 20
            assert time.monotonic() - began < 20
        for _ in range(5):
            began = time.monotonic()
            assert httpx.get(f"http://127.0.0.1:{port}/livez").json() == {"status": "live"}
            assert time.monotonic() - began < 2  # alone on the machine: a tenth of a second
        # a busy machine takes a while to open so many connections
        until(lambda: connections(port, "aside") > 100, seconds=40)
        assert connections(port, "stranger") <= 60
    finally:
        strangers.kill()
        strangers.wait()


def test_strangers_without_a_place_stay_open_unheard_and_are_closed_when_they_speak(served: Any) -> None:
    port = served[0]
    first = send(port)
    half = send(port)
    half.sendall(b"GET /v1/jobs HTTP/1.1\r\n")
    others = [send(port) for _ in range(60)]
    try:
        for one in (first, half):
            one.settimeout(0.3)
            with pytest.raises(TimeoutError):
                one.recv(1)
        assert connections(port, "aside") >= 2
        first.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        half.sendall(b"Host: x\r\n\r\n")
        with suppress(ConnectionError):
            assert first.recv(1) == b""
        with pytest.raises(TimeoutError):
            half.recv(1)
    finally:
        for one in (first, half, *others):
            one.close()


def test_head_that_does_not_come_is_no_longer_waited_for(served: Any) -> None:
    began = time.monotonic()
    assert answered(send(served[0])) == b""
    with send(served[0]) as slow:
        slow.sendall(b"GET /v1/jobs HTTP/1.1\r\n")
        assert slow.recv(100) == b""
    assert time.monotonic() - began < 8
    long = send(served[0])
    long.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000)
    assert b" 431 " in answered(long)[:20]


def test_credentials_are_asked_for_before_the_body_is_read(served: Any) -> None:
    port, oak, _ = served
    graph = f"PUT /v1/clusters/oak/graph HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 20}"
    assert b" 401 " in answered(send(port, graph))
    assert b" 401 " in answered(send(port, graph, "Authorization: Bearer rbs_unknown"))
    large = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 20}"
    assert b"needs its credential in the header" in answered(send(port, large))
    huge = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 30}"
    assert b" 413 " in answered(send(port, huge, f"Authorization: Bearer {oak['token']}"))
    for head in ("GET /livez HTTP/1.1\r\nHost: x", large):  # answered before the application is asked
        assert b"x-request-id: mine\r\n" in answered(send(port, head, "X-Request-ID: mine", "Connection: close"))


def test_body_that_does_not_come_in_time_is_408_with_and_without_a_credential(served: Any) -> None:
    port, oak, _ = served
    head = "POST /v1/match HTTP/1.1\r\nHost: x\r\nContent-Length: 9000"
    assert b" 408 " in answered(send(port, head))
    assert b" 408 " in answered(send(port, head, f"Authorization: Bearer {oak['token']}"))


def test_fifty_waiting_agents_need_no_thread_and_hear_of_work(served: Any) -> None:
    port, oak, _ = served
    offered: list[int] = []

    def wait(name: str) -> None:
        with client(port, oak["secret"]) as agent:
            body = {"agent": name, "wait": 25, "max": 100}
            offered.append(len(agent.post("/v1/clusters/oak/receive", json=body).json()["tasks"]))

    with client(port, oak["token"]) as api:
        for job in api.get("/v1/jobs").json()["jobs"]:
            api.delete(f"/v1/jobs/{job['id']}")
        waiting = [threading.Thread(target=wait, args=(f"a{k}",), daemon=True) for k in range(50)]
        for each in waiting:
            each.start()
        time.sleep(3)
        assert not offered
        began = time.monotonic()
        assert [api.get("/v1/jobs", params={"limit": 1}).status_code for _ in range(10)] == [200] * 10
        assert time.monotonic() - began < 5
        assert api.post("/v1/jobs", json=jobspec()).status_code == 201
    for each in waiting:
        each.join(20)
    assert offered == [1] * 50  # as in the beginning: what is assigned is offered to all until one accepts


def test_closed_stream_frees_its_place_at_once(served: Any) -> None:
    port, oak, _ = served
    with client(port, oak["token"]) as api:
        for _ in range(4):  # one stream of a caller is allowed
            with _opened_soon(api) as stream:
                lines = stream.iter_lines()
                next(lines)
                assert api.get("/v1/events").status_code == 429


@contextmanager
def _opened_soon(api: httpx.Client) -> Iterator[httpx.Response]:
    end = time.monotonic() + 2
    while True:
        with api.stream("GET", "/v1/events") as stream:
            if stream.status_code == 200:
                yield stream
                return
        assert time.monotonic() < end, "the place of a closed stream is not free"
        time.sleep(0.05)


def test_stream_of_a_cluster_tells_of_that_one_only(served: Any) -> None:
    port, oak, _ = served
    with client(port, ADMIN) as api:
        made = api.post("/v1/clusters", json={"name": "elm", "graph": grid(1, 1)})
        assert made.status_code == 201
        text = api.get("/v1/events", params={"follow": "false", "cluster": "elm"}).text
        assert '"registered"' in text
        assert "ASSIGNED" not in text
        assert api.get("/v1/events", params={"cluster": "none"}).status_code == 404
        assert api.get("/v1/events", params={"clusters": "elm"}).json()["detail"].endswith("did you mean cluster?")
    with client(port, oak["token"]) as api:
        assert api.get("/v1/events", params={"cluster": "elm"}).status_code == 404


def test_worker_process_that_is_killed_again_and_again_comes_back(served: Any, folder: Path) -> None:
    port, oak, parent = served
    for _ in range(3):
        [worker] = psutil.Process(parent).children()
        os.kill(worker.pid, signal.SIGKILL)
        with client(port, oak["token"]) as api:
            assert _answers_soon(api)
    assert (folder / "log").read_text().count('"event": "worker-ended"') == 3


def _answers_soon(api: httpx.Client) -> bool:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            return api.get("/v1/jobs").status_code == 200
        except httpx.TransportError:
            time.sleep(0.1)
    return False


# ── the places by themselves ──

MOVES = st.lists(
    st.tuples(st.sampled_from(["enter", "prove", "leave", "rest", "work"]), st.integers(0, 12)), max_size=60
)


@given(MOVES)
def test_places_are_never_exceeded_and_a_newcomer_sets_the_first_stranger_aside(moves: list[tuple[str, int]]) -> None:
    places, open_, known, aside = Places(6, of_address=3, aside=2), dict[int, str](), set[int](), list[int]()
    for move, one in moves:
        if move == "enter" and one not in open_ and one not in aside:
            strangers = [each for each in open_ if each not in known and open_[each] == str(one % 2)]
            lost, closed = places.enter(one, str(one % 2))
            if len(strangers) == 3:
                assert lost == strangers[0]
            for gone in (lost, closed):
                open_.pop(gone, None)  # type: ignore[call-overload]
                known.discard(gone)  # type: ignore[arg-type]
            aside = [each for each in [*aside, lost] if each not in (None, closed)]
            if closed != one:
                open_[one] = str(one % 2)
        if move == "prove" and places.prove(one, f"c{one % 2}"):
            known.add(one)
            open_.setdefault(one, "")
            aside = [each for each in aside if each != one]
        if move in ("rest", "work"):
            places.rests(one, move == "rest")
        if move == "leave":
            places.leave(one)
            open_.pop(one, None)
            known.discard(one)
            aside = [each for each in aside if each != one]
        assert len(places) == len(open_) <= 6
        assert places.counts() == {"stranger": len(open_) - len(known), "known": len(known), "aside": len(aside)}
        assert len(aside) <= 2


def test_one_caller_takes_half_of_the_threads_at_most_while_others_wait() -> None:
    lane, hold, taken = Lane("work", 4), threading.Event(), list[str]()

    def busy(caller: str) -> None:
        taken.append(caller)
        hold.wait(10)

    async def ask() -> int:
        greedy = [asyncio.ensure_future(lane.run("greedy", busy, "greedy")) for _ in range(20)]
        await asyncio.sleep(0.1)
        held = len(taken)
        other = asyncio.ensure_future(lane.run("other", busy, "other"))
        while "other" not in taken:
            await asyncio.sleep(0.01)
        hold.set()
        await asyncio.gather(*greedy, other)
        return held

    assert asyncio.run(asyncio.wait_for(ask(), 20)) == 2
    assert taken.count("greedy") == 20


@pytest.mark.soak
def test_five_thousand_idle_and_a_thousand_slow_connections(tmp_path: Path) -> None:
    """The limits are the defaults. Submits go on at 80 % of their rate, and /livez answers within a second.

    Rates are by the server's processor time: how much of the machine others take changes from one window to the next.
    """
    port = free_port()
    with server(tmp_path, port) as process:
        oak = register(port)
        parts = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        submitted(port, oak["token"], 2)
        began = busy(parts)
        alone, alone_busy = submitted(port, oak["token"], 10), busy(parts) - began
        attack = [sys.executable, "-m", "tests.support.strangers", str(port), "5000", "1000", "60"]
        strangers = subprocess.Popen(attack, cwd=Path(__file__).parents[2])
        try:
            time.sleep(10)
            began = busy(parts)
            beside, beside_busy = submitted(port, oak["token"], 10), busy(parts) - began
            waits = [seconds(lambda: httpx.get(f"http://127.0.0.1:{port}/livez", timeout=5)) for _ in range(10)]
        finally:
            strangers.kill()
            strangers.wait()
    rates = alone / alone_busy, beside / beside_busy
    print(f"submits in 10 s: {alone} alone, {beside} beside; longest /livez {max(waits):.2f} s")
    print(f"submits a second of the server's processor: {rates[0]:.0f} alone, {rates[1]:.0f} beside")
    assert max(waits) < 1
    assert rates[1] >= 0.8 * rates[0]


def busy(parts: list[psutil.Process]) -> float:
    """Return the seconds of processor time that processes have taken."""
    return float(sum(sum(part.cpu_times()[:2]) for part in parts))


def submitted(port: int, token: str, most: float) -> int:
    """Count the submits of one client in some seconds."""
    done, end = 0, time.monotonic() + most
    with client(port, token) as api:
        while time.monotonic() < end:
            done += api.post("/v1/jobs", json=jobspec()).status_code == 201
    return done


def seconds(act: Any) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began
