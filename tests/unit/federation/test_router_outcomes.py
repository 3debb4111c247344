"""What a router says became of a request whose shard stopped answering, and of one that is sent again."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from rainbow.federation.callers import Caller
from rainbow.federation.directory import Directory
from rainbow.federation.shards import Answer, Away, Shard
from rainbow.federation.upstream import Pairs
from tests.conftest import REGISTRATION, grid, jobspec
from tests.support.federated import register, router_of, shards_at, until
from tests.support.unruly import AnswerCutter


def send(url: str, path: str, body: Any, credential: str, **headers: str) -> httpx.Response:
    headers = {key.replace("_", "-"): value for key, value in headers.items()}
    return httpx.post(url + path, json=body, headers={"Authorization": f"Bearer {credential}", **headers}, timeout=20)


def test_shard_that_stops_answering_is_unknown_and_one_that_is_away_is_none(tmp_path: Path) -> None:
    with ExitStack() as stack:
        [shard] = stack.enter_context(shards_at(tmp_path, 1))
        cutter = stack.enter_context(AnswerCutter(urlsplit(shard.url).port or 0, b"POST /v1/jobs "))
        url = stack.enter_context(router_of([f"http://127.0.0.1:{cutter.port}"]))
        oak = register(url, "oak")
        for most in (0, 40):
            cutter.most = most
            answer = send(url, "/v1/jobs", jobspec(), oak["token"])
            assert (answer.status_code, answer.json().get("outcome")) == (503, "unknown"), answer.text
            assert "it may be done" in answer.json()["detail"]
            cutter.most = None
            until(lambda: httpx.get(f"{url}/readyz").status_code == 200)
        cutter.cut = True
        cutter.close_all()
        until(lambda: httpx.get(f"{url}/readyz").status_code == 503)
        answer = send(url, "/v1/jobs", jobspec(), oak["token"])
        assert (answer.status_code, answer.json()["outcome"]) == (503, "none")


def test_calls_under_a_key_are_answered_as_the_first_time_through_a_router(tmp_path: Path) -> None:
    with shards_at(tmp_path) as shards, router_of([shard.url for shard in shards]) as url:
        for number in range(4):  # at either shard
            key, body = secrets.token_hex(16), {"name": f"c{number}", "graph": grid(1, 1)}
            first, again = (send(url, "/v1/clusters", body, REGISTRATION, Idempotency_Key=key) for _ in range(2))
            assert (first.status_code, again.json()) == (201, first.json())
            key, mint = secrets.token_hex(16), {"clusters": [body["name"]]}
            one, other = (
                send(url, "/v1/tokens", mint, first.json()["secret"], Idempotency_Key=key) for _ in range(2)
            )
            assert (one.status_code, other.json()) == (201, one.json())


def test_who_ends_its_own_secret_through_a_router_may_say_so_again(tmp_path: Path) -> None:
    with shards_at(tmp_path) as shards, router_of([shard.url for shard in shards]) as url:
        for number in range(2):
            made = register(url, f"c{number}")
            listed = httpx.get(f"{url}/v1/tokens", headers={"Authorization": f"Bearer {made['secret']}"}).json()
            [own] = [one["id"] for one in listed["tokens"] if one["kind"] == "secret"]
            key = secrets.token_hex(16)
            first, again = (
                send(url, f"/v1/tokens/{own}:rotate", None, made["secret"], Idempotency_Key=key) for _ in range(2)
            )
            assert (first.status_code, again.json()) == (200, first.json())
            headers = {"Authorization": f"Bearer {first.json()['secret']}", "Idempotency-Key": secrets.token_hex(16)}
            ends = [httpx.delete(f"{url}/v1/clusters/c{number}", headers=headers) for _ in range(2)]
            assert [one.status_code for one in ends] == [204, 204]


def test_name_that_is_taken_is_409(tmp_path: Path) -> None:
    with shards_at(tmp_path) as shards, router_of([shard.url for shard in shards]) as url:
        register(url, "oak")
        answer = send(url, "/v1/clusters", {"name": "oak", "graph": grid(1, 1)}, REGISTRATION)
        assert answer.status_code == 409


class Comes(Shard):
    """A shard that answers 404, and while it is asked another one is back."""

    back: Shard

    async def ask(self, method: str, target: str, headers: Pairs, body: bytes = b"") -> Answer:
        self.back.since = None
        return Answer(404, [], b"{}")


@pytest.mark.parametrize("name", ["of_job", "of_cluster"])
def test_what_a_shard_may_have_that_came_back_while_the_others_were_asked_is_not_called_unknown(name: str) -> None:
    other, away = Comes("http://one"), Shard("http://two")
    other.since, away.since, other.back = None, 1.0, away
    who = Caller({other: ("rbt_a",), away: ("rbt_b",)}, (), "", inf)
    directory = Directory([other, away])
    with pytest.raises(Away) as answer:
        asyncio.run(getattr(directory, name)(who, "f" * 24))
    assert answer.value.facts["shard"] == "http://two"
    assert away.since is None
