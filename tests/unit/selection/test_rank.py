"""The best of what several servers would choose is what one server with all of their clusters chooses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rainbow.jobspec import Request
from rainbow.matching import Verdict
from rainbow.selection import Choice, select
from rainbow.selection.rank import Standing, best, chance_of, drawn
from rainbow.service.placement.ledger import written

REQUEST = Request(((),), (), parameters={"wanted": 2, "speed": 3})
VARIABLES = ("cost", "wanted", "load", "speed", "node_memory_gb", "memory_per_node")
values = st.one_of(st.integers(0, 3), st.sampled_from([0.5, True, "x86"]))
states = st.dictionaries(st.sampled_from(VARIABLES), values, max_size=4)
expressions = st.sampled_from(
    ["cost", "load", "cost + load", "wanted", "speed - cost", "node_memory_gb", "sum", "matched.nodes", "unheard_of"]
)
steps = st.one_of(
    st.builds(lambda one, n: {"filter": f"{one} <= {n}"}, expressions, st.integers(0, 3)),
    st.builds(lambda one: {"calc": f"sum = {one}"}, expressions),
    st.builds(lambda kind, one: {kind: one}, st.sampled_from(["sort_ascending", "sort_descending"]), expressions),
    st.builds(lambda how: {"select": how}, st.sampled_from(["first", "last", "random"])),
)
# of two priorities of one number each is tried
priorities = st.lists(
    st.builds(
        lambda n, some: {"priority": n, "steps": some}, st.integers(1, 2), st.lists(steps, min_size=1, max_size=4)
    ),
    min_size=1,
    max_size=3,
)
servers = st.lists(st.lists(states, max_size=3), min_size=1, max_size=3)


def candidates(count: int, server: str) -> list[Verdict]:
    return [Verdict(f"{'ab'[k % 2]}{k}-{server}", True, totals={"nodes": k % 3}) for k in range(count)]


def told(choice: Choice) -> Standing | None:
    """What a server says of its choice, as it is sent."""
    standing = Standing.of(choice, alone=False)
    return standing and Standing.read(json.loads(json.dumps(asdict(standing))))


def stated_in(results: Mapping[str, Mapping[str, Any]]) -> set[str]:
    return set().union(*results.values())


@given(servers, priorities)
def test_best_standing_is_the_choice_among_all(of_servers: list[list[dict[str, Any]]], tried: list[Any]) -> None:
    verdicts = {str(k): candidates(len(some), str(k)) for k, some in enumerate(of_servers)}
    known = {
        server: {one.cluster: state for one, state in zip(result, of_servers[int(server)], strict=True)}
        for server, result in verdicts.items()
    }
    options = {"priorities": tried}
    every = [one for result in verdicts.values() for one in result]
    whole = select(
        REQUEST, every, {n: s for result in known.values() for n, s in result.items()}, "constraint", options
    )
    stated = sorted(set().union(*map(stated_in, known.values())))
    choices = {
        server: select(REQUEST, result, known[server], "constraint", {**options, "stated": stated})
        for server, result in verdicts.items()
    }
    standings = {server: one for server, choice in choices.items() if (one := told(choice))}
    assert bool(standings) == (whole.cluster is not None)
    if not standings:
        return
    chosen = standings[best(standings, chance_of("x"))]
    if chosen.select != "random":
        assert chosen.cluster == whole.cluster
        return
    number = sum(one.among for one in standings.values() if one.tried == chosen.tried)
    assert whole.steps[-1].note.startswith(f"random of {number}")


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 9), min_size=2, max_size=4), st.text())
def test_another_weight_moves_a_draw_only_to_or_from_its_own_server(weights: dict[str, int], text: str) -> None:
    chance, before = chance_of(text), drawn(weights, chance_of(text))
    for server in weights:
        after = drawn({**weights, server: weights[server] + 1}, chance)
        assert after in (before, server)


def test_draws_go_by_weight() -> None:
    weights = {"one": 1, "two": 2, "five": 5}
    draws = [drawn(weights, chance_of(str(k))) for k in range(8_000)]
    for server, weight in weights.items():
        assert abs(draws.count(server) - 1_000 * weight) < 200


def test_random_counts_candidates_and_a_cluster_with_an_agent_comes_first() -> None:
    results = {
        server: Standing.of(select(REQUEST, candidates(count, server), {}, "random"), alone=server == "big")
        for server, count in (("big", 9), ("small", 2))
    }
    standings = {server: one for server, one in results.items() if one}
    assert [(server, one.among) for server, one in standings.items()] == [("big", 9), ("small", 2)]
    assert {best(standings, chance_of(str(k))) for k in range(50)} == {"small"}


def test_number_of_clusters_is_a_field_of_the_step_and_not_read_from_its_note() -> None:
    for step in ({"select": "random"}, {"filter": "matched.nodes >= 0"}):  # the select of the second is implied
        options = {"priorities": [{"priority": 1, "steps": [step]}]}
        choice = select(REQUEST, candidates(3, "here"), {}, "constraint", options)
        *before, last = choice.steps
        reworded = replace(choice, steps=(*before, replace(last, note="reworded")))
        standing = Standing.of(reworded, alone=False)
        assert standing
        assert standing.among == last.among == 3
        assert "among" not in written(choice)["steps"][-1]  # decisions stored before are replayed as equal


def test_selector_of_somebody_else_cannot_be_compared() -> None:
    assert Standing.of(Choice("oak", "theirs"), alone=False) is None
    assert Standing.of(Choice(None, "random"), alone=False) is None
