"""An agent killed after the server has heard a message and before the agent has heard the answer."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import journal
from rainbow.agent.journal import Journal
from rainbow.api import create_app
from tests.scenarios.test_end_to_end import Processes
from tests.support.agent_sites import register
from tests.support.live import http, service_at, url_of
from tests.support.registering import processes_of


class Deadly:
    """An application that does what it is asked, and kills who asked before the answer leaves, the n-th time."""

    def __init__(self, app: Any, verb: str, number: int, kill: Callable[[], None]) -> None:
        self._app, self._verb, self._left, self._kill = app, verb, number, kill

    @property
    def has_killed(self) -> bool:
        return self._left <= 0

    def __call__(self, environ: Any, start: Any) -> Any:
        answer = list(self._app(environ, start))
        if environ["PATH_INFO"].endswith(f"/{self._verb}") and (self._verb != "receive" or b'"job"' in answer[0]):
            self._left -= 1
            if self._left == 0:
                self._kill()
        return answer


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with processes_of(tmp_path) as made:
        yield made


SOAKED = [("receive", 1), ("events", 1), ("heartbeat", 1)]


@pytest.mark.parametrize(
    ("verb", "number"),
    [("accept", 1), ("events", 2), *(pytest.param(*case, marks=pytest.mark.soak) for case in SOAKED)],
)
def test_an_answer_that_was_lost_loses_and_doubles_nothing(
    tmp_path: Path, processes: Processes, verb: str, number: int
) -> None:
    lines = tmp_path / "lines"
    with service_at(tmp_path, lease=40.0) as service:

        def kill() -> None:
            processes.running[-1].send_signal(signal.SIGKILL)
            processes.running[-1].wait()

        deadly = Deadly(create_app(service), verb, number, kill)
        with http(deadly) as port:
            site = register(url_of(port))
            arguments = ("agent", "--cluster", "oak", "--url", site.url, "--state-dir", str(tmp_path / "state"))
            agent = processes.start(*arguments, RAINBOW_SECRET=site.secret)
            jobs = [site.submit("sh", "-c", f'echo {n} >> "$1"; sleep 1.5', "sh", str(lines)) for n in range(3)]
            assert agent.wait(60) == -signal.SIGKILL
            assert deadly.has_killed
            processes.start(*arguments, RAINBOW_SECRET=site.secret)
            assert {site.end(job, 60)["state"] for job in jobs} == {"COMPLETED"}
            assert [site.task(job)["attempt"] for job in jobs] == [1, 1, 1]
            assert sorted(lines.read_text().split()) == ["0", "1", "2"]
            site.user.close()


def test_numbers_of_messages_go_on_after_a_restart_however_many_there_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "BLOCK", 4)
    said: list[int] = []
    for messages in (1, 3, 4, 5, 0, 9, 40, 2):
        one = Journal(tmp_path)
        said += [one.next_number() for _ in range(messages)]
        one.close()
    assert said == sorted(set(said))
