"""The client against a real server: what it sends, when it sends it again, what it makes of refusals."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from werkzeug.wrappers import Request

from rainbow.client import Client, Problem, RequestError, TryLater, Unavailable
from rainbow.client.transport import TRIES
from rainbow.errors import JobspecError
from rainbow.graph import read_cluster
from rainbow.jobspec import Request as JobRequest
from rainbow.jobspec import parse_jobspec
from tests.conftest import REGISTRATION, grid, jobspec
from tests.support.blocking import Blocking
from tests.support.live import Answer, Script, agent_of, http, rainbow_at, url_of
from tests.support.services import package

JSON = {"Content-Type": "application/json"}
CREATED: Answer = (201, JSON, b'{"id": "1", "cluster": "oak", "state": "WAITING", "decision": {}}')
AWAY: Answer = (503, {**JSON, "Retry-After": "2"}, b'{"code": "unavailable", "detail": "the store is away"}')
IO = {
    "graph": {
        "nodes": {"io0": {"metadata": {"type": "io"}}},
        "edges": [{"source": "n0", "target": "io0", "relation": "contains"}],
    }
}
BUSY: Answer = (429, JSON, b'{"code": "too-many", "detail": "too many jobs"}')


@pytest.fixture(autouse=True, params=["Client", "AsyncClient"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both clients pass the same suite."""
    if request.param == "AsyncClient":
        package("greenlet")
        monkeypatch.setitem(globals(), "Client", Blocking)


class Asked:
    """A client of a scripted server, with the pauses it would have made."""

    def __init__(self, port: int, script: Script) -> None:
        self.script = script
        self.pauses: list[float] = []
        self.client = Client(url_of(port), "rbt_1", timeout=5, sleep=self.pauses.append)


@pytest.fixture
def asked() -> Any:
    opened = []

    def open_script(*answers: Answer | Callable[[Request], Answer]) -> Asked:
        script = Script(answers)
        server = http(script)
        opened.append((server, result := Asked(server.__enter__(), script)))
        return result

    yield open_script
    for server, one in opened:
        one.client.close()
        server.__exit__(None, None, None)


def dropped(request: Request) -> Answer:
    """Close the connection without an answer."""
    request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError


def test_submit_after_503_is_sent_again_as_the_same_job(asked: Any) -> None:
    one = asked(AWAY, AWAY, CREATED)
    assert one.client.submit("version: 1")["id"] == "1"
    keys = {request.headers["Idempotency-Key"] for request in one.script.requests}
    assert len(one.script.requests) == 3
    assert len(keys) == 1
    assert one.pauses == [2.0, 2.0]


def test_two_submits_have_two_keys(asked: Any) -> None:
    one = asked(CREATED)
    one.client.submit("version: 1")
    one.client.submit("version: 1")
    one.client.submit("version: 1", idempotency_key="mine")
    keys = [request.headers["Idempotency-Key"] for request in one.script.requests]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"


def test_429_without_retry_after_is_waited_for_longer_every_time(asked: Any) -> None:
    one = asked(BUSY, BUSY, BUSY, CREATED)
    one.client.submit({})
    assert one.pauses == [0.2, 0.4, 0.8]


def test_a_server_that_stays_busy_is_a_problem_in_the_end(asked: Any) -> None:
    one = asked(BUSY)
    with pytest.raises(Problem, match="too many jobs") as caught:
        one.client.match({})
    assert (caught.value.status, caught.value.code) == (429, "too-many")
    assert len(one.script.requests) == TRIES


def test_a_server_that_asks_for_too_long_a_wait_is_not_waited_for(asked: Any) -> None:
    one = asked((503, {"Retry-After": "3600"}, b""))
    with pytest.raises(Problem):
        one.client.clusters()
    assert one.pauses == []


def test_registration_is_sent_again_under_the_same_key(asked: Any) -> None:
    one = asked(AWAY)
    with pytest.raises(Problem):
        one.client.register_cluster("oak", {})
    assert len(one.script.requests) == TRIES
    assert len({request.headers["Idempotency-Key"] for request in one.script.requests}) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 412, 413, 422, 500])
def test_what_will_not_get_better_is_not_sent_again(asked: Any, status: int) -> None:
    one = asked((status, JSON, b"{}"))
    with pytest.raises(Problem) as caught:
        one.client.submit({})
    assert caught.value.status == status
    assert len(one.script.requests) == 1


def test_a_broken_connection_repeats_a_submit_and_a_registration(asked: Any) -> None:
    one = asked(dropped, CREATED)
    assert one.client.submit({})["id"] == "1"
    two = asked(dropped, CREATED)
    assert two.client.register_cluster("oak", {})["id"] == "1"
    assert len({request.headers["Idempotency-Key"] for request in two.script.requests}) == 1


def test_nobody_there_is_unavailable_after_every_try() -> None:
    with http(Script([CREATED])) as port:
        pass
    pauses: list[float] = []
    with (
        Client(url_of(port), sleep=pauses.append) as client,
        pytest.raises(Unavailable, match="cannot reach the server"),
    ):
        client.register_cluster("oak", {})
    assert len(pauses) == TRIES - 1


def test_a_problem_says_what_and_where(asked: Any) -> None:
    body = {
        "type": "https://example.org/problems/jobspec-invalid",
        "title": "Unprocessable",
        "status": 422,
        "detail": "count must be positive",
        "pointer": "/resources/0/count",
        "line": 3,
        "column": 5,
        "limit": 7,
    }
    one = asked((422, JSON, json.dumps(body).encode()))
    with pytest.raises(Problem) as caught:
        one.client.match("...")
    problem = caught.value
    assert (problem.code, problem.title, problem.detail) == ("jobspec-invalid", "Unprocessable", body["detail"])
    assert (problem.pointer, problem.line, problem.column) == ("/resources/0/count", 3, 5)
    assert problem.facts == {"limit": 7}
    assert str(problem) == "count must be positive (line 3, column 5, at /resources/0/count)"


def test_a_page_of_some_proxy_is_a_problem_too(asked: Any) -> None:
    one = asked((502, {"Content-Type": "text/html"}, b"<h1>Bad Gateway</h1>"))
    with pytest.raises(Problem) as caught:
        one.client.clusters()
    assert (caught.value.status, caught.value.code) == (502, "error")


def test_an_answer_that_is_no_json_is_no_rainbow(asked: Any) -> None:
    one = asked((200, {"Content-Type": "text/html"}, b"<h1>Welcome</h1>"))
    with pytest.raises(Unavailable, match="did not return JSON; check that it is a Rainbow server"):
        one.client.clusters()


def test_several_tokens_go_in_one_header() -> None:
    script = Script([(200, JSON, b'{"clusters": []}')])
    with http(script) as port, Client(url_of(port), ["rbt_a", "rbt_b"]) as client:
        client.clusters()
    assert script.requests[0].headers["Authorization"] == "Bearer rbt_a, Bearer rbt_b"


@pytest.mark.parametrize("token", ["a b", "a\nb", "a,b", "ö", ""])
def test_a_token_that_is_none_is_never_sent(token: str) -> None:
    with pytest.raises(RequestError, match="token"):
        Client("http://127.0.0.1:1", [token])


@pytest.mark.parametrize("url", ["nonsense", "http://", "ftp://127.0.0.1", "http://[", "http://a b"])
def test_a_url_that_is_none_is_refused_in_words(url: str) -> None:
    with pytest.raises((RequestError, Unavailable)):
        Client(url, tries=1).clusters()


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_be_another_address_is_refused(name: str) -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(RequestError):
        client.cluster(name)


def test_a_name_is_quoted(asked: Any) -> None:
    one = asked((404, JSON, b"{}"))
    with pytest.raises(Problem):
        one.client.cluster("a/../b?c#d")
    assert one.script.requests[0].path == "/v1/clusters/a/../b?c#d"
    assert one.script.requests[0].query_string == b""


def test_what_json_cannot_say_is_not_sent() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with Client("http://127.0.0.1:1") as client:
        for body in ({"a": float("nan")}, {"a": object()}, {"a": deep}):
            with pytest.raises(RequestError):
                client.put_state("oak", body)


def test_the_verbs_work_together_on_a_real_server(tmp_path: Path) -> None:
    with rainbow_at(tmp_path) as url:
        with Client(url, REGISTRATION) as registering:
            registration = registering.register_cluster("oak", grid(2, 2), state={"nodes_free": 2})
        with Client(url, registration["secret"]) as owner, Client(url, registration["token"]) as user:
            owner.put_subsystem("oak", "io", IO)
            assert owner.put_state("oak", {"nodes_free": 1}) == {"nodes_free": 1}
            assert owner.state("oak")["state"] == {"nodes_free": 1}
            assert owner.graph("oak") == grid(2, 2)
            assert [worker["state"] for worker in owner.workers("oak")] == ["NEW", "NEW"]
            assert owner.scheduler("oak")["policy"] == "load_based"
            assert [one["name"] for one in user.clusters()] == ["oak"]
            assert user.cluster("oak")["subsystems"] == ["io"]
            owner.delete_subsystem("oak", "io")
            assert user.cluster("oak")["subsystems"] == []
            assert user.ready()

            assert [one["cluster"] for one in user.match(jobspec(2))["candidates"]] == ["oak"]
            assert [one["cluster"] for one in user.match(jobspec(3))["refusals"]] == ["oak"]
            with pytest.raises(Problem) as caught:
                user.submit(jobspec(3))
            assert (caught.value.code, len(caught.value.facts["refusals"])) == ("unsatisfiable", 1)

            ids = [user.submit(jobspec(), name=f"job{k}")["id"] for k in range(3)]
            page = user.jobs(limit=2)
            assert [job["name"] for job in page["jobs"]] == ["job2", "job1"]
            assert [job["name"] for job in user.jobs(limit=2, cursor=page["next"])["jobs"]] == ["job0"]
            assert [job["id"] for job in user.all_jobs(cluster="oak", state="WAITING")] == ids[::-1]
            assert user.cancel(ids[2])["state"] == "CANCELED"
            assert user.why(ids[0])["decision"]["selection"]["cluster"] == "oak"
            with pytest.raises(TryLater, match=r"timed out after 0\.1 seconds; job \w+ is still WAITING"):
                user.wait(ids[0], timeout=0.1, every=0.05)
            with agent_of(url, "oak", registration["secret"]):
                assert user.wait(ids[1], timeout=20, every=0.05)["state"] == "COMPLETED"
            user.wait(ids[0], timeout=20, every=0.05)
            owner.delete_cluster("oak")
            with pytest.raises(Problem) as gone:
                owner.cluster("oak")
            assert gone.value.status in (401, 404)


def test_a_submit_repeated_under_its_key_is_one_job(tmp_path: Path) -> None:
    with rainbow_at(tmp_path) as url, Client(url, REGISTRATION) as registering:
        registration = registering.register_cluster("oak", grid(2, 2))
        with Client(url, registration["token"]) as user:
            ids = {user.submit(jobspec(), idempotency_key="once")["id"] for _ in range(3)}
            assert len(ids) == 1
            assert len(user.jobs()["jobs"]) == 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.job(None),
        lambda client: client.job(5),
        lambda client: client.why([]),
        lambda client: client.cancel({}),
        lambda client: client.wait(None),
        lambda client: client.cluster(None),
        lambda client: client.graph(object()),
        lambda client: client.submit(object()),
        lambda client: client.submit(Path("job.yaml")),
        lambda client: client.submit({}, clusters=5),
        lambda client: client.submit({}, clusters="oak"),
        lambda client: client.submit_batch(5),
        lambda client: client.submit_batch("jobs"),
        lambda client: client.match(object()),
        lambda client: client.match({}, read_cluster(grid(1, 1))),
        lambda client: client.receive("oak", "a", wait="long"),
        lambda client: client.put_state("oak", {1, 2}),
    ],
)
def test_a_wrong_type_is_a_documented_error_and_nothing_is_sent(asked: Any, ask: Callable[[Client], Any]) -> None:
    with pytest.raises(RequestError):
        ask((one := asked()).client)
    assert one.script.requests == []


def test_what_a_library_holds_can_be_sent(tmp_path: Path) -> None:
    """A DiGraph, a Request, names of clusters; what makes no sense to the server is its Problem."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_node("c", type="cluster")
    for node in ("n0", "n1"):
        graph.add_node(node, type="node")
        graph.add_edge("c", node, relation="contains")
        graph.add_node(f"{node}c", type="core")
        graph.add_edge(node, f"{node}c", relation="contains")
    with rainbow_at(tmp_path) as url:
        registration = Client(url, REGISTRATION).register_cluster("oak", graph)
        assert registration["totals"] == {"cluster": 1, "node": 2, "core": 2}
        client = Client(url, registration["token"])
        request = parse_jobspec(json.dumps(jobspec()))
        assert [one["cluster"] for one in client.match(request, clusters=["oak"])["candidates"]] == ["oak"]
        assert client.submit(request, clusters=["oak"])["cluster"] == "oak"
        with pytest.raises(Problem):
            client.match({}, [])  # type: ignore[arg-type]  # as somebody may write it
        with pytest.raises(RequestError, match="made by hand"):
            client.submit(JobRequest(((),), ()))


def test_a_jobspec_that_is_a_path_is_refused_in_words() -> None:
    with pytest.raises(JobspecError, match="a jobspec is text or a mapping, got PosixPath"):
        parse_jobspec(Path("job.yaml"))  # type: ignore[arg-type]  # as somebody may write it


def test_async_client_has_every_method_and_waits_for_many_at_the_same_time() -> None:
    package("greenlet")
    from rainbow.client import AsyncClient

    def slow(request: Request) -> Answer:
        time.sleep(0.3)
        return (200, JSON, b'{"clusters": []}')

    async def ask(url: str) -> float:
        async with AsyncClient(url, tries=1) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.clusters(), 0.05)
            began = time.monotonic()
            assert await asyncio.gather(*(client.clusters() for _ in range(10))) == [[]] * 10
            return time.monotonic() - began

    assert {name for name in dir(Client) if not name.startswith("_")} <= set(dir(AsyncClient))
    with pytest.raises(RequestError, match="use Client"):
        AsyncClient("http://127.0.0.1:1", sent=print)
    with http(Script([slow])) as port:
        assert asyncio.run(ask(url_of(port))) < 10 * 0.3


def test_a_text_is_one_name_of_those_that_a_token_is_for(asked: Any) -> None:
    one = asked((201, JSON, b'{"token": "rbt_x"}'))
    one.client.mint_token("oak", requestors="alice", accounts="bio")
    said = json.loads(one.script.requests[0].get_data())
    assert (said["clusters"], said["requestors"], said["accounts"]) == (["oak"], ["alice"], ["bio"])
