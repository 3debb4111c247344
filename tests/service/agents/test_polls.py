"""An agent that asks the same again while nothing happens is answered without the view: no thread, no statement."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rainbow.api import create_app
from rainbow.api.front import Front
from rainbow.errors import Unavailable
from rainbow.service import Service
from rainbow.service.agents.liveness import departed, store_signs
from rainbow.store import workers
from rainbow.store.credentials import SECRET
from tests.conftest import ADMIN, Api, Clock, Cluster, grid, jobspec, open_service_at


class Asked:
    """Polls of an agent through a front; `seen` counts what reached the application."""

    def __init__(self, service: Service, oak: Cluster) -> None:
        self.oak, self.seen, self.ids = oak, 0, set[bytes]()
        self.hang_up: Callable[[], None] = lambda: None
        app = create_app(service)
        app.before_request(self._count)
        self.front = Front(app, service)
        self.loop = asyncio.new_event_loop()

    def _count(self) -> None:
        self.seen += 1

    def poll(self, secret: str = "", wait: float = 0.02) -> tuple[int, Any]:
        """Ask once; return the status and the answer."""
        return self.loop.run_until_complete(self._answered(*self._asked(secret, wait)))

    def leave(self, wait: float) -> None:
        """Ask once, and go as soon as it is known that there is nothing."""
        self.loop.run_until_complete(self._left(wait))

    async def _left(self, wait: float) -> None:
        asking = asyncio.ensure_future(self._answered(*self._asked("", wait)))
        while not len(self.front._polls._known):
            await asyncio.sleep(0.01)
        asking.cancel()

    def _asked(self, secret: str, wait: float) -> tuple[dict[str, Any], bytes]:
        body = json.dumps({"agent": "a", "wait": wait}).encode()
        head = [(b"authorization", f"Bearer {secret or self.oak.secret}".encode())]
        path = "/v1/clusters/oak/receive"
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [*head, (b"content-length", str(len(body)).encode())],
            "scheme": "http",
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "http_version": "1.1",
        }
        return scope, body

    async def _answered(self, scope: dict[str, Any], body: bytes) -> tuple[int, Any]:
        answers: list[dict[str, Any]] = []
        sent = [{"type": "http.request", "body": body}]
        gone = asyncio.get_running_loop().create_future()
        self.hang_up = lambda: gone.set_result({"type": "http.disconnect"})

        async def receive() -> dict[str, Any]:
            return sent.pop() if sent else await gone

        async def send(message: dict[str, Any]) -> None:
            answers.append(message)

        await self.front(scope, receive, send)
        if not answers:
            return 0, None
        self.ids |= {value for key, value in answers[0]["headers"] if key == b"x-request-id"}
        return answers[0]["status"], json.loads(answers[1]["body"])


@pytest.fixture
def service(tmp_path: Path, clock: Clock) -> Service:
    return open_service_at(tmp_path, clock)


@pytest.fixture
def asked(service: Service) -> Iterator[Asked]:
    oak = Api(service).register("oak", grid(1, 1))
    oak.say("heartbeat")
    assert service.turns.scheduling()
    made = Asked(service, oak)
    yield made
    made.loop.close()


def test_the_same_question_is_answered_from_memory_and_renews_the_lease(
    asked: Asked, service: Service, clock: Clock
) -> None:
    first = asked.poll()
    clock.now += 50
    assert [asked.poll() for _ in range(3)] == [first] * 3
    assert (asked.seen, first[0], first[1]["tasks"], len(asked.ids)) == (1, 200, [], 4)
    clock.now += 50  # the lease is 60: the heartbeat is 100 old, the last poll 50
    store_signs(service)
    with service.store.read() as connection:
        sign = workers.agents_of(connection, service.catalogue["oak"].id)["a"]
    assert service.heartbeats.silence(service.catalogue["oak"].id, sign).certain == 50
    assert sign.seen_at == clock.now - 50  # what says nothing new is stored later, with others


def give_work(oak: Cluster) -> None:
    oak.api.good("POST", "/v1/jobs", jobspec(1), oak.token)
    oak.api.good("POST", "/v1/clusters/oak/step", None, ADMIN)


def test_work_that_came_between_two_polls_is_offered(asked: Asked) -> None:
    asked.poll()
    give_work(asked.oak)
    assert len(asked.poll()[1]["tasks"]) == 1


def test_a_poll_from_memory_hears_of_work_while_it_waits(asked: Asked) -> None:
    asked.leave(wait=30)
    thread = threading.Timer(0.1, give_work, (asked.oak,))
    thread.start()
    assert len(asked.poll(wait=30)[1]["tasks"]) == 1
    thread.join()
    assert asked.seen == 2


@pytest.mark.parametrize("from_memory", [False, True])
def test_an_agent_that_hangs_up_while_it_waits_is_noted_and_one_that_comes_again_is_not(
    asked: Asked, service: Service, from_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rainbow.service.core.heartbeats.AWAY", 0.0)
    if from_memory:
        asked.leave(wait=30)
    threading.Timer(0.2, lambda: asked.loop.call_soon_threadsafe(asked.hang_up)).start()
    assert asked.poll(wait=30) == (0, None)
    assert list(departed(service)) == [service.catalogue["oak"].id]
    asked.poll()
    assert departed(service) == {}


def test_a_secret_that_is_rotated_is_refused_at_the_next_poll(asked: Asked) -> None:
    asked.poll()
    listed = asked.oak.api.good("GET", "/v1/tokens", None, asked.oak.secret)["tokens"]
    [own] = [one for one in listed if one["kind"] == SECRET]
    asked.oak.api.good("POST", f"/v1/tokens/{own['id']}:rotate", None, asked.oak.secret)
    assert asked.poll()[0] == 401


def test_what_is_told_of_everything_ends_the_memory(asked: Asked, service: Service) -> None:
    asked.poll()
    service.tell()  # new settings, for example: nothing was ever told of this cluster's offers
    asked.poll()
    assert asked.seen > 1


def test_a_poll_is_asked_in_full_after_a_lease(
    asked: Asked, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.poll()
    known = asked.front._polls._known
    monkeypatch.setattr(known, "get", lambda key: replace(known._kept[key], until=0.0))
    asked.poll()
    assert asked.seen == 2


def test_where_another_process_may_step_every_poll_reaches_the_view(asked: Asked, service: Service) -> None:
    service.turns.close()
    for _ in range(3):
        asked.poll()
    assert asked.seen == 3
    service.news.heard = True  # on PostgreSQL, while the notifications of others arrive
    for _ in range(3):
        asked.poll()
    assert asked.seen == 4
    service.news.heard = False
    asked.poll()
    assert asked.seen == 5


def test_signs_that_could_not_be_stored_are_stored_when_the_store_is_back(
    asked: Asked, service: Service, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.poll()
    clock.now += 20
    asked.poll()

    def away(_: object) -> None:
        raise Unavailable("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(service.store, "together", away)
        with pytest.raises(Unavailable):
            store_signs(service)
    clock.now += 5
    store_signs(service)
    with service.store.read() as connection:
        assert workers.agents_of(connection, service.catalogue["oak"].id)["a"].seen_at == clock.now - 5
