"""The agent against a real server: what it starts, what it reports, and what it does when things go wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rainbow.agent import Agent, Ended, Executor, Pending, Run, RunId, open_executor
from rainbow.api import create_app
from rainbow.client import Client
from rainbow.service import Limits
from tests.support.agent_sites import PATH, Site, Watched, register, site, until
from tests.support.live import Script, agent_of, http, service_at, url_of

__all__ = ["site"]  # fixtures


def test_a_job_completes_and_its_output_is_seen(site: Site) -> None:
    with agent_of(site.url, "oak", site.secret):
        ended = site.end(site.submit("sh", "-c", 'echo "$1 on $RAINBOW_WORKER"', "sh", "naïve; touch x"))
    task = ended["tasks"][0]
    assert (ended["state"], task["exit_code"]) == ("COMPLETED", 0)
    assert task["output"] == f"naïve; touch x on {next(iter(task['placement']))}\n"


def test_as_much_output_is_kept_as_the_servers_limit_says(site: Site) -> None:
    with agent_of(site.url, "oak", site.secret):
        ended = site.end(site.submit("sh", "-c", "yes | head -c 100000; printf end"))
    output = ended["tasks"][0]["output"]
    assert len(output) == Limits().output == 65_536
    assert output.endswith("y\ny\nend")


def test_ends_of_every_kind_are_reported(site: Site) -> None:
    with agent_of(site.url, "oak", site.secret):
        failing = site.submit("sh", "-c", "exit 9")
        missing = site.submit("no-such-program")
        slow = site.submit("sleep", "60", duration=1)
        lost = site.submit("true", cwd="/no/such/place")
        assert [site.end(failing)["state"], site.task(failing)["exit_code"]] == ["FAILED", 9]
        assert [site.end(missing)["state"], site.task(missing)["exit_code"]] == ["FAILED", None]
        assert site.task(missing)["detail"] == "cannot start 'no-such-program': No such file or directory"
        assert "/no/such/place" in site.end(lost)["tasks"][0]["detail"]
        assert site.end(slow)["tasks"][0]["state"] == "TIMED_OUT"


class Queued(Watched):
    """An executor whose resource manager lets everything wait until it is released."""

    reason = Pending("Priority", "slurm job 7 waits: Priority")
    released = False

    def begun(self) -> Sequence[RunId]:
        return super().begun() if self.released else []

    def pending(self) -> Mapping[RunId, Pending]:
        return {} if self.released else dict.fromkeys(self.running(), self.reason)


def test_why_a_task_has_not_started_is_what_its_resource_manager_says(site: Site) -> None:
    job, queued = site.submit("sleep", "60"), Queued()

    def told() -> tuple[str, str] | None:
        wait = site.user.why(job)["wait"] or {}
        return (wait["reason"], wait["text"]) if "code" in wait.get("facts", {}) else None

    with agent_of(site.url, "oak", site.secret, queued):
        until(lambda: told() == ("pending", "slurm job 7 waits: Priority"))
        queued.reason = Pending("Resources", "slurm job 7 waits: Resources")
        until(lambda: told() == ("pending", "slurm job 7 waits: Resources"))
        queued.released = True
        site.until(job, "RUNNING")
        assert site.user.why(job)["wait"] is None
        site.user.cancel(job)
        site.end(job, 10)


def test_cancel_ends_what_runs(site: Site) -> None:
    with agent_of(site.url, "oak", site.secret) as agent:
        job = site.submit("sleep", "60")
        site.until(job, "RUNNING")
        site.user.cancel(job)
        assert site.end(job, 10)["state"] == "CANCELED"
        assert agent._executor.running() == []


def test_no_more_run_at_once_than_allowed(site: Site) -> None:
    jobs = [site.submit("sleep", "0.2") for _ in range(7)]
    watched = Watched()
    with agent_of(site.url, "oak", site.secret, watched, max_tasks=2):
        assert {site.end(job)["state"] for job in jobs} == {"COMPLETED"}
    assert watched.most == 2


def test_a_full_agent_still_hears_of_stops(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rainbow.agent.work_loop.FULL_BEAT", 0.3)
    with agent_of(site.url, "oak", site.secret, max_tasks=1):
        job = site.submit("sleep", "60")
        site.until(job, "RUNNING")
        site.user.cancel(job)
        assert site.end(job, 10)["state"] == "CANCELED"


def test_two_agents_of_a_cluster_run_every_task_once(site: Site) -> None:
    one, two = Watched(), Watched()
    with agent_of(site.url, "oak", site.secret, one), agent_of(site.url, "oak", site.secret, two):
        jobs = [site.submit("true") for _ in range(30)]
        assert {site.end(job)["state"] for job in jobs} == {"COMPLETED"}
    assert sorted(one.started + two.started) == sorted((f"{job}-0", 1) for job in jobs)


@pytest.mark.parametrize("many", [60, pytest.param(200, marks=pytest.mark.soak)])
def test_many_tasks_at_once_all_complete(site: Site, many: int) -> None:
    with agent_of(site.url, "oak", site.secret, max_tasks=many):
        jobs = [site.submit("true") for _ in range(many)]
        assert {site.end(job, 60)["state"] for job in jobs} == {"COMPLETED"}


def test_a_stopped_agent_gives_its_tasks_back(site: Site, tmp_path: Path) -> None:
    with agent_of(site.url, "oak", site.secret):
        job = site.submit(
            "sh", "-c", 'echo >> "$1"; test $(wc -l < "$1") -gt 1 || sleep 60', "sh", str(tmp_path / "n")
        )
        site.until(job, "RUNNING")
    assert site.task(job)["state"] in ("WAITING", "ASSIGNED")
    until(lambda: site.user.why(job)["wait"]["reason"] == "no-agent")  # it has signed off: no lease is waited for
    with agent_of(site.url, "oak", site.secret):
        assert site.end(job)["state"] == "COMPLETED"
    assert site.task(job)["attempt"] >= 2


def test_tasks_go_on_while_the_server_is_away_and_are_reported_later(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with service_at(tmp_path) as service:
        app = create_app(service)
        with http(app) as port:
            site = register(url_of(port))
            secret = site.secret
            running = agent_of(site.url, "oak", secret)
            agent = running.__enter__()
            job = site.submit("sh", "-c", 'sleep 1; echo told late; touch "$1"', "sh", str(done))
            site.until(job, "RUNNING")
        try:
            until(done.exists)
            time.sleep(0.5)
            assert agent._journal.has_news, "the end could not be told yet"
            with http(app, port):
                ended = site.end(job)
                assert (ended["state"], ended["tasks"][0]["output"]) == ("COMPLETED", "told late\n")
                assert site.task(job)["attempt"] == 1
                running.__exit__(None, None, None)
        finally:
            agent.stop()
            site.user.close()


def test_a_task_that_is_no_longer_ours_is_stopped_and_not_reported(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with service_at(tmp_path, lease=2.0, tick=0.1) as service:
        app = create_app(service)
        with http(app) as port:
            site = register(url_of(port))
            running = agent_of(site.url, "oak", site.secret)
            agent = running.__enter__()
            job = site.submit("sh", "-c", 'echo >> "$1"; test $(wc -l < "$1") -gt 1 || sleep 60', "sh", str(starts))
            site.until(job, "RUNNING")
        time.sleep(3.5)  # the lease runs out, and the task waits again
        with http(app, port):
            assert site.end(job)["state"] == "COMPLETED"
            assert site.task(job)["attempt"] > 1
            assert len(starts.read_text().splitlines()) == 2, "started once by each of two attempts"
            until(lambda: agent._executor.running() == [])
            running.__exit__(None, None, None)
        site.user.close()


def test_an_agent_without_a_server_goes_on_trying(tmp_path: Path) -> None:
    with http(Script([])) as port:
        pass
    said: list[str] = []
    with Client(url_of(port), "rbs_1", tries=1) as client:
        agent = Agent(client, "oak", open_executor("local", PATH), say=said.append)
        thread = threading.Thread(target=agent.run)
        thread.start()
        time.sleep(1.5)
        assert thread.is_alive()
        agent.stop()
        thread.join(5)
    assert not thread.is_alive()
    assert sum("server unreachable" in line for line in said) == 1


class Broken:
    """An executor that cannot start anything."""

    def start(self, run: Run) -> None:
        raise RuntimeError("no machine")

    def poll(self) -> Sequence[Ended]:
        return []

    def begun(self) -> Sequence[RunId]:
        return []

    def stop(self, run: RunId) -> None:
        raise AssertionError("nothing runs")

    def running(self) -> Sequence[RunId]:
        return []

    def close(self) -> None:
        pass


def test_a_fault_of_the_executor_is_one_tasks_end(site: Site) -> None:
    broken: Executor = Broken()
    with agent_of(site.url, "oak", site.secret, broken):
        task = site.end(site.submit("true"))["tasks"][0]
    assert (task["state"], task["detail"]) == ("FAILED", "the executor failed: no machine")
