"""What the client says of a call that was sent and not answered, and of one that was never sent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from rainbow.client import Client, Problem
from rainbow.errors import RainbowError, Unavailable
from tests.support.ports import free_port

HANG, CLOSE = b"", b"close"
AWAY = b"HTTP/1.1 503 x\r\nContent-Length: 48\r\n\r\n" + b'{"code": "unavailable", "outcome": "none"}      '


class Server:
    """Says one thing on each connection, after a whole request; the last one for ever."""

    def __init__(self, *answers: bytes) -> None:
        self._answers, self._open = list(answers), list[socket.socket]()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._door.accept()
                self._open.append(line)
                line.recv(1 << 16)
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                if answer == CLOSE:
                    line.close()
                elif answer:
                    line.sendall(answer)
                    line.close()

    def close(self) -> None:
        self._door.close()
        for line in self._open:
            line.close()


@pytest.fixture
def server() -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def start(*answers: bytes) -> Server:
        made.append(Server(*answers))
        return made[-1]

    yield start
    for each in made:
        each.close()


def fault(url: str, call: Callable[[Client], Any], tries: int = 1) -> RainbowError:
    with Client(url, "rbs_x", timeout=0.3, tries=tries, sleep=lambda _: None) as client:
        with pytest.raises(RainbowError) as raised:
            call(client)
        return raised.value


CALLS: list[tuple[Callable[[Client], Any], str]] = [
    (lambda client: client.register_cluster("oak", {}), "rainbow cluster list"),
    (lambda client: client.mint_token(["oak"]), "rainbow token list"),
    (lambda client: client.rotate_token("t1"), "rainbow token list"),
    (lambda client: client.reserve("oak", {}, duration=1), "rainbow reserve list oak"),
    (lambda client: client.submit({}), "rainbow jobs"),
    (lambda client: client.cancel("1234"), "rainbow jobs"),
    (lambda client: client.delete_cluster("oak"), "rainbow cluster list"),
]


@pytest.mark.parametrize(("call", "command"), CALLS)
def test_call_without_an_answer_in_time_may_be_done(
    server: Callable[..., Server], call: Callable[[Client], Any], command: str
) -> None:
    url = server(HANG).url
    error = fault(url, call)
    assert (str(error), error.outcome) == (
        f"no answer from {url} within 0.3 s: it may be done; look with `{command}`",
        "unknown",
    )


def test_connection_that_ends_without_an_answer_or_in_its_middle_may_have_done_it(
    server: Callable[..., Server],
) -> None:
    for answer in (CLOSE, b"HTTP/1.1 201 Created\r\nContent-Len", b"HTTP/1.1 201 x\r\nContent-Length: 9\r\n\r\n{"):
        error = fault(server(answer).url, lambda client: client.mint_token(["oak"]))
        assert (error.outcome, "it may be done" in str(error)) == ("unknown", True), (answer, str(error))
        assert "cannot reach" not in str(error)


def test_what_was_never_sent_is_none() -> None:
    error = fault(f"http://127.0.0.1:{free_port()}", lambda client: client.mint_token(["oak"]))
    assert isinstance(error, Unavailable)
    assert error.outcome == "none"
    assert str(error).startswith("cannot reach the server at ")


def test_question_without_an_answer_is_done_by_nobody(server: Callable[..., Server]) -> None:
    for call in (lambda client: client.clusters(), lambda client: client.match({})):
        error = fault(server(HANG).url, call)
        assert (error.outcome, "may be done" in str(error)) == ("none", False)


def test_try_that_was_sent_and_lost_counts_whatever_comes_after_it(server: Callable[..., Server]) -> None:
    error = fault(server(CLOSE, AWAY).url, lambda client: client.mint_token(["oak"]), tries=2)
    assert isinstance(error, Problem)
    assert error.outcome == "unknown"
    assert fault(server(AWAY).url, lambda client: client.mint_token(["oak"])).outcome == "none"


def test_server_that_ends_after_a_try_that_was_sent_may_have_done_it(server: Callable[..., Server]) -> None:
    one = server(CLOSE)
    client = Client(one.url, "rbs_x", tries=3, sleep=lambda _: one.close())
    with client, pytest.raises(Unavailable) as raised:
        client.mint_token(["oak"])
    assert raised.value.outcome == "unknown"
    assert "it may be done" in str(raised.value)


def test_parts_of_a_batch_that_was_sent_before_may_be_done(server: Callable[..., Server]) -> None:
    parts = b'{"answers": [{"status": 503, "outcome": "none"}, {"status": 422, "outcome": "none"}, {"status": 201}]}'
    batch = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(parts) + parts
    for before, outcome in ((CLOSE, "unknown"), (AWAY, "none"), (AWAY.replace(b"none", b"unknown"), "unknown")):
        url = server(before.replace(b": 48", b": 51") if b"unknown" in before else before, batch).url
        with Client(url, "rbs_x", timeout=0.3, tries=2, sleep=lambda _: None) as client:
            answers = client.submit_batch([{"jobspec": {}}] * 3)["answers"]
        assert [each.get("outcome") for each in answers] == [outcome, "none", None]


def test_try_that_may_be_done_counts_whatever_is_answered_after_it(server: Callable[..., Server]) -> None:
    doubt = AWAY.replace(b"none", b"unknown").replace(b": 48", b": 51")
    assert fault(server(doubt, AWAY).url, lambda client: client.submit({}), tries=2).outcome == "unknown"
