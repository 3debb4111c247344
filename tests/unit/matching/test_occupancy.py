"""Take and release: what successive copies get, no unit twice, and all as before when all is given back."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rainbow
from rainbow.jobspec import Count, Request, Resource
from rainbow.jobspec.quantities import quantity
from rainbow.matching import backends, consumables, eligible_worker_classes, worker_capacity, worker_kinds
from rainbow.matching.workers.occupancy import Occupancy
from rainbow.matching.workers.worker_use import Workers, _walked
from rainbow.testing.backends import cluster
from tests.conftest import examples
from tests.support import strategies

SLOW = list(HealthCheck)


class Searched(Occupancy):
    """An occupancy that searches for everything: the plain specification."""

    def _filling(self, request, kinds):
        return None


def node_requests():
    """Requests that are served from workers, and a few that are not."""
    inner = st.sampled_from(
        [
            Resource("core", Count(1, 1)),
            Resource("core", Count(2, 2)),
            Resource("core", Count(1, 1), exclusive=True),
            Resource("gpu", Count(1, 1)),
            Resource("memory", Count(2, 2)),
            Resource("socket", Count(1, 1), children=(Resource("core", Count(1, 1)),)),
            Resource("socket", Count(1, 1)),
        ]
    )
    some = st.lists(inner, min_size=1, max_size=2).map(tuple)
    counts = st.integers(1, 3).map(lambda n: Count(n, n))
    node = st.builds(
        lambda n, below, whole: Resource("node", n, exclusive=whole, children=below), counts, some, st.booleans()
    )
    bare = counts.map(lambda n: Resource("node", n))
    slot = st.builds(lambda n, below: Resource("slot", n, label="w", children=below), counts, some)
    inside = st.builds(lambda one, below: Resource("node", one, children=(below,)), counts, slot)
    nodes = st.builds(
        lambda n, below: Resource("slot", n, label="w", children=(below,)), counts, st.one_of(node, bare)
    )
    spread = counts.map(lambda n: Resource("core", n))
    leaves = st.lists(inner.filter(lambda one: not one.children), min_size=1, max_size=2).map(tuple)
    loose = st.builds(lambda n, below: Resource("slot", n, label="w", children=below), counts, leaves)
    groups = st.lists(loose, min_size=2, max_size=3).map(tuple)
    alone = st.one_of(node, bare, slot, inside, nodes, spread).map(lambda top: (top,))
    return st.one_of(alone, alone, groups).map(lambda trees: Request((trees,), ()))


steps = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=14)


def play(occupancy, requests, moves):
    """Take, release, close and open workers, and try; tell what was taken. After each move all is in order."""
    answers, live, names = [], {}, occupancy.workers.names
    for what, which in moves:
        request, among = requests[which % len(requests)], None
        if what == 3 and live:
            number = sorted(live)[which % len(live)]
            occupancy.release(number)
            answers.append(("released", live.pop(number).number))
        elif what == 4 and names:
            name = names[which % len(names)]
            (occupancy.open if which % 2 else occupancy.close)(name)
        elif what == 5:
            before = list(occupancy.states), dict(occupancy.held)
            answers.append([holding and holding.take for holding in tried(occupancy, requests, which)])
            assert all(was is now for was, now in zip(before[0], occupancy.states, strict=True))
            assert before[1] == occupancy.held
        else:
            among = names[which % len(names) :] if what == 6 and names else None
            holding = occupancy.take(request, among)
            answers.append(holding and (len(live), holding.take))
            live |= {holding.number: holding} if holding else {}
        check_nothing_twice(occupancy, live)
        check_amounts(occupancy, live)
    check_rebuilt(occupancy, live)
    return answers


def tried(occupancy, requests, which):
    """Take, give back and let amounts float, and undo all of it."""
    occupancy.begin()
    results = [occupancy.take(request) for request in requests]
    mark = occupancy.mark()
    for holding in filter(None, results[: which % 3]):
        occupancy.release(holding.number)
    for name in occupancy.workers.names[:2] if occupancy.is_located else ():
        occupancy.hold_amounts(name, {type_: n // 2 for type_, n in occupancy.free(name).items()}, floating=True)
    again = [occupancy.take(request) for request in requests]
    occupancy.undo(mark)
    occupancy.end()
    return [*results, *again]


def check_nothing_twice(occupancy, live):
    """No leaf is held beyond its size, and of what is held whole nothing is held by another job."""
    graph = occupancy.cluster.graph
    used = Counter()
    for holding in live.values():
        for vertex, amount in holding.vertices.items():
            inside = [v for v in nx.descendants(graph, vertex) if not graph.out_degree(v)]
            used.update({v: amount_of(graph.nodes[v]) for v in inside} if inside else {vertex: amount})
    assert all(amount <= amount_of(graph.nodes[vertex]) for vertex, amount in used.items())


def check_amounts(occupancy, live):
    """What is free of a worker is what it has, less what jobs hold."""
    if occupancy.is_located:
        remaining = {name: Counter(amounts) for name, amounts in worker_capacity(occupancy.cluster).items()}
        for holding in live.values():
            for _, held in holding.take.placed:
                for name, amounts in held.items():
                    remaining.get(name, Counter()).subtract(amounts)
        assert {name: dict(occupancy.free(name)) for name in remaining} == {n: dict(a) for n, a in remaining.items()}


def check_rebuilt(occupancy, live):
    """What is booked from what was written is what was held, state by state."""
    again = Occupancy(occupancy.cluster)
    for number, holding in live.items():
        placement = {}
        for _, held in holding.take.placed:
            for name, amounts in held.items():
                placement.setdefault(name, Counter()).update(amounts)
        again.book(str(number), occupancy.words(holding.pieces), placement)
    assert all(was is now for was, now in zip(occupancy.states, again.states, strict=True))


def amount_of(vertex):
    return vertex["size"] * quantity(vertex["unit"])[1]


@given(strategies.shapes, st.lists(node_requests(), min_size=1, max_size=3), steps)
@settings(deadline=None, max_examples=examples(150), suppress_health_check=SLOW)
def test_takes_are_those_of_the_plain_search(shape, requests, moves):
    built = strategies.cluster(shape)
    fast, plain = Occupancy(built), Searched(built)
    assert play(fast, requests, moves) == play(plain, requests, moves)
    assert [s.used for s in fast.states] == [s.used for s in plain.states]
    for number in list(fast.held):
        fast.release(number)
    assert all(state is state.stand.fresh for state in fast.states)


@given(strategies.cases(), strategies.requests(), steps)
@settings(deadline=None, max_examples=examples(150), suppress_health_check=SLOW)
def test_any_request_may_be_taken_and_given_back(case, other, moves):
    shape, hung, request = case
    built = strategies.cluster(shape, hung)
    occupancy, plain = Occupancy(built), Searched(built)
    assert play(occupancy, [request, other], moves) == play(plain, [request, other], moves)
    for number in list(occupancy.held):
        occupancy.release(number)
    assert all(state is state.stand.fresh for state in occupancy.states)


@given(strategies.cases())
@settings(deadline=None, max_examples=examples(150), suppress_health_check=SLOW)
def test_as_many_copies_are_taken_as_fit(case):
    shape, hung, request = case
    built = strategies.cluster(shape, hung)
    verdict = rainbow.match(request, [built])[0]
    occupancy = Occupancy(built)
    copies = 0
    while copies <= min(verdict.fits, 40) and (holding := occupancy.take(request)) is not None:
        copies += 1
        if copies == 1:
            assert holding.take == verdict.take
    if verdict.exact and verdict.fits <= 40:
        assert copies == verdict.fits


@given(st.one_of(strategies.cases(), st.tuples(strategies.shapes, strategies.hung, node_requests())), st.randoms())
@settings(deadline=None, max_examples=examples(200), suppress_health_check=SLOW)
def test_take_on_some_free_workers_is_that_of_the_plain_search(case, chance):
    shape, hung, request = case
    built = strategies.cluster(shape, hung)
    free = [name for name in built.workers if chance.random() < 0.6]
    results = {name: backends.get(name).take(request, built, free) for name in ("index", "networkx")}
    assert results["index"] == results["networkx"]


@given(strategies.shapes, strategies.hung)
@settings(deadline=None, max_examples=50, suppress_health_check=SLOW)
def test_capacities_and_consumables_are_all_there_is(shape, hung):
    built = strategies.cluster(shape, hung)
    sums = Counter(consumables(built))
    for capacity in worker_capacity(built).values():
        sums.update(capacity)
    total = Counter()
    for vertex in built.graph:
        total[built.graph.nodes[vertex]["type"]] += amount_of(built.graph.nodes[vertex])
    assert sums == total
    assert set(worker_kinds(built)) == set(built.workers)


@given(strategies.cases())
@settings(deadline=None, max_examples=examples(200), suppress_health_check=SLOW)
def test_hosting_kinds_are_those_found_by_walking(case):
    shape, hung, request = case
    built = strategies.cluster(shape, hung)
    assert eligible_worker_classes(request, built) == _walked(request, built)


def test_threads_that_ask_at_once_have_the_same_states(monkeypatch):
    both = threading.Barrier(2, timeout=10)
    made = Workers.__init__

    def slowly(workers, request):
        made(workers, request)
        both.wait()  # the other thread has found none, too

    monkeypatch.setattr(Workers, "__init__", slowly)
    built = cluster("cluster(node*2(core*2))")
    with ThreadPoolExecutor(2) as pool:
        here, there = pool.map(Occupancy, [built, built])
    assert all(one is other for one, other in zip(here.states, there.states, strict=True))


def test_releasing_what_nobody_holds_is_an_error():
    with pytest.raises(KeyError):
        Occupancy(cluster("cluster(node)")).release(7)


def test_strict_levels_take_as_fluxion_does():
    occupancy = Occupancy(cluster("cluster(node*2(core*2))", levels="strict"))
    slot = Resource("slot", Count(), label="w", children=(Resource("core", Count(2, 2)),))
    request = Request(((Resource("node", Count(), children=(slot,)),),), ())
    first, second = occupancy.take(request), occupancy.take(request)
    assert [sorted(h.vertices) for h in (first, second)] == [["core0", "core1"], ["core2", "core3"]]
    assert occupancy.take(request) is None
    occupancy.release(first.number)
    assert sorted(occupancy.take(request).vertices) == ["core0", "core1"]


def test_a_node_that_holds_an_empty_slot_is_another_than_one_taken_whole():
    slot = {"type": "slot", "count": 1, "label": "work", "with": []}
    nodes = [{"type": "node", "count": 1}, {"type": "node", "count": 1, "with": [slot]}]
    task = {"command": ["true"], "slot": "work", "count": {"per_slot": 1}}
    request = rainbow.parse_jobspec({"version": 1, "resources": nodes, "tasks": [task], "attributes": {}})
    for count, fits in ((1, False), (2, True)):
        built = strategies.cluster([("node", [])] * count)
        answers = [rainbow.match(request, [built], backend=backend)[0].take for backend in ("index", "networkx")]
        assert [take is not None for take in (*answers, Occupancy(built).take(request))] == [fits] * 3
