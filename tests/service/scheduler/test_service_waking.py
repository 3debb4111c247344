"""What wakes an agent that waits: work for its workers, orders to it; and nothing that is for others."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.service import Service
from rainbow.service.agents import protocol
from rainbow.service.core import pg_notify, pubsub
from rainbow.service.core.access import Caller
from rainbow.service.core.pg_notify import PgNotify
from rainbow.service.core.pubsub import ALL, MOST_WORKERS, PubSub, offers_to_all, work_for
from rainbow.service.scheduler.step import step
from tests.conftest import Api, Clock, Cluster, grid, jobspec, open_service_at
from tests.scenarios.test_end_to_end import until

WHO = Caller(admin=True)
AGENTS = ("a", "b", "c", "wide", "late")


class Waiting:
    """Agents that wait for work at a service, each as `look` told it to."""

    def __init__(self, service: Service, names: Iterable[str] = AGENTS) -> None:
        self.service, self.names, self.pauses = service, tuple(names), dict[str, Any]()
        self.again()

    def again(self) -> None:
        """Let all ask; none finds anything."""
        for name in self.names:
            result, pause, _ = protocol.look(self.service, WHO, "oak", name, 8, 20)
            assert (result["tasks"], pause is None) == ([], False), (name, result)
            self.pauses[name] = pause

    def woken(self) -> set[str]:
        """Return who asks again by now, and let nobody wait for what was."""
        results = {name for name in self.names if self.service.news.is_over(self.pauses[name])}
        for name in results:
            self.pauses[name] = protocol.look(self.service, WHO, "oak", name, 0, 20)[1] or self.pauses[name]
        return results


@pytest.fixture
def oak(api: Api) -> Cluster:
    made = api.register("oak", grid(6, 2))
    made.serve_one_job_a_worker()
    for agent, served in (("a", ["n0"]), ("b", ["n1", "n2"]), ("c", ["n3"]), ("wide", None), ("late", [])):
        made.say("heartbeat", agent, workers=served)
    for worker in ("n4", "n5"):
        made.api.good("POST", f"/v1/clusters/oak/workers/{worker}:offline", None, made.secret)
    return made


def only(oak: Cluster, *ready: str) -> None:
    """Let tasks start at these workers alone."""
    for worker in ("n0", "n1", "n2", "n3"):
        state = {one["name"]: one["state"] for one in workers(oak)}[worker]
        if (state == "READY") != (worker in ready):
            verb = "reinstate" if worker in ready else "offline"
            oak.api.good("POST", f"/v1/clusters/oak/workers/{worker}:{verb}", None, oak.secret)


def workers(oak: Cluster) -> list[dict[str, Any]]:
    return list(oak.api.good("GET", "/v1/clusters/oak/workers", None, oak.secret)["workers"])


def start(oak: Cluster, spec: Any = None) -> str:
    """Submit a job and let it start; return its id."""
    job = str(oak.api.good("POST", "/v1/jobs", spec or jobspec(1), oak.token)["id"])
    assert step(oak.api.service, "oak")
    return job


def taken(oak: Cluster, agent: str) -> list[dict[str, Any]]:
    """Let an agent accept what it is offered."""
    offers = list(oak.say("receive", agent, max=8)["tasks"])
    refs = [{"id": offer["id"], "attempt": offer["attempt"]} for offer in offers]
    assert oak.say("accept", agent, tasks=refs)["accepted"] == [offer["id"] for offer in offers]
    return offers


def begin(oak: Cluster, agent: str, offers: list[dict[str, Any]]) -> None:
    answers = [{"task": offer["id"], "attempt": offer["attempt"], "event": "started"} for offer in offers]
    oak.say("events", agent, events=answers)


@pytest.mark.parametrize(("worker", "agent"), [("n0", "a"), ("n1", "b"), ("n2", "b"), ("n3", "c")])
def test_start_wakes_those_whose_worker_got_it_and_offers_it_to_them_alone(
    oak: Cluster, worker: str, agent: str
) -> None:
    only(oak, worker)
    waiting = Waiting(oak.api.service)
    start(oak)
    assert waiting.woken() == {agent, "wide"}
    offered = {name for name in AGENTS if oak.say("receive", name)["tasks"]}
    assert offered == {agent, "wide"}


def test_task_over_several_workers_wakes_the_agent_of_each(oak: Cluster) -> None:
    only(oak, "n0", "n1", "n3")
    waiting = Waiting(oak.api.service)
    start(oak, jobspec(3))
    assert waiting.woken() == {"a", "b", "c", "wide"}
    parts = {name: [offer["placement"] for offer in oak.say("receive", name, max=8)["tasks"]] for name in "abc"}
    assert all(parts.values())


def test_agent_of_very_many_workers_waits_for_work_for_any(api: Api) -> None:
    oak = api.register("oak", grid(MOST_WORKERS + 2, 1))
    oak.serve_one_job_a_worker()
    oak.say("heartbeat", "many", workers=[f"n{k}" for k in range(MOST_WORKERS + 1)])
    oak.say("heartbeat", "one", workers=[f"n{MOST_WORKERS + 1}"])
    waiting = Waiting(api.service, ("many", "one"))
    for _ in range(MOST_WORKERS + 2):
        start(oak)
    assert waiting.woken() == {"many", "one"}
    assert len(oak.say("receive", "many", max=1_000)["tasks"]) == MOST_WORKERS + 1
    [last] = oak.say("receive", "one", max=1_000)["tasks"]
    assert list(last["placement"]) == [f"n{MOST_WORKERS + 1}"]


def test_whole_jobs_of_a_site_are_offered_to_whoever_asks(api: Api) -> None:
    oak = api.register("oak", grid(2, 2), policy={"name": "delegate"})
    oak.say("heartbeat", "a", workers=["n0"])
    oak.say("heartbeat", "b", workers=["n1"])
    waiting = Waiting(api.service, ("a", "b", "pull:me"))
    start(oak)
    assert waiting.woken() == {"a", "b", "pull:me"}
    assert all(oak.say("receive", name)["tasks"] for name in waiting.names)


def test_cancel_wakes_those_who_run_a_part_of_the_job(oak: Cluster) -> None:
    only(oak, "n0", "n3")
    whole = {"w": {"type": "core", "count": 2}}
    job = start(oak, {"resources": whole, "tasks": [{"command": ["true"], "resources": "w", "replicas": 2}]})
    for name in ("a", "c"):
        begin(oak, name, taken(oak, name))
    waiting = Waiting(oak.api.service)
    oak.api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    assert waiting.woken() == {"a", "c"}
    assert [len(oak.say("receive", name)["stop"]) for name in ("a", "b", "c")] == [1, 0, 1]


def test_job_that_is_suspended_and_resumed_wakes_who_runs_it(oak: Cluster) -> None:
    only(oak, "n1")
    job = start(oak)
    [offer] = taken(oak, "b")
    begin(oak, "b", [offer])
    waiting = Waiting(oak.api.service)
    oak.api.good("POST", f"/v1/jobs/{job}:suspend", None, oak.token)
    assert waiting.woken() == {"b"}
    assert len(oak.say("receive", "b")["suspend"]) == 1
    oak.say("events", "b", events=[{"task": offer["id"], "attempt": 1, "event": "suspended"}])
    waiting.woken()
    oak.api.good("POST", f"/v1/jobs/{job}:resume", None, oak.token)
    assert waiting.woken() == {"b"}
    assert len(oak.say("receive", "b")["resume"]) == 1


def test_task_that_begins_after_its_job_was_suspended_is_held(oak: Cluster) -> None:
    only(oak, "n0")
    job = start(oak)
    offers = taken(oak, "a")
    oak.api.good("POST", f"/v1/jobs/{job}:suspend", None, oak.token)
    waiting = Waiting(oak.api.service)
    begin(oak, "a", offers)
    assert waiting.woken() == {"a"}
    assert len(oak.say("receive", "a")["suspend"]) == 1


def test_report_wakes_nobody_else(oak: Cluster) -> None:
    only(oak, "n0")
    start(oak)
    waiting = Waiting(oak.api.service, ("b", "c", "late"))
    [offer] = taken(oak, "a")
    begin(oak, "a", [offer])
    oak.end(offer, "a")
    assert waiting.woken() == set()


def test_agent_that_serves_others_from_now_on_asks_again_and_hears_of_theirs(oak: Cluster) -> None:
    only(oak, "n3")
    waiting = Waiting(oak.api.service)
    oak.say("heartbeat", "late", workers=["n3"])
    assert waiting.woken() == {"late"}
    start(oak)
    assert waiting.woken() == {"c", "late", "wide"}
    oak.say("heartbeat", "late", workers=["n3"])
    assert waiting.woken() == set(), "it says nothing new"


def test_workers_that_change_while_an_agent_asks_are_not_missed(
    oak: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = protocol.record_agent

    def changed(*options: Any) -> Any:
        before = known(*options)
        oak.say("heartbeat", "late", workers=["n0"])
        return before

    monkeypatch.setattr(protocol, "record_agent", changed)
    result, pause, _ = protocol.look(oak.api.service, WHO, "oak", "late", 8, 20)
    assert result["tasks"] == []
    assert pause is not None
    assert oak.api.service.news.is_over(pause)


@pytest.mark.parametrize("how", ["secret", "policy"])
def test_what_may_concern_any_agent_wakes_all(oak: Cluster, how: str) -> None:
    waiting = Waiting(oak.api.service)
    if how == "secret":
        tokens = oak.api.good("GET", "/v1/tokens", None, oak.secret)["tokens"]
        [own] = [one for one in tokens if one["kind"] == "secret"]
        oak.secret = oak.api.good("POST", f"/v1/tokens/{own['id']}:rotate", None, oak.secret)["secret"]
    else:
        oak.api.good("PATCH", "/v1/clusters/oak/scheduler", {"policy": "priority"}, oak.secret)
    assert waiting.woken() == set(AGENTS)


def test_what_was_undone_wakes_nobody_later(oak: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    only(oak, "n0")
    service = oak.api.service
    oak.api.good("POST", "/v1/jobs", jobspec(1), oak.token)
    waiting = Waiting(service)
    with monkeypatch.context() as patch:
        patch.setattr("rainbow.service.scheduler.step.clusters.new_epoch", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            step(service, "oak")
    oak.say("heartbeat", "new", workers=["n3"])
    assert waiting.woken() == set()
    assert step(service, "oak")
    assert waiting.woken() == {"a", "wide"}


# ── between processes ──


@pytest.fixture
def other(database: str, clock: Clock, service: Service) -> Any:
    if not service.store.many_processes:
        pytest.skip("one process serves a SQLite file")
    made = open_service_at(database, clock)
    yield made
    made.close()


def test_start_at_another_server_wakes_those_whose_worker_got_it(oak: Cluster, other: Service) -> None:
    peers = [PgNotify(oak.api.service), PgNotify(other)]
    for each in peers:
        each.start()
    until(lambda: oak.api.service.news.heard and "oak" in other.catalogue, seconds=10)
    only(oak, "n0")
    waiting = Waiting(oak.api.service)
    Api(other).good("POST", "/v1/jobs", jobspec(1), oak.token)
    assert step(other, "oak")
    until(lambda: oak.api.service.news.is_over(waiting.pauses["a"]), seconds=10)
    assert waiting.woken() == {"a", "wide"}
    for each in peers:
        each.stop()


def test_start_by_a_server_that_told_nobody_is_found_for_those_whose_worker_got_it(
    oak: Cluster, other: Service
) -> None:
    only(oak, "n3")
    waiting = Waiting(oak.api.service)
    with ExitStack() as stack:
        for pause in waiting.pauses.values():
            stack.enter_context(oak.api.service.news.listening(pause.versions, lambda: None))
        other.refresh()
        Api(other).good("POST", "/v1/jobs", jobspec(1), oak.token)
        assert step(other, "oak")
        assert waiting.woken() == set()
        PgNotify(oak.api.service)._look_for_offers()
    assert waiting.woken() == {"c", "wide"}


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=600)


@given(st.sets(st.one_of(st.just("oak"), st.builds(partial(work_for, "oak"), NAMES)), max_size=40))
def test_messages_tell_of_every_topic_and_fit(topics: set[str]) -> None:
    results = pg_notify.messages(topics)
    assert all(len(str(part).encode()) < 8_000 for part in results)
    named = {topic for part in results for topic in part}
    assert all(topic in named or offers_to_all("oak") in named for topic in topics)


def test_very_many_topics_are_told_by_their_cluster() -> None:
    one = {work_for("oak", f"node-{k:06}") for k in range(50_000)}
    assert pg_notify.messages(one) == [[offers_to_all("oak")]]
    many = {work_for(f"cluster-{k:06}") for k in range(50_000)}
    assert pg_notify.messages(many) == [[]]


@given(st.lists(st.sets(st.sampled_from(["oak", "elm", "ash", "offers:oak", ALL]), min_size=1)), st.integers(0, 20))
def test_topic_that_is_no_longer_remembered_is_told_rather_than_missed(told: list[set[str]], at: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pubsub, "MOST_TOPICS", 2)
        news, pauses = PubSub(), dict[str, Any]()
        for k, some in enumerate(told):
            if k == at:
                pauses = {one: news.pause([one], 1) for one in ("oak", "elm", "ash", "offers:oak", ALL)}
            news.hear(some)
        for topic, pause in pauses.items():
            later = {one for some in told[at:] for one in some}
            heard = topic in later or ALL in later or (topic == ALL and later - {"offers:oak"})
            assert news.is_over(pause) or not heard
