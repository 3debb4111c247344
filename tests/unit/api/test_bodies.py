"""What a request may bring as its body: how much of it, when, in gzip or plain, and what curl sends as a form."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from typing import Any

import pytest

from rainbow.api.bodies import Bodies, Sender
from rainbow.api.front import Front
from rainbow.errors import TooMany
from rainbow.service.core.settings import Limits
from tests.conftest import ADMIN, REGISTRATION, Api, grid, jobspec
from tests.support.asgi import Request, ask
from tests.support.neighbors import objects

YAML = "version: 1\nresources: {work: {type: core}}\ntasks:\n- command: [echo, hello]\n  resources: work\n"


@pytest.fixture
def front(api: Api) -> Front:
    return Front(api.app, api.service)


def test_body_in_gzip_is_read(api: Api, front: Front) -> None:
    oak = api.register()
    body = gzip.compress(json.dumps(jobspec()).encode())
    for kind in ("application/json", "application/yaml"):
        headers = {"content-encoding": "gzip", "content-type": kind}
        [answer] = ask(front, Request("POST", "/v1/jobs", body, oak.token, headers))
        assert answer.status == 201, answer.body
    graph = gzip.compress(json.dumps({"name": "elm", "graph": grid(2, 2)}).encode())
    packed = {"content-encoding": "gzip"}
    [answer] = ask(front, Request("POST", "/v1/clusters", graph, REGISTRATION, packed, has_length=False))
    assert answer.status == 201


@pytest.mark.parametrize(
    ("encoding", "body", "status", "told"),
    [
        ("br", b"x", 400, "Content-Encoding must be gzip or identity, got br"),
        ("gzip", b"not gzip", 400, "the body is not gzip"),
        ("gzip", gzip.compress(b"{}")[:-3], 400, "it ends before its end"),
        ("gzip", gzip.compress(b"{}") + b"more", 400, "something follows it"),
        ("gzip", gzip.compress(b" " * (20 << 20)), 413, "request body exceeds the limit of"),
    ],
    ids=["another encoding", "not gzip", "cut short", "followed", "a bomb"],  # the bytes hold the time of day
)
def test_other_encodings_are_refused_by_name_and_no_bomb_is_unpacked(
    api: Api, front: Front, encoding: str, body: bytes, status: int, told: str
) -> None:
    oak = api.register()
    for path in ("/v1/jobs", "/v1/jobs:batch"):
        [answer] = ask(front, Request("POST", path, body, oak.token, {"content-encoding": encoding}))
        assert (answer.status, told in answer.json()["detail"]) == (status, True), answer.body


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs:bid", "/v1/match", "/v1/eta"])
@pytest.mark.parametrize("has_length", [True, False])
def test_body_with_one_jobspec_has_at_most_a_megabyte(api: Api, front: Front, path: str, has_length: bool) -> None:
    oak = api.register()
    long, short = (json.dumps(jobspec(command=["x" * size])).encode() for size in (1 << 20, 1_000_000))
    [refused] = ask(front, Request("POST", path, long, oak.token, has_length=has_length))
    reported = refused.json()
    assert (refused.status, reported["limit"]) == (413, "jobspec")
    assert "the limit is 1048576 bytes" in reported["detail"]
    [answer] = ask(front, Request("POST", path, short, oak.token, has_length=has_length))
    assert answer.status in (200, 201, 413, 422)
    assert answer.json().get("limit") != "jobspec"


@pytest.mark.parametrize("packed", [False, True])
def test_memory_of_a_body_is_counted_before_it_is_parsed(api: Api, front: Front, packed: bool) -> None:
    oak = api.register()
    body = objects()
    needed = 3 * len(body) + 240 * sum(body.count(each) for each in (b",", b"{", b"[", b"\n"))
    sent = gzip.compress(body, 1) if packed else body
    headers = {"content-encoding": "gzip"} if packed else {}
    peaks = []
    for token in (oak.token, ADMIN):
        tracemalloc.start()
        [answer] = ask(front, Request("POST", "/v1/jobs:batch", sent, token, headers))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        reported = answer.json()
        assert (answer.status, reported["limit"]) == (413, "body_memory")
        assert reported["detail"] == f"the body would take {needed >> 20} MiB of memory; the limit is 256 MiB"
    assert max(peaks) < 64 << 20


def test_a_submit_token_brings_no_graph_and_its_body_is_counted(api: Api, front: Front) -> None:
    oak = api.register()
    [answer] = ask(front, Request("POST", "/v1/clusters", objects(), oak.token))
    assert (answer.status, answer.json()["limit"]) == (413, "body_memory")


def test_a_graph_that_needs_more_memory_than_there_is_has_all_of_it_alone() -> None:
    limits = Limits(body_memory=8 << 20)
    bodies, at_work, most = Bodies(limits), 0, 0
    graph, text = b"[" + b"[]," * 60_000 + b"0]", b"x" * (2 << 20)

    async def read(name: str, path: str, body: bytes) -> None:
        nonlocal at_work, most
        request = Request("POST", path, body)
        async with bodies.read(request.scope, request.receive, Sender(name, True, True)) as result:
            at_work += 1
            most = max(most, at_work)
            assert result == body
            await asyncio.sleep(0.01)
            at_work -= 1

    async def all_of() -> None:
        parts = [read(f"g{k}", "/v1/clusters", graph) for k in range(3)]
        parts += [read(f"t{k}", "/v1/jobs:batch", text) for k in range(3)]
        await asyncio.gather(*parts)

    asyncio.run(all_of())
    assert most == 1  # a text needs 6 of 8 MiB, a graph more than all


def test_large_bodies_of_a_caller_are_read_one_at_a_time_and_those_beyond_sixteen_are_refused() -> None:
    bodies, ended = Bodies(Limits()), asyncio.Event()
    text = b"x" * (3 << 20)
    first, second, small, other = (Request("POST", "/v1/jobs:batch", body) for body in (text, text, b"{}", text))
    rest = [Request("PUT", "/v1/accounts", text) for _ in range(20)]
    done: list[Request] = []

    async def read(request: Request, name: str) -> None:
        async with bodies.read(request.scope, request.receive, Sender(name, True)):
            done.append(request)
            await ended.wait()

    async def all_of() -> list[BaseException | None]:
        tasks = [asyncio.create_task(read(one, "ann")) for one in (first, second)]
        tasks += [asyncio.create_task(read(small, "bob")), asyncio.create_task(read(other, "zoe"))]
        tasks += [asyncio.create_task(read(one, "ann")) for one in rest]
        while len(done) < 3:
            await asyncio.sleep(0.01)
        assert {id(one) for one in done} == {id(first), id(small), id(other)}
        assert second.taken == 0
        for task in tasks[:2]:
            task.cancel()  # one at work, one that waits: the next of ann's is read
        while rest[0] not in done:  # after 3 MiB at 8 MiB a second
            await asyncio.sleep(0.01)
        ended.set()
        for task in tasks[4:]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    faults = asyncio.run(all_of())
    refused = [fault for fault in faults if isinstance(fault, TooMany)]
    assert len(refused) == 20 - 15  # the second and fifteen more wait
    assert {fault.facts["limit"] for fault in refused} == {"bodies"}


def test_batches_of_a_caller_are_at_work_one_at_a_time() -> None:
    bodies, at_work, seen = Bodies(Limits()), dict[str, int](), list[tuple[str, int]]()

    async def read(name: str) -> None:
        request = Request("POST", "/v1/jobs:batch", b'{"jobs":[]}')
        async with bodies.read(request.scope, request.receive, Sender(name, True)):
            at_work[name] = at_work.get(name, 0) + 1
            seen.append((name, sum(at_work.values())))
            await asyncio.sleep(0.01)
            at_work[name] -= 1

    async def all_of() -> None:
        await asyncio.gather(*(read(name) for name in ("ann", "bob") * 4))

    asyncio.run(all_of())
    assert max(count for _, count in seen) == 2
    assert sorted(name for name, _ in seen) == ["ann"] * 4 + ["bob"] * 4


def test_at_most_sixty_four_credentials_are_read(api: Api, front: Front) -> None:
    oak = api.register()
    strange = [f"rbt_{k}" for k in range(64)]
    many = ", ".join(f"Bearer {one}" for one in [oak.token, *strange])
    [answer] = ask(front, Request("GET", "/v1/jobs", headers={"authorization": many}))
    assert (answer.status, answer.json()["code"]) == (400, "request-invalid")
    assert "65 credentials; the limit is 64" in answer.json()["detail"]
    few = ", ".join(f"Bearer {one}" for one in [oak.token, *strange[1:]])
    assert ask(front, Request("GET", "/v1/jobs", headers={"authorization": few}))[0].status == 200
    entries = [{"name": "oak", "token": one} for one in [oak.token, *strange]]
    envelope = {"jobspec": jobspec(), "clusters": entries}
    assert "65 credentials" in api.call("POST", "/v1/jobs", envelope).get_json()["detail"]
    jobs = [{"jobspec": jobspec(), "clusters": [entry]} for entry in entries]
    answer = api.call("POST", "/v1/jobs:batch", {"jobs": jobs}, oak.token)
    assert (answer.status_code, "65 credentials" in answer.get_json()["detail"]) == (400, True)
    assert api.call("POST", "/v1/jobs:batch", {"jobs": jobs[:64]}, oak.token).status_code == 200


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/match", "/v1/jobs:batch"])
def test_json_with_a_key_that_comes_twice_is_refused(api: Api, path: str) -> None:
    oak = api.register()
    text = '{"jobspec": {"version": 1, "version": 2}, "name": "a"}'
    answer = api.call("POST", path, text, oak.token, Content_Type="application/json")
    assert answer.status_code == 400
    assert "the key 'version' comes twice" in answer.get_json()["detail"]


def test_curl_with_d_gets_the_hint_it_needs_and_json_sent_so_is_read(api: Api) -> None:
    """`curl -d @file` takes the line breaks out and calls what is left a form."""
    oak = api.register()
    form = "application/x-www-form-urlencoded"
    answer = api.call("POST", "/v1/jobs", YAML.replace("\n", ""), oak.token, Content_Type=form)
    assert answer.status_code in (400, 422)
    assert "--data-binary @FILE -H 'Content-Type: application/yaml'" in answer.get_json()["detail"]
    assert api.call("POST", "/v1/jobs", YAML, oak.token, Content_Type=form).status_code == 201
    assert api.call("POST", "/v1/jobs", json.dumps(jobspec()), oak.token, Content_Type=form).status_code == 201


def test_curl_with_f_gets_the_hint_it_needs(api: Api) -> None:
    oak = api.register()
    body: Any = b'--x\r\nContent-Disposition: form-data; name="f"; filename="j"\r\n\r\n{}\r\n--x--\r\n'
    answer = api.call("POST", "/v1/jobs", body, oak.token, Content_Type="multipart/form-data; boundary=x")
    assert answer.status_code == 400
    assert "the body is a form with files; with curl send the file as it is" in answer.get_json()["detail"]
