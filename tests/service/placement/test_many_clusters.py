"""Submits among more clusters than an answer tells of: short answers, whole records, and the same again by replay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from rainbow.jobspec import Request
from rainbow.matching import Verdict
from rainbow.selection import select
from rainbow.selection.choice import Names
from rainbow.selection.replay import seal_of
from rainbow.selection.variables import StatesAt, StateTable
from rainbow.service import Service
from rainbow.service.core import service as core
from rainbow.service.placement import candidates, ledger
from rainbow.service.placement.candidates import SNAPSHOT_LASTS, revision_of
from rainbow.service.placement.match_cache import MOST_SHOWN
from rainbow.store import cluster_states, jobs
from rainbow.store.cluster_states import Board, BoardStates, Made, row_of
from rainbow.store.schema import record_uses, records
from tests.conftest import ADMIN, Api, Clock, Cluster, grid, jobspec

MANY = 24
NAMES = [f"c{k}" for k in range(MANY)]  # in natural order
CHEAPEST = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "cost"}]}]}}


def sized(number: int) -> dict[str, Any]:
    """A cluster like no other: some are too small for two nodes."""
    vertices = {
        "c": {"type": "cluster"},
        "n": {"type": "node", "count": 1 if number >= MANY - 4 else 4},
        "k": {"type": "core", "count": 2 + number},
    }
    edges = [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}]
    return {"graph": {"nodes": {key: {"metadata": data} for key, data in vertices.items()}, "edges": edges}}


@pytest.fixture
def clusters(api: Api) -> list[Cluster]:
    return [api.register(name, sized(k), state={"cost": MANY - k, "nodes_free": 4}) for k, name in enumerate(NAMES)]


@pytest.fixture
def token(api: Api, clusters: list[Cluster]) -> str:
    made: str = api.good("POST", "/v1/tokens", {"clusters": NAMES}, ADMIN)["token"]
    return made


def test_answer_tells_of_the_first_and_the_chosen_and_the_record_of_all(api: Api, token: str) -> None:
    body = {"jobspec": jobspec(1), "selector": CHEAPEST}
    placed = api.good("POST", "/v1/jobs", body, token)
    answer = placed["decision"]
    assert placed["cluster"] == NAMES[-1]
    assert [one["cluster"] for one in answer["candidates"]] == [*NAMES[:MOST_SHOWN], NAMES[-1]]
    assert (answer["more"], answer["refusals"]) == ({"candidates": MANY - MOST_SHOWN - 1, "refusals": 0}, [])
    assert {*answer["selection"]["ranks"]} == {*NAMES[:MOST_SHOWN], NAMES[-1]}
    whole = api.good("GET", f"/v1/jobs/{placed['id']}/why", None, token)["decision"]
    assert "more" not in whole
    assert [one["cluster"] for one in whole["candidates"]] == NAMES
    assert all(one["totals"]["nodes"] == 1 for one in whole["candidates"])  # the selection has looked at each
    assert whole["selection"]["ranks"] == {name: MANY - k for k, name in enumerate(NAMES)}
    assert whole["again"]["clusters"] == NAMES


def test_decision_among_many_is_taken_again_and_the_graphs_that_changed_are_named(api: Api, token: str) -> None:
    jobs = [
        api.good("POST", "/v1/jobs", {"jobspec": jobspec(1), "selector": selector}, token)["id"]
        for selector in (CHEAPEST, {"name": "random"})
    ]
    api.good("PUT", "/v1/clusters/c3/graph", grid(9, 9), ADMIN)
    for job in jobs:
        replayed = api.good("GET", f"/v1/jobs/{job}/replay", None, token)
        assert replayed["equal"], replayed
        assert replayed["graphs_changed_since"] == ["c3"]
    listed = api.good("GET", "/v1/decisions", None, ADMIN)["decisions"]
    assert all([one["cluster"] for one in decision["candidates"]] == NAMES for decision in listed)
    assert all(decision["states"]["c0"]["cost"] == MANY for decision in listed)


READING = {"priority": 1, "steps": [{"filter": "matched.cores >= 1"}, {"sort_descending": "cost * matched.nodes"}]}
FITTING = {"priority": 1, "steps": [{"sort_descending": "matched.fits * 10 + matched.cores"}]}


def of(priority: dict[str, Any]) -> dict[str, Any]:
    return {"name": "constraint", "options": {"priorities": [priority]}}


@pytest.mark.parametrize("selector", [CHEAPEST, of(READING), of(FITTING)], ids=["cost", "cores", "fits"])
def test_a_choice_of_ours_is_kept_as_its_seal_and_shown_as_one_that_is_kept_whole(
    api: Api, token: str, monkeypatch: pytest.MonkeyPatch, selector: dict[str, Any]
) -> None:
    body = {"jobspec": jobspec(1), "selector": selector}
    sealed = api.good("POST", "/v1/jobs", body, token)["id"]
    monkeypatch.setattr(ledger, "matched_read", lambda *_: None)  # as the version before kept it
    held = api.good("POST", "/v1/jobs", body, token)["id"]
    monkeypatch.undo()
    why, before = (api.good("GET", f"/v1/jobs/{job}/why", None, token)["decision"] for job in (sealed, held))
    assert why["selection"] == before["selection"]
    for job in (sealed, held):
        replayed = api.good("GET", f"/v1/jobs/{job}/replay", None, token)
        assert (replayed["equal"], replayed["selection"]) == (True, replayed["replayed"])
    with api.service.store.read() as connection:
        assert ["selection" in _kept(connection, job) for job in (sealed, held)] == [False, True]


def _kept(connection: sa.Connection, job: str) -> set[str]:
    """Return the parts of a decision that are kept whole."""
    own = jobs.decision(connection, job)["ledger"]
    elsewhere = jobs.get_records(connection, own["digests"].values())
    return {name for name, digest in own["digests"].items() if name in own or digest in elsewhere}


reports = st.dictionaries(
    st.sampled_from(NAMES[:6]), st.sampled_from([1, 1.0, True, "x"]) | st.floats(allow_nan=False) | st.integers()
)


@given(st.lists(reports, min_size=1, max_size=8))
def test_states_kept_as_what_differs_are_those_that_were_read(seen: list[dict[str, Any]]) -> None:
    frames = ledger.Frames()
    for at, board in enumerate(boards(seen)):
        read = BoardStates(at + 0.1, {}, board, board)
        given_ = {name: json.loads(part.text) for name, part in frames.parts(read).items()}
        assert repr(ledger.restored(given_)) == repr({name: read.table[name] for name in NAMES})


def boards(seen: list[dict[str, Any]]) -> Iterator[Board]:
    """Yield the boards after these reports, one after the other."""
    made: list[Made] = [("", None, 0)] * MANY
    table = StateTable(Names(NAMES), [{} for _ in NAMES], np.full(MANY, np.nan))
    board = Board(0, 0, {name: at for at, name in enumerate(NAMES)}, table, made, np.zeros(MANY, np.int64))
    for event, values in enumerate(seen, 1):
        board = board.with_read({name: (json.dumps({"cost": one}), 0.05, 0) for name, one in values.items()}, event)
        yield board


OPTIONS = [
    {"priorities": [{"priority": 1, "steps": [{"filter": "cost > 0"}, {"sort_descending": "cost"}]}]},
    {"priorities": [{"priority": 1, "steps": [{"calc": "x = cost * 2 + matched.nodes"}, {"sort_ascending": "x"}]}]},
    {"stale_after": 0.07, "priorities": [{"priority": 1, "steps": [{"sort_ascending": "state.age"}]}]},
]


@pytest.mark.parametrize("options", OPTIONS)
@given(
    seen=st.lists(reports, min_size=1, max_size=4),
    few=st.sets(st.integers(0, MANY - 1), max_size=3),
    free=st.booleans(),
)
def test_columns_of_a_board_choose_and_are_sealed_as_mappings_do(
    options: dict[str, Any], seen: list[dict[str, Any]], few: set[int], free: bool
) -> None:
    names = [f"c{k}" for k in range(2 * MANY) if k not in few]
    first = {f"c{k}": {"cost": k % 5, **({"nodes_free": k % 3} if free else {})} for k in range(2 * MANY)}
    made: dict[str, Made] = {name: (json.dumps(values), 0.05, 0) for name, values in first.items()}
    rows = [row_of(one) for one in made.values()]
    table = StateTable(Names([*made]), [row for row, _ in rows], np.array([at for _, at in rows]))
    board = Board(0, 0, {name: at for at, name in enumerate(made)}, table, [*made.values()], np.zeros(len(made), int))
    verdicts = [Verdict(name, True, 1, totals={"nodes": 1}) for name in names]
    request = Request(((),), ())
    for event, values in enumerate(seen, 1):
        board = board.with_read({name: (json.dumps({"cost": one}), 0.05, 0) for name, one in values.items()}, event)
        columns = StatesAt(board.table, 0.1 + event / 100)
        chosen = [select(request, verdicts, states, "constraint", options, 7) for states in (columns, dict(columns))]
        assert chosen[0] == chosen[1]
        assert seal_of(chosen[0]) == seal_of(chosen[1])
        assert chosen[0].ranks_of(names[:9]) == {n: at for n, at in chosen[0].ranks.items() if n in names[:9]}


def test_states_among_many_are_kept_once_and_then_as_what_differs(
    api: Api, token: str, clusters: list[Cluster], clock: Clock
) -> None:
    body = {"jobspec": jobspec(1), "selector": of(READING)}
    for at in range(3):
        api.good("POST", "/v1/jobs", body, token)
        clock.now += 7
        api.good("PUT", "/v1/clusters/c3/state", {"cost": at, "nodes_free": 4}, clusters[3].secret)
    listed = api.good("GET", "/v1/decisions", None, ADMIN)["decisions"]
    assert [one["states"]["c3"] for one in listed] == [
        {**QUIET, "cost": cost, "nodes_free": 4, "state.age": 0.0} for cost in (1, 0, MANY - 3)
    ]
    assert [(one["states"]["c0"]["nodes_free"], one["states"]["c0"]["state.age"]) for one in listed] == [
        (2, 14.0),
        (3, 7.0),
        (4, 0.0),
    ]  # each has chosen c0
    with api.service.store.read() as connection:
        bases = {jobs.decision(connection, one["id"])["ledger"]["digests"]["base"] for one in listed}
    assert len(bases) == 1
    assert all(api.good("GET", f"/v1/jobs/{one['id']}/replay", None, token)["equal"] for one in listed)


def test_a_change_that_nobody_was_told_of_books_no_node_twice(
    api: Api, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"jobspec": jobspec(4), "selector": CHEAPEST}
    first = api.good("POST", "/v1/jobs", body, token)
    monkeypatch.setattr(cluster_states, "changed", lambda *_: set())
    second = api.good("POST", "/v1/jobs", body, token)
    assert [one["cluster"] for one in (first, second)] == [NAMES[-5], NAMES[-6]]  # each has four nodes


QUIET = {"queue.waiting_tasks": 0, "queue.running_tasks": 0}


def test_a_sealed_choice_that_comes_out_otherwise_is_not_equal(
    api: Api, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = api.good("POST", "/v1/jobs", {"jobspec": jobspec(1), "selector": CHEAPEST}, token)
    with api.service.store.write() as connection:
        stored = jobs.decision(connection, placed["id"])
        stored["ledger"]["digests"]["selection"] = "0" * 64
        jobs.change(connection, placed["id"], decision=stored)
    replayed = api.good("GET", f"/v1/jobs/{placed['id']}/replay", None, token)
    assert not replayed["equal"]
    assert replayed["selection"] == placed["decision"]["selection"]  # what is known of it


def test_other_rules_are_told_what_the_decision_has_not_read(api: Api, token: str, clusters: list[Cluster]) -> None:
    made = [
        api.good("POST", "/v1/jobs", {"jobspec": jobspec(1), "selector": one}, token)["id"]
        for one in (CHEAPEST, {"name": "random"})
    ]
    matched = api.good("POST", "/v1/match", jobspec(1), token)["candidates"]
    listed = api.good("GET", "/v1/decisions?matched=fits,nodes", None, ADMIN)["decisions"]
    assert [one["id"] for one in listed] == made[::-1]
    for one in listed:
        assert [each["fits"] for each in one["candidates"]] == [each["fits"] for each in matched]
        assert all(each["totals"]["nodes"] == 1 for each in one["candidates"])
        assert "unknown" not in one
    k = 20 if listed[0]["cluster"] != NAMES[20] else 21  # a decision says of the cluster it chose what it has read
    api.good("PUT", f"/v1/clusters/{NAMES[k]}/graph", grid(9, 9), clusters[k].secret)
    [decision] = api.good("GET", "/v1/decisions?limit=1&matched=fits", None, ADMIN)["decisions"]
    assert decision["unknown"] == [NAMES[k]]


def test_refusals_beyond_the_first_are_counted_and_kept(api: Api, token: str) -> None:
    answer = api.problem(422, "unsatisfiable", "POST", "/v1/jobs", jobspec(5), token)
    assert (len(answer["refusals"]), answer["more"]) == (MOST_SHOWN, {"candidates": 0, "refusals": MANY - MOST_SHOWN})
    placed = api.good("POST", "/v1/jobs", jobspec(2), token)
    whole = api.good("GET", f"/v1/jobs/{placed['id']}/why", None, token)["decision"]
    assert [one["cluster"] for one in whole["refusals"]] == NAMES[-4:]
    assert all(one["reason"] for one in whole["refusals"])
    matched = api.good("POST", "/v1/match", jobspec(5), token)
    assert len(matched["refusals"]) == MANY


def test_record_shows_no_cluster_outside_the_readers_token(api: Api, token: str, clusters: list[Cluster]) -> None:
    placed = api.good("POST", "/v1/jobs", {"jobspec": jobspec(1), "selector": CHEAPEST}, token)
    seen = api.good("GET", f"/v1/jobs/{placed['id']}/why", None, clusters[-1].token)["decision"]
    assert [one["cluster"] for one in seen["candidates"]] == [NAMES[-1]]
    assert repr(NAMES[0]) not in str(seen)  # with its quotes: ids of jobs are hexadecimal


@pytest.mark.remembers
def test_long_parts_are_kept_once_and_go_with_their_last_job(api: Api, service: Service, token: str) -> None:
    first = [api.good("POST", "/v1/jobs", jobspec(1), token)["id"] for _ in range(3)]
    with service.store.read() as connection:
        stored, used = _count(connection, records), _count(connection, record_uses)
    assert used == 3 * stored > 0
    for job in first:
        api.good("DELETE", f"/v1/jobs/{job}", None, token)
    with service.store.write() as connection:
        assert jobs.forget(connection, service.clock() + 1, 1) == 1
        assert _count(connection, records) == stored
        assert jobs.forget(connection, service.clock() + 1, 10) == 2
        assert _count(connection, records) == 0


def _count(connection: sa.Connection, table: sa.Table) -> int:
    return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


def test_states_that_no_selection_reads_are_kept_as_they_were_a_moment_ago(
    api: Api, token: str, clusters: list[Cluster], clock: Clock
) -> None:
    def cost() -> Any:
        api.good("POST", "/v1/jobs", jobspec(1), token)
        [newest] = api.good("GET", "/v1/decisions?limit=1", None, ADMIN)["decisions"]
        return newest["states"]["c0"]["cost"]

    assert cost() == MANY
    api.good("PUT", "/v1/clusters/c0/state", {"cost": 1}, clusters[0].secret)
    clock.now += SNAPSHOT_LASTS + 1
    assert cost() == 1


@pytest.mark.remembers
def test_states_of_all_are_not_read_again_because_one_graph_changed(
    api: Api, clusters: list[Cluster], token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The submit after a change of any graph took 18 times as long as others at 1,000 clusters."""
    api.good("POST", "/v1/jobs", jobspec(1), token)
    monkeypatch.setattr(candidates, "read_states", None)
    api.good("PUT", f"/v1/clusters/{clusters[0].name}/graph", sized(9), clusters[0].secret)
    assert api.good("POST", "/v1/jobs", jobspec(1), token)["cluster"]


def test_graphs_that_change_one_after_the_other_are_those_that_are_matched(
    api: Api, service: Service, clusters: list[Cluster], token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "FEW_CANDIDATES", 2)  # with others than before, the ledger writes all again
    for at in (3, 5, 3, 7, 9, 11):
        api.good("PUT", f"/v1/clusters/c{at}/graph", sized(at + 30), clusters[at].secret)
        placed = api.good("POST", "/v1/jobs", {"jobspec": jobspec(1), "selector": CHEAPEST}, token)
        with service.store.read() as connection:
            given_ = ledger.whole(connection, placed["id"])["given"]
        assert given_["graphs"] == {name: revision_of(entry) for name, entry in service.catalogue.items()}
        matched = api.good("POST", "/v1/match", jobspec(4), token)
        assert {name["cluster"] for name in matched["refusals"]} == {
            name for k, name in enumerate(NAMES) if service.catalogue[name].cluster.totals["node"] < 4
        }
    monkeypatch.setattr(core, "MOST_REPLACED", 1)
    for at in (13, 14):  # more than the catalogue knows of itself
        api.good("PUT", f"/v1/clusters/c{at}/graph", sized(MANY), clusters[at].secret)
    matched = api.good("POST", "/v1/match", jobspec(4), token)
    assert {"c13", "c14"} <= {name["cluster"] for name in matched["refusals"]}
    api.good("POST", "/v1/clusters/c5:drain", None, clusters[5].secret)
    api.good("PUT", "/v1/clusters/c5/graph", sized(80), clusters[5].secret)
    result = api.good("POST", "/v1/match", jobspec(1), token)["candidates"]
    assert [one["cluster"] for one in result] == [name for name in NAMES if name != "c5"]


def test_token_loses_a_cluster_that_is_removed_and_is_worth_nothing_once_revoked(api: Api, token: str) -> None:
    def candidates() -> list[str]:
        return [one["cluster"] for one in api.good("POST", "/v1/match", jobspec(1), token)["candidates"]]

    assert candidates() == NAMES
    api.good("DELETE", "/v1/clusters/c1", None, ADMIN)
    assert candidates() == [name for name in NAMES if name != "c1"]
    api.register("c1", sized(1))  # another one of the name
    assert "c1" not in candidates()
    [minted] = [one for one in api.good("GET", "/v1/tokens", None, ADMIN)["tokens"] if len(one["clusters"]) > 1]
    api.good("DELETE", f"/v1/tokens/{minted['id']}", None, ADMIN)
    api.problem(401, "unauthenticated", "POST", "/v1/match", jobspec(1), token)
