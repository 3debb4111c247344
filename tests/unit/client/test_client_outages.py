"""What waits goes on while the server is away: for a job's end, and for events."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.api import create_app
from rainbow.client import Client, Problem
from rainbow.client.wait import LONGEST_PAUSE, SILENCE_LIMIT
from rainbow.errors import TryLater, Unavailable
from tests.conftest import REGISTRATION, Clock, grid, jobspec
from tests.support.blocking import Blocking
from tests.support.live import Answer, Script, agent_of, http, rainbow_at, service_at, url_of
from tests.support.services import package

JSON = {"Content-Type": "application/json"}
AWAY: Answer = (503, JSON, b'{"code": "unavailable", "detail": "the store is away"}')
PROXY: Answer = (502, {}, b"<h1>Bad Gateway</h1>")
RUNS: Answer = (200, JSON, b'{"id": "j1", "state": "RUNNING"}')
DONE: Answer = (200, JSON, b'{"id": "j1", "state": "COMPLETED"}')


@pytest.fixture(autouse=True, params=["Client", "AsyncClient"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both clients pass the same suite."""
    if request.param == "AsyncClient":
        package("greenlet")
        monkeypatch.setitem(globals(), "Client", Blocking)


class Waits:
    """A client of a script, whose clock moves by its pauses alone."""

    def __init__(self, port: int) -> None:
        self.clock = Clock()
        self.pauses: list[float] = []
        self.client = Client(url_of(port), "rbt_1", timeout=5, sleep=self._sleep, clock=self.clock)

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.now += seconds


@pytest.fixture
def waits() -> Iterator[Callable[..., Waits]]:
    opened: list[Any] = []

    def start(*answers: Any) -> Waits:
        server = http(Script(answers))
        opened.append((server, Waits(server.__enter__())))
        made: Waits = opened[-1][1]
        return made

    yield start
    for server, one in opened:
        one.client.close()
        server.__exit__(None, None, None)


def test_wait_goes_on_through_an_outage_with_growing_pauses(waits: Callable[..., Waits]) -> None:
    one = waits(RUNS, *[AWAY] * 25, *[PROXY] * 3, RUNS, DONE)
    assert one.client.wait("j1")["state"] == "COMPLETED"
    between = [pause for pause in one.pauses if pause >= 1.0 and pause != 1.6]
    assert between == sorted(between)
    assert between[:4] == [1.0, 2.0, 4.0, 8.0]


def test_wait_gives_up_after_ten_minutes_and_says_that_the_job_goes_on(waits: Callable[..., Waits]) -> None:
    one = waits(RUNS, AWAY)
    began = one.clock.now
    with pytest.raises(
        Unavailable,
        match=r"the store is away; gave up after \d+ seconds; the job is unaffected; "
        "run `rainbow job wait j1` to keep waiting",
    ):
        one.client.wait("j1")
    assert SILENCE_LIMIT <= one.clock.now - began < SILENCE_LIMIT + 2 * LONGEST_PAUSE


def test_wait_with_a_time_of_its_own_gives_up_then(waits: Callable[..., Waits]) -> None:
    one = waits(RUNS, *[AWAY] * 1000)
    began = one.clock.now
    with pytest.raises(TryLater, match="rainbow job wait j1"):
        one.client.wait("j1", 60)
    assert 55 <= one.clock.now - began < 70


@pytest.mark.parametrize("first", [[AWAY], [PROXY]])
def test_server_that_never_answered_is_said_to_be_away_at_once(waits: Callable[..., Waits], first: Any) -> None:
    one = waits(*first)
    with pytest.raises(Problem):
        one.client.wait("j1")
    assert sum(one.pauses) < 5


def test_what_will_not_pass_ends_a_wait_at_once(waits: Callable[..., Waits]) -> None:
    one = waits(RUNS, (401, JSON, b'{"code": "unauthenticated"}'))
    with pytest.raises(Problem):
        one.client.wait("j1")
    assert one.pauses == [0.5]


def told(*parts: str) -> Answer:
    return (200, {"Content-Type": "text/event-stream"}, "".join(parts).encode())


def event(number: int, name: str = "job") -> str:
    return f"id: {number}\nevent: {name}\ndata: {json.dumps({'at': 'now'})}\n\n"


def test_stream_is_taken_up_after_the_last_event_it_told(waits: Callable[..., Waits]) -> None:
    script = Script(
        [
            told(": rainbow\nid: 7\n\n"),
            AWAY,
            told(": rainbow\nid: 7\n\n", event(8), event(9), ": alive\n\n", "id: 10\nevent: jo"),
            told(event(11), 'event: end\ndata: {"code": "unavailable"}\n\n'),
            (401, JSON, b'{"code": "unauthenticated", "detail": "ended"}'),
        ]
    )
    with http(script) as port:
        one = Waits(port)
        heard: list[Any] = []
        with pytest.raises(Problem, match="ended"):
            heard.extend(each["id"] for each in one.client.stream())
        one.client.close()
    assert heard == [8, 9, 11]
    assert [request.args.get("after") for request in script.requests] == [None, "7", "7", "9", "11"]


def test_stream_of_what_there_is_ends_with_it(waits: Callable[..., Waits]) -> None:
    one = waits(told(event(1), event(2)))
    assert [each["id"] for each in one.client.stream(0, follow=False)] == [1, 2]
    assert one.pauses == []


def test_stream_gives_up_after_ten_minutes_and_says_where_to_go_on(waits: Callable[..., Waits]) -> None:
    one = waits(told(event(5)), AWAY)
    with pytest.raises(Unavailable, match="run `rainbow events --after 5` to resume"):
        list(one.client.stream())


def test_job_is_followed_over_a_restart_of_the_server(tmp_path: Path) -> None:
    away = threading.Event()

    def pause(seconds: float) -> None:
        away.set() if seconds >= 1.0 else None
        time.sleep(0.1)

    with rainbow_at(tmp_path) as url, Client(url, REGISTRATION) as owner:
        oak = owner.register_cluster("oak", grid(1, 1))
        user = Client(url, oak["token"], sleep=pause)
        job = user.submit(jobspec())["id"]
    ended: list[Any] = []
    following = threading.Thread(target=lambda: ended.append(user.wait(job, 300)), daemon=True)
    following.start()
    assert away.wait(20)
    port = int(url.rpartition(":")[2])
    with service_at(tmp_path) as service, http(create_app(service), port), agent_of(url, "oak", oak["secret"]):
        following.join(30)
    assert [each["state"] for each in ended] == ["COMPLETED"]
    user.close()
