"""The fair queue against its definition, computed from the whole history, and against the bound of its authors."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.fair_queue import MOST_FINISHES, FairQueue
from tests.conftest import examples

# binary fractions: sums are exact, and equal tags are equal
costs = st.integers(0, 64).map(lambda n: n * 105 / 8)  # and a third, a fifth or a seventh of them as well
weights = st.sampled_from([1.0, 4.0])
callers = st.sampled_from("abc")


class Came(NamedTuple):
    """An item comes."""

    caller: str
    weight: float


class Served(NamedTuple):
    """The first item is taken and costs this."""

    cost: float


steps = st.lists(st.one_of(st.builds(Came, callers, weights), st.builds(Served, costs)), max_size=60)


@dataclass
class Packet:
    """An item of the definition: all that was ever put into the queue is remembered."""

    caller: str
    weight: float
    arrival: float  # the virtual time then
    number: int
    finish: float | None = None


class Specification:
    """Start-time fair queueing as fair_queue.py defines it; every tag is computed from the history."""

    def __init__(self) -> None:
        self.packets: list[Packet] = []
        self.virtual = 0.0

    def put(self, caller: str, weight: float) -> int:
        others = self.first()
        if caller in others:
            self.packets.append(Packet(caller, weight, 0.0, len(self.packets)))
        else:
            starts = [self.start(packet) for packet in others.values()] or [self.virtual]
            self.virtual = sorted([min(starts), self.virtual, max(starts)])[1]
            self.packets.append(Packet(caller, weight, self.virtual, len(self.packets)))
        return len(self.packets) - 1

    def start(self, packet: Packet) -> float:
        before = [p for p in self.packets if p.caller == packet.caller and p.number < packet.number]
        return max(packet.arrival, (before[-1].finish or 0.0) if before else 0.0)

    def serve(self, cost: float) -> int | None:
        first = self.first()
        if not first:
            return None
        packet = min(first.values(), key=lambda p: (self.start(p), p.number))
        packet.finish = self.start(packet) + cost / packet.weight
        there = {packet.caller: packet} | self.first()
        self.virtual += cost / sum(p.weight for p in there.values())
        return packet.number

    def first(self) -> dict[str, Packet]:
        """The first item of each caller that waits."""
        results: dict[str, Packet] = {}
        for packet in self.packets:
            if packet.finish is None:
                results.setdefault(packet.caller, packet)
        return results


@settings(max_examples=examples(200), deadline=None)
@given(steps)
def test_queue_takes_what_the_definition_says(history: list[Came | Served]) -> None:
    queue: FairQueue[int] = FairQueue()
    plain = Specification()
    for step in history:
        if isinstance(step, Came):
            queue.put(step.caller, plain.put(step.caller, step.weight), step.weight)
            continue
        taken = queue.take()
        assert (taken.item if taken else None) == plain.serve(step.cost)
        if taken:
            queue.charge(taken, step.cost)
    assert len(queue) == sum(packet.finish is None for packet in plain.packets)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(costs, costs), min_size=1, max_size=40), weights, weights)
def test_two_who_always_wait_differ_by_no_more_than_an_item_of_each(
    lengths: list[tuple[float, float]], weight_a: float, weight_b: float
) -> None:
    """The theorem of the paper, whatever a third caller does."""
    queue: FairQueue[float] = FairQueue()
    for a, b in lengths:
        queue.put("a", a, weight_a)
        queue.put("b", b, weight_b)
        queue.put("c", 1.0)
    got: dict[str, float] = defaultdict(float)
    most = max(a for a, _ in lengths) / weight_a + max(b for _, b in lengths) / weight_b
    while {"a", "b"} <= queue.callers:
        taken = queue.take()
        assert taken is not None
        queue.charge(taken, taken.item)
        got[taken.caller] += taken.item / taken.weight
        assert abs(got["a"] - got["b"]) <= most


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(callers, weights, costs, st.booleans()), max_size=40))
def test_what_does_not_fit_keeps_its_place_and_its_caller_the_order(
    items: list[tuple[str, float, float, bool]],
) -> None:
    queue: FairQueue[tuple[int, float, bool]] = FairQueue()
    for k, (caller, weight, cost, fits) in enumerate(items):
        queue.put(caller, (k, cost, fits), weight)
    taken: dict[str, list[int]] = defaultdict(list)
    while len(queue):
        one = queue.take(lambda item: item[2]) or queue.take()
        assert one is not None
        queue.charge(one, one.item[1])
        taken[one.caller].append(one.item[0])
    assert {caller: sorted(numbers) for caller, numbers in taken.items()} == taken
    assert sum(map(len, taken.values())) == len(items)


def test_newcomers_do_not_keep_one_waiting_who_has_had_something() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.put("old", "first")
    taken = queue.take()
    assert taken is not None
    queue.charge(taken, 1.0)
    queue.put("new", "new")
    queue.put("old", "second")
    order: list[str] = []
    for k in range(20):  # each new, and there before the one before it is taken
        queue.put(f"new{k}", "new")
        one = queue.take()
        assert one is not None
        queue.charge(one, 0.5)
        order.append(one.item)
    assert order.index("second") <= 6


def test_callers_without_a_debt_are_forgotten() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.put("always", -1)
    for k in range(3 * MOST_FINISHES):
        queue.put(f"c{k}", k)
        taken = queue.take()
        assert taken is not None
        queue.charge(taken, 0.001)
        if taken.caller == "always":
            queue.put("always", -1)
    assert queue.remembered <= MOST_FINISHES + 1


def test_cost_that_comes_later_counts_too() -> None:
    queue: FairQueue[str] = FairQueue()
    for name in ("a1", "a2", "b1", "b2"):
        queue.put(name[0], name)
    first = queue.take()
    assert first is not None
    queue.charge(first, 1.0)
    queue.charge(first, 2.0)  # its share of the commit
    taken = []
    while (one := queue.take()) is not None:
        queue.charge(one, 1.0)
        taken.append(one.item)
    assert taken == ["b1", "b2", "a2"]
