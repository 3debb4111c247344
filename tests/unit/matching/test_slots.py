"""Slots of several kinds packed into nodes, compared with trying everything."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rainbow
from rainbow.jobspec import Condition, Count, Need, Request, Resource
from rainbow.matching import Occupancy, slots, solution
from rainbow.matching.model.base_units import in_base_units
from rainbow.matching.model.budget import Meter
from rainbow.matching.model.layout import layout
from rainbow.matching.slots import DoesNotPackError, pack
from rainbow.matching.trail import Trail
from tests.conftest import examples
from tests.support.hard_inputs import asked, hard_cluster, wanted

Shape = tuple[int, int, int]  # slots, cores and memory of each


def slot_request(shapes: list[Shape], unit: str = "") -> Request:
    return asked(
        *(
            Resource(
                "slot",
                Count(n, n),
                label=f"s{k}",
                children=(wanted("core", cores), Resource("memory", Count(memory, memory), unit=unit)),
            )
            for k, (n, cores, memory) in enumerate(shapes)
        )
    )


def packs(shapes: list[Shape], nodes: list[tuple[int, int]]) -> bool:
    """Try every count of every kind on one node after the other."""
    if not nodes:
        return not any(n for n, _, _ in shapes)
    (cores, memory), *others = nodes
    return any(
        sum(k * of[1] for k, of in zip(chosen, shapes, strict=True)) <= cores
        and sum(k * of[2] for k, of in zip(chosen, shapes, strict=True)) <= memory
        and packs([(of[0] - k, *of[1:]) for k, of in zip(chosen, shapes, strict=True)], others)
        for chosen in product(*(range(n, -1, -1) for n, _, _ in shapes))
    )


def packed(shapes: list[Shape], nodes: list[tuple[int, int]]) -> Any:
    cluster = hard_cluster([{"core": cores, "memory": memory} for cores, memory in nodes])
    laid_out = layout(cluster)
    resources = in_base_units(slot_request(shapes).resources, laid_out.pools)
    try:
        plan = pack(resources, laid_out, Trail(laid_out), Meter(steps=10**6))
    except DoesNotPackError:
        return False
    return plan and _kept([plan[slot.place] for slot in resources], shapes, nodes, laid_out)


def _kept(plan: Any, shapes: list[Shape], nodes: list[tuple[int, int]], laid_out: Any) -> bool:
    """Check that a plan places all slots, numbered on, and no node gives more than it has."""
    free = {place: list(amounts) for place, amounts in zip(laid_out.workers, nodes, strict=True)}
    for k, (n, cores, memory) in enumerate(shapes):
        done = 0
        for at, (place, outside, many) in plan[k].items():
            assert (at, outside) == (done, False)
            done += many
            free[place][0] -= many * cores
            free[place][1] -= many * memory
        assert done == n
    return all(least >= 0 for amounts in free.values() for least in amounts)


SHAPES = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6)), min_size=2, max_size=3)
NODES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3)
WAYS = {"first fit": {}, "patterns": {"ORDERS": 0}, "counts": {"ORDERS": 0, "MOST_PATTERNS": 0}}


@pytest.mark.parametrize("way", WAYS)
@given(shapes=SHAPES, nodes=NODES)
@settings(max_examples=examples(400))
def test_packing_finds_what_trying_everything_finds(
    way: str, shapes: list[Shape], nodes: list[tuple[int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in WAYS[way].items():
            patch.setattr(slots, name, value)
        assert packed(shapes, nodes) is packs(shapes, nodes)


BESIDE = st.sampled_from([(), ("core", 3), ("memory", 4), ("node", 1)])


@given(shapes=SHAPES, nodes=NODES, beside=BESIDE)
@settings(max_examples=examples(400))
def test_index_that_packs_at_once_answers_as_the_plain_search(
    shapes: list[Shape], nodes: list[tuple[int, int]], beside: tuple[Any, ...]
) -> None:
    cluster = hard_cluster([{"core": cores, "memory": memory} for cores, memory in nodes])
    request = asked(*slot_request(shapes).variants[0], *([wanted(*beside)] if beside else []))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solution, "EASY", 0)
        result = rainbow.match(request, [cluster], "index")[0].matched
        held = Occupancy(cluster).take(request)
    assert result is rainbow.match(request, [cluster], "networkx")[0].matched
    assert (held is not None) is result
    if not beside:
        assert result is packs(shapes, nodes)


# found hard: a search of 100,000 steps decides none of these
HARD = {
    "four kinds, one node too few": ([(16, 3, 29), (16, 10, 5), (16, 5, 8), (16, 4, 25)], 17, False),
    "four kinds, to the last core": ([(16, 1, 6), (16, 2, 20), (16, 6, 20), (16, 3, 18)], 16, True),
}


@pytest.mark.parametrize("name", HARD)
def test_index_decides_what_a_search_does_not(name: str) -> None:
    shapes, many, expected = HARD[name]
    cluster = hard_cluster([{"core": 24, "memory": 64}] * many)
    request = slot_request(shapes)
    assert rainbow.match(request, [cluster], "networkx")[0].matched is None
    assert rainbow.match(request, [cluster], "index")[0].matched is expected
    assert (Occupancy(cluster).take(request) is not None) is expected


def test_what_is_taken_keeps_to_every_node() -> None:
    shapes, many, _ = HARD["four kinds, to the last core"]
    occupancy = Occupancy(hard_cluster([{"core": 24, "memory": 64}] * many))
    held = occupancy.take(slot_request(shapes))
    assert held is not None
    assert occupancy.take(asked(wanted("core", 24 * many - sum(n * cores for n, cores, _ in shapes) + 1))) is None
    occupancy.release(held.number)
    assert occupancy.take(slot_request(shapes)) is not None


def test_other_requests_beside_the_slots_are_met_too() -> None:
    shapes, many, _ = HARD["four kinds, to the last core"]
    packed_slots = slot_request(shapes).variants[0]
    beside = [{"core": 24, "memory": 64}] * many + [{"core": 8, "memory": 4}]
    alone = asked(*packed_slots, wanted("node", 1, wanted("core", 8), exclusive=True))
    assert rainbow.match(alone, [hard_cluster(beside)], "index")[0].matched
    too_much = asked(*packed_slots, wanted("node", 2, wanted("core", 8), exclusive=True))
    assert not rainbow.match(too_much, [hard_cluster(beside)], "index")[0].matched


def test_slots_go_where_their_needs_are_met() -> None:
    shapes, many, _ = HARD["four kinds, to the last core"]
    gcc = Need("spack", (Condition("match", {"field": "name", "value": "gcc"}),))
    first, *others = slot_request(shapes).variants[0]
    needy = Resource("slot", first.count, label="s0", needs=(gcc,), children=first.children)
    cluster = hard_cluster([{"core": 24, "memory": 64}] * many)
    vertices = {"gcc": {"metadata": {"type": "package", "name": "gcc"}}}
    node = next(v for v, data in cluster.graph.nodes.items() if data["type"] == "node")
    some = cluster.with_subsystem(
        "spack", {"graph": {"nodes": vertices, "edges": [{"source": node, "target": "gcc"}]}}
    )
    verdict = rainbow.match(asked(needy, *others), [some], "index")[0]
    assert verdict.matched is False  # 16 slots of 6 memory: 10 on one node


def test_without_a_solver_orders_still_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert packed([(2, 3, 1), (2, 1, 3)], [(4, 4), (4, 4)]) is True
    assert packed([(2, 3, 3), (1, 2, 2)], [(4, 4), (4, 4)]) is None


def test_amounts_in_units_are_packed_whatever_their_size() -> None:
    nodes = [{"core": 24, "memory": 64_000_000_000}] * 2
    shapes = [(2, 10, 40_000_000_000), (2, 10, 24_000_000_000)]
    assert rainbow.match(slot_request(shapes), [hard_cluster(nodes)], "index")[0].matched
    one_more = [(2, 10, 40_000_000_000), (2, 10, 24_000_000_001)]
    assert not rainbow.match(slot_request(one_more), [hard_cluster(nodes)], "index")[0].matched
