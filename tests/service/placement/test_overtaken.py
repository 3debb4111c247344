"""Graphs that take long to compile: others go on meanwhile, and what they change is not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from rainbow import matching
from rainbow.service.clusters import graphs
from rainbow.store import clusters
from tests.conftest import ADMIN, Api, grid

IO = {"graph": {"nodes": {"io0": {"metadata": {"type": "io"}}}, "edges": [{"source": "n0", "target": "io0"}]}}


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object], int], list[int]]:
    """Let others act, in a thread of their own, while a graph is compiled, the first so many times."""
    compiled = matching.prepare

    def arrange(act: Callable[[], object], times: int) -> list[int]:
        calls: list[int] = []

        def prepare(*arguments: Any) -> Any:
            calls.append(1)
            if len(calls) <= times:
                other = threading.Thread(target=act)
                other.start()
                other.join(20)
                assert not other.is_alive(), "a compiling graph keeps others waiting"
            return compiled(*arguments)

        monkeypatch.setattr(graphs, "prepare", prepare)
        return calls

    return arrange


def change(api: Api, **subsystems: Any) -> None:
    """Change the graphs of oak as another process does."""
    with api.service.store.write() as connection:
        result = clusters.find(connection, "oak")
        assert result
        for name, document in subsystems.items():
            clusters.put_subsystem(connection, result.id, name, document)
        clusters.new_revision(connection, result.id)


def test_others_register_while_a_graph_is_compiled(api: Api, meanwhile: Any) -> None:
    oak = api.register("oak")
    calls = meanwhile(lambda: api.register("elm"), 1)
    assert api.good("PUT", "/v1/clusters/oak/graph", grid(5, 2), oak.secret)["totals"]["node"] == 5
    assert len(calls) == 1
    assert api.service.catalogue.keys() == {"oak", "elm"}


def test_change_that_was_overtaken_is_made_on_what_is_there_now(api: Api, meanwhile: Any) -> None:
    oak = api.register("oak")
    calls = meanwhile(lambda: change(api, io=IO), 1)
    answer = api.good("PUT", "/v1/clusters/oak/graph", grid(5, 2), oak.secret)
    assert (answer["revision"], len(calls)) == (3, 2)
    assert list(api.service.catalogue["oak"].cluster.subsystems) == ["io"]


def test_change_that_is_overtaken_again_and_again_is_a_conflict(api: Api, meanwhile: Any) -> None:
    oak = api.register("oak")
    calls = meanwhile(lambda: change(api), 100)
    api.problem(409, "conflict", "PUT", "/v1/clusters/oak/graph", grid(5, 2), oak.secret)
    assert len(calls) == graphs.TRIES
    assert api.good("GET", "/v1/clusters/oak", None, ADMIN)["totals"]["node"] == 2
