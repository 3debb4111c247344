"""Agents, keepers and servers killed at the worst moments: what runs is adopted, what is lost is told."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.test_end_to_end import Processes
from tests.support.agent_sites import Site, register, until
from tests.support.keepers import alive, end_of_marked, keepers, wardens
from tests.support.live import rainbow_at

ONCE = 'echo "$$" >> "$1"; sleep "$2"; echo done'


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with rainbow_at(tmp_path, lease=20.0) as url:
        result = register(url)
        yield result
        result.user.close()


@pytest.fixture
def start(tmp_path: Path, site: Site) -> Iterator[Callable[[], Any]]:
    processes = Processes(tmp_path)
    arguments = (
        "agent",
        "--cluster",
        "oak",
        "--url",
        site.url,
        "--state-dir",
        str(tmp_path / "state"),
        "--isolate",
        "none",
    )
    yield lambda: processes.start(*arguments, RAINBOW_SECRET=site.secret)
    processes.end()
    for keeper in keepers(tmp_path):
        keeper.kill()
    end_of_marked(tmp_path)


def killed_while_running(site: Site, start: Callable[[], Any], pids: Path, seconds: str) -> str:
    """Kill an agent while its job runs, which writes its process id to a file; return the job."""
    agent = start()
    job = site.submit("sh", "-c", ONCE, "sh", str(pids), seconds)
    site.until(job, "RUNNING")
    agent.kill()
    agent.wait()
    return job


def test_an_agent_killed_and_started_again_adopts_what_runs(
    site: Site, start: Callable[[], Any], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    job = killed_while_running(site, start, pids, "4")
    start()
    ended = site.end(job)
    assert (ended["state"], ended["tasks"][0]["output"], ended["tasks"][0]["attempt"]) == ("COMPLETED", "done\n", 1)
    assert len(pids.read_text().splitlines()) == 1


def test_what_ended_while_the_agent_was_dead_is_told(site: Site, start: Callable[[], Any], tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    job = killed_while_running(site, start, pids, "1")
    until(lambda: not alive(int(pids.read_text())))
    assert site.task(job)["state"] == "RUNNING"
    start()
    assert site.end(job)["tasks"][0]["exit_code"] == 0
    assert (site.task(job)["attempt"], len(pids.read_text().splitlines())) == (1, 1)


def test_a_keeper_that_is_killed_ends_no_task(site: Site, start: Callable[[], Any], tmp_path: Path) -> None:
    start()
    jobs = [site.submit("sh", "-c", "sleep 3; echo done") for _ in range(2)]
    for job in jobs:
        site.until(job, "RUNNING")
    [keeper] = keepers(tmp_path)
    keeper.kill()
    for job in jobs:
        ended = site.end(job)["tasks"][0]
        assert (ended["state"], ended["output"], ended["attempt"]) == ("COMPLETED", "done\n", 1)


def test_what_ran_under_a_warden_that_was_killed_is_ended_and_runs_again(
    site: Site, start: Callable[[], Any], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    start()
    job = site.submit("sh", "-c", 'echo $$ >> "$1"; test $(wc -l < "$1") -gt 1 || sleep 60', "sh", str(pids))
    site.until(job, "RUNNING")
    [warden] = wardens(tmp_path)
    warden.kill()
    assert site.end(job)["state"] == "COMPLETED"
    assert site.task(job)["attempt"] == 2
    assert not alive(int(pids.read_text().split()[0]))


def test_agent_keeper_and_warden_killed_leave_nothing_running(
    site: Site, start: Callable[[], Any], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    agent = start()
    job = site.submit("sh", "-c", 'echo $$ >> "$1"; test $(wc -l < "$1") -gt 1 || sleep 60', "sh", str(pids))
    site.until(job, "RUNNING")
    agent.kill()
    for one in [*keepers(tmp_path), *wardens(tmp_path)]:
        one.kill()
    agent.wait()
    assert alive(int(pids.read_text()))
    start()
    assert site.end(job)["state"] == "COMPLETED"
    assert site.task(job)["attempt"] == 2
    assert not alive(int(pids.read_text().split()[0]))


def test_kill_9_of_an_agent_leaves_its_keeper(site: Site, start: Callable[[], Any], tmp_path: Path) -> None:
    agent = start()
    until(lambda: len(keepers(tmp_path)) == 1)
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    assert len(keepers(tmp_path)) == 1


def test_an_agent_told_to_stop_takes_its_keeper_with_it(site: Site, start: Callable[[], Any], tmp_path: Path) -> None:
    agent = start()
    assert site.end(site.submit("true"))["state"] == "COMPLETED"
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(20) == 0
    until(lambda: keepers(tmp_path) == [])


def test_a_command_is_never_read_by_a_shell(site: Site, start: Callable[[], Any], tmp_path: Path) -> None:
    start()
    job = site.submit("echo", "; touch x", "$(touch y)", "`touch z`", cwd=str(tmp_path))
    assert site.end(job)["tasks"][0]["output"] == "; touch x $(touch y) `touch z`\n"
    assert not {"x", "y", "z"} & {path.name for path in tmp_path.iterdir()}
