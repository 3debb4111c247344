"""Agents, keepers and servers killed at the worst moments: what runs is adopted, what is lost is told."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rainbow.agent import Agent, Ended, Executor, Result, Run, open_executor
from rainbow.agent.journal import Journal, take_folder
from rainbow.agent.kept import KeptExecutor
from rainbow.agent.marks import sweep
from rainbow.agent.messages import ended
from tests.contract.test_executors import ends, run_of
from tests.live import rainbow_at
from tests.test_agent import PATH, Site, Told, Watched, offer, register, run_for, until
from tests.test_end_to_end import Processes

ONCE = 'echo "$$" >> "$1"; sleep "$2"; echo done'


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with rainbow_at(tmp_path, lease=20.0) as url:
        found = register(url)
        yield found
        found.user.close()


@pytest.fixture
def start(tmp_path: Path, site: Site) -> Iterator[Callable[[], Any]]:
    processes = Processes(tmp_path)
    arguments = ("agent", "--cluster", "oak", "--url", site.url, "--state-dir", str(tmp_path / "state"))
    yield lambda: processes.start(*arguments, RAINBOW_SECRET=site.secret)
    processes.end()
    for keeper in keepers(tmp_path):
        keeper.kill()
    end_of_marked(tmp_path)


def keepers(folder: Path) -> list[psutil.Process]:
    return [one for one in psutil.process_iter() if "keeper" in words(one) and str(folder) in " ".join(words(one))]


def words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def end_of_marked(folder: Path) -> None:
    for state in (folder / "state").glob("*"):
        sweep(str(state))


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_an_agent_killed_and_started_again_adopts_what_runs(
    site: Site, start: Callable[[], Any], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    agent = start()
    job = site.submit("sh", "-c", ONCE, "sh", str(pids), "4")
    site.until(job, "RUNNING")
    agent.kill()
    agent.wait()
    start()
    ended = site.end(job)
    assert (ended["state"], ended["tasks"][0]["output"], ended["tasks"][0]["attempt"]) == ("COMPLETED", "done\n", 1)
    assert len(pids.read_text().splitlines()) == 1


def test_what_ended_while_the_agent_was_dead_is_told(site: Site, start: Callable[[], Any], tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    agent = start()
    job = site.submit("sh", "-c", ONCE, "sh", str(pids), "1")
    site.until(job, "RUNNING")
    agent.kill()
    agent.wait()
    until(lambda: not alive(int(pids.read_text())))
    assert site.task(job)["state"] == "RUNNING"
    start()
    assert site.end(job)["tasks"][0]["exit_code"] == 0
    assert (site.task(job)["attempt"], len(pids.read_text().splitlines())) == (1, 1)


def test_what_ran_under_a_keeper_that_was_killed_is_ended_and_runs_again(
    site: Site, start: Callable[[], Any], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    start()
    job = site.submit("sh", "-c", 'echo $$ >> "$1"; test $(wc -l < "$1") -gt 1 || sleep 60', "sh", str(pids))
    site.until(job, "RUNNING")
    [keeper] = keepers(tmp_path)
    keeper.kill()
    assert site.end(job)["state"] == "COMPLETED"
    assert site.task(job)["attempt"] == 2
    assert not alive(int(pids.read_text().split()[0]))


def test_agent_and_keeper_killed_leave_nothing_running(site: Site, start: Callable[[], Any], tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    agent = start()
    job = site.submit("sh", "-c", 'echo $$ >> "$1"; test $(wc -l < "$1") -gt 1 || sleep 60', "sh", str(pids))
    site.until(job, "RUNNING")
    agent.kill()
    keepers(tmp_path)[0].kill()
    agent.wait()
    assert alive(int(pids.read_text()))
    start()
    assert site.end(job)["state"] == "COMPLETED"
    assert site.task(job)["attempt"] == 2
    assert not alive(int(pids.read_text().split()[0]))


def test_two_agents_of_one_cluster_and_machine_have_each_its_own_folder(tmp_path: Path) -> None:
    one, lock = take_folder(tmp_path, "oak")
    two, other = take_folder(tmp_path, "oak")
    assert (one.name, two.name) == ("oak", "oak-2")
    os.close(lock)
    assert take_folder(tmp_path, "oak")[0] == one
    os.close(other)


# ── the keeper ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for keeper in keepers(tmp_path):
        keeper.kill()


def test_a_keeper_keeps_an_end_until_it_is_known_to_be_told(folder: Path) -> None:
    one = KeptExecutor(PATH, folder)
    one.start(run_of("echo", "hi"))
    assert ends(one)[("t1", 1)].output == "hi\n"
    two = KeptExecutor(PATH, folder)  # the first was killed before it could say that it knows
    assert two.running() == [("t1", 1)]
    assert ends(two)[("t1", 1)].output == "hi\n"
    assert two.poll() == []
    assert KeptExecutor(PATH, folder).running() == []


def test_a_run_started_twice_runs_once(folder: Path) -> None:
    one = KeptExecutor(PATH, folder)
    run = run_of("sh", "-c", 'echo >> "$1"', "sh", str(folder / "n"))
    one.start(run)
    one.start(run)
    ends(one)
    assert len((folder / "n").read_text()) == 1


def test_a_keeper_that_nobody_asks_ends_everything_and_itself(folder: Path) -> None:
    one = KeptExecutor(PATH, folder, patience=4.0)  # long enough to be looked at by a busy machine
    one.start(run_of("sleep", "62"))
    until(lambda: any(keeper.children() for keeper in keepers(folder)))
    [keeper] = keepers(folder)
    [child] = keeper.children()
    until(lambda: not alive(keeper.pid) and not alive(child.pid))


def test_a_keeper_of_a_folder_with_a_very_long_name_is_found(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    one = KeptExecutor(PATH, folder)
    one.start(run_of("echo", "hi"))
    assert ends(one)[("t1", 1)].output == "hi\n"
    one.close()
    until(lambda: keepers(folder) == [])


def test_a_keeper_does_not_know_the_agents_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAINBOW_SECRET", "rbs_1")
    one = KeptExecutor(PATH, folder)
    [keeper] = keepers(folder)
    assert "RAINBOW_SECRET" not in keeper.environ()
    one.close()


# ── the journal ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_journal_opened_again_says_the_same_and_counts_on(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    first.keep([offer("a"), offer("b"), offer("c")])
    first.start(("b", 1))
    first.start(("c", 1))
    first.tell({"task": "b", "attempt": 1, "event": "started"})
    first.tell(ended(Ended(("c", 1), Result.EXITED, 0)))
    number = first.next_number()
    again = Journal(tmp_path)
    assert (again.id, list(again.offers), again.starting) == (first.id, [("a", 1)], {("b", 1)})
    assert again.outbox == first.outbox
    assert [event["event"] for event in again.outbox] == ["started", "ended"]
    assert again.next_number() > number
    again.told(1)
    assert [event["event"] for event in Journal(tmp_path).outbox] == ["ended"]


def test_a_journal_is_whole_after_every_change(tmp_path: Path) -> None:
    Journal(tmp_path).tell(ended(Ended(("c", 1), Result.EXITED, 0, "\N{SNOWMAN}")))
    read = sqlite3.connect(tmp_path / "agent.db").execute("SELECT event FROM outbox").fetchall()
    assert len(read) == 1


def agent_on(journal: Journal, told: Told, executor: Executor, seconds: float = 0.7) -> None:
    import threading

    agent = Agent(told, "oak", executor, journal, say=lambda _: None)  # type: ignore[arg-type]
    thread = threading.Thread(target=agent.run)
    thread.start()
    time.sleep(seconds)
    agent.stop()
    thread.join(20)
    assert not thread.is_alive()


def said(told: Told) -> list[tuple[str, str]]:
    return [(event["task"], event.get("result", event["event"])) for events in told.events_told for event in events]


def test_events_not_told_before_the_kill_are_told_after_it(tmp_path: Path) -> None:
    Journal(tmp_path).tell(ended(Ended(("t", 1), Result.EXITED, 0)))
    told = Told()
    agent_on(Journal(tmp_path), told, Watched())
    assert said(told) == [("t", "exited")]


def test_an_offer_not_accepted_before_the_kill_is_accepted_and_started_after_it(tmp_path: Path) -> None:
    Journal(tmp_path).keep([offer("a"), offer("b")])
    told, watched = Told(accept={"accepted": ["a"], "refused": [{"id": "b", "reason": "gone"}]}), Watched()
    agent_on(Journal(tmp_path), told, watched)
    assert watched.started == [("a", 1)]
    assert Journal(tmp_path).offers == {}


def test_what_was_about_to_start_and_is_not_known_is_told_as_lost(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    first.keep([offer("a")])
    first.start(("a", 1))
    told, watched = Told(), Watched()
    agent_on(Journal(tmp_path), told, watched)
    assert (said(told), watched.started) == ([("a", "stopped")], [])


def test_what_runs_and_is_in_no_journal_is_stopped(tmp_path: Path) -> None:
    executor = open_executor("local", PATH)
    executor.start(Run(("x", 1), "j", ("sleep", "63")))
    told = Told()
    agent_on(Journal(tmp_path), told, executor)
    assert said(told) == []


def test_a_late_agent_stops_what_is_no_longer_its_own() -> None:
    received = iter([{"tasks": [{**offer("a"), "command": ["sleep", "64"]}], "stop": [], "lease": 0.3}])
    nothing = {"tasks": [], "stop": [], "lease": 0.3}
    told = Told(accept={"accepted": ["a"], "refused": []})
    told.receive = lambda *_, **__: next(received, None) or time.sleep(0.05) or nothing  # type: ignore[method-assign]
    told.heartbeat = lambda *_, **__: {"stop": [], "stale": ["a"], "lease": 0.3}  # type: ignore[method-assign]
    watched = Watched()
    begun = time.monotonic()
    run_for(told, 1.5, watched)
    assert (said(told), watched.started) == ([("a", "started")], [("a", 1)])
    assert time.monotonic() - begun < 10


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


def agent_with(tmp_path: Path, url: str, secret: str) -> Any:
    processes = Processes(tmp_path)
    arguments = ("agent", "--cluster", "oak", "--url", url, "--state-dir", str(tmp_path / "state"))
    return processes.start(*arguments, RAINBOW_SECRET=secret)


NOT_TAKEN = (
    "rainbow: the server does not take this secret for that of cluster oak: it is wrong, or was revoked or rotated"
)


@pytest.mark.parametrize("secret", ["rbs_wrong", "rbt_wrong", ""])
def test_an_agent_with_a_wrong_secret_ends_and_says_why(site: Site, tmp_path: Path, secret: str) -> None:
    agent = agent_with(tmp_path, site.url, secret)
    assert agent.wait(20) == 5
    said = (tmp_path / "agent.log").read_text()
    assert "Traceback" not in said
    if secret:
        assert said.splitlines()[-1] == NOT_TAKEN
    assert said.splitlines()[-1].startswith("rainbow: ")
    until(lambda: keepers(tmp_path) == [])


def test_an_agent_whose_secret_is_revoked_while_it_works_ends_and_says_why(tmp_path: Path) -> None:
    from rainbow.store.schema import credentials
    from tests.live import service_at
    from tests.test_agent import create_app, http, url_of

    with service_at(tmp_path, lease=3.0) as service, http(create_app(service)) as port:
        site = register(url_of(port))
        agent = agent_with(tmp_path, site.url, site.secret)
        job = site.submit("sleep", f"65.{os.getpid()}")
        site.until(job, "RUNNING")
        with service.store.write() as connection:
            connection.execute(credentials.update().where(credentials.c.kind == "secret").values(revoked_at=1.0))
        assert agent.wait(40) == 5
        said = (tmp_path / "agent.log").read_text().splitlines()
        assert said[-1] == NOT_TAKEN
        until(lambda: keepers(tmp_path) == [])
        assert [one for one in psutil.process_iter() if f"65.{os.getpid()}" in words(one)] == []
        site.user.close()


def test_a_command_is_never_read_by_a_shell(site: Site, start: Callable[[], Any], tmp_path: Path) -> None:
    start()
    job = site.submit("echo", "; touch x", "$(touch y)", "`touch z`", cwd=str(tmp_path))
    assert site.end(job)["tasks"][0]["output"] == "; touch x $(touch y) `touch z`\n"
    assert not {"x", "y", "z"} & {path.name for path in tmp_path.iterdir()}
