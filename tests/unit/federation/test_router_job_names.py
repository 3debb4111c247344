"""Jobs by their names through a router, as of one server: `last` is of the person who asks, at whatever shard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rainbow.client import Client, Problem
from rainbow.errors import NotFound
from tests.conftest import jobspec
from tests.support.federated import register, router_of, shards_at

CLUSTERS = ("oak", "elm")  # one at each shard


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """The URL of a router of two shards, and the tokens of both clusters."""
    with ExitStack() as stack:
        shards = stack.enter_context(shards_at(tmp_path))
        made = [register(shard.url, name) for shard, name in zip(shards, CLUSTERS, strict=True)]
        yield stack.enter_context(router_of([shard.url for shard in shards])), [one["token"] for one in made]


def test_last_and_names_reach_the_job_of_the_person_who_asks_alone(site: tuple[str, list[str]]) -> None:
    """Three users of the same tokens, with jobs at both shards."""
    url, tokens = site
    ann, bob, carol = (Client(url, tokens, tries=1, login=login) for login in ("ann", "bob", "carol"))
    with ann, bob, carol:
        first = ann.submit(jobspec(), name="mine", requestor="ann", clusters=["oak"])["id"]
        twins = [bob.submit(jobspec(), name="twins", requestor="bob", clusters=[one])["id"] for one in CLUSTERS]
        assert ann.cancel("last")["id"] == first
        assert {ann.job(one)["state"] for one in twins} == {"WAITING"}
        assert bob.find_job("last")["id"] == bob.suspend("last")["id"] == twins[1]
        numbers = [row["number"] for row in bob.find_jobs("twins")]
        listed = f"2 jobs are named twins: {numbers[0]}, {numbers[1]}; give a number"
        with pytest.raises(NotFound, match=listed):
            carol.find_job("twins")
        with pytest.raises(Problem, match=listed) as several:
            carol.cancel("twins")
        assert several.value.status == 404
        with pytest.raises(Problem, match="carol has no job here"):
            carol.cancel("last")
        assert [bob.cancel(text)["id"] for text in ("last", "twins")] == [twins[1], twins[0]]
