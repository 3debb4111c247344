"""What must hold of matching whatever the cluster and the request."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

import rainbow
from rainbow.jobspec import Condition, Count, Need, Request, Resource
from rainbow.matching import backends
from rainbow.matching.model.layout import layout
from rainbow.matching.solution import counted, search, taken_copies, totals_of
from rainbow.matching.trail import Trail
from rainbow.matching.workers.occupancy import Occupancy
from tests.conftest import examples
from tests.support import strategies
from tests.support.strategies import grown

leaves = st.sampled_from(["core", "core:2", "core:4", "gpu", "memory:8"])
node = st.lists(leaves, min_size=1, max_size=4).map(lambda parts: ("node", parts))
socket_node = st.lists(st.lists(leaves, min_size=1, max_size=3), min_size=1, max_size=2).map(
    lambda sockets: ("node", [("socket", parts) for parts in sockets])
)
shapes = st.lists(st.one_of(node, socket_node), min_size=1, max_size=4)


@st.composite
def resources(draw, depth=2):
    kind = draw(st.sampled_from(["core", "gpu", "memory", "socket", "node", "slot"]))
    count = draw(st.integers(1, 3))
    inner = kind in ("socket", "node", "slot") and depth
    children = tuple(draw(st.lists(resources(depth=depth - 1), max_size=2))) if inner else ()
    children = tuple(c for c in children if c.type != kind)
    if kind == "slot" and not children:
        children = (Resource("core", Count(1, 1)),)
    label = "work" if kind == "slot" else ""
    return Resource(kind, Count(count, count), "", kind == "node" and draw(st.booleans()), label, (), children)


requests = st.lists(resources(), min_size=1, max_size=2).map(lambda forest: Request((tuple(forest),), ()))


def sized(kind, number):
    """Return the fields of a vertex: its kind and, after a colon, its size."""
    kind, _, size = kind.partition(":")
    return {"type": kind, "name": f"{kind}{number}", "size": int(size or 1)}


def document(shape, seed=0):
    """Write a shape as JGF, its vertices and edges in an order drawn from `seed`."""
    nodes, edges = grown(shape, sized)
    rng = random.Random(seed)
    keys = sorted(nodes)
    rng.shuffle(keys)
    rng.shuffle(edges)
    return {"graph": {"nodes": {key: nodes[key] for key in keys}, "edges": edges}}


def verdict(shape, request, seed=0, backend="networkx"):
    return rainbow.match(request, [rainbow.read_cluster(document(shape, seed), name="c")], backend=backend)[0]


@given(shapes, requests, st.integers(0, 5))
@settings(deadline=None, max_examples=examples(150))
def test_answer_does_not_depend_on_the_order_of_the_document(shape, request, seed):
    assert verdict(shape, request) == verdict(shape, request, seed)


@given(shapes, requests)
@settings(deadline=None, max_examples=examples(150))
def test_backends_agree_also_when_asked_twice(shape, request):
    cluster = rainbow.read_cluster(document(shape), name="c")
    answers = [rainbow.match(request, [cluster], backend=b)[0] for b in ("networkx", "index", "index")]
    assert answers[0] == answers[1] == answers[2]


@given(shapes, requests, node)
@settings(deadline=None, max_examples=examples(150))
def test_one_node_more_never_turns_a_yes_into_a_no(shape, request, more):
    if verdict(shape, request).matched:
        assert verdict([*shape, more], request).matched


@given(shapes, requests)
@settings(deadline=None, max_examples=examples(150))
def test_take_holds_no_more_than_the_cluster_has(shape, request):
    answer = verdict(shape, request)
    cluster = rainbow.read_cluster(document(shape), name="c")
    if not answer.matched:
        assert answer.reason is not None
        assert answer.fits == 0
        return
    assert answer.fits >= 1
    assert all(amount <= cluster.graph.nodes[v]["size"] for v, amount in answer.take.vertices.items())
    held = totals_of(answer.take, "node")
    assert held == answer.totals
    assert held["nodes"] <= len(cluster.workers)
    assert all(held[key] <= cluster.totals.get(kind, 0) for key, kind in (("cores", "core"), ("gpus", "gpu")))


@given(shapes, resources())
@settings(deadline=None, max_examples=examples(300))
def test_copies_in_closed_form_are_those_of_taking_one_by_one(shape, resource):
    laid_out = layout(rainbow.read_cluster(document(shape), name="c"))
    result = search((resource,), laid_out, Trail(laid_out))
    if isinstance(result, tuple):
        closed = counted((resource,), laid_out, Trail(laid_out))
        copies, exact = taken_copies((resource,), laid_out, Trail(laid_out), result[1])
        assert exact
        assert closed in (None, copies)


@given(shapes, requests)
@settings(deadline=None, max_examples=examples(100))
def test_matches_when_all_workers_are_free_as_when_none_is_named(shape, request):
    cluster = rainbow.read_cluster(document(shape), name="c")
    take = backends.get("index").take(request, cluster, list(cluster.workers))
    assert (take is not None) == rainbow.match(request, [cluster])[0].matched


def test_what_is_held_inside_a_whole_vertex_is_counted_once_and_is_the_inner_slots():
    cluster = rainbow.read_cluster(document([("node", [("socket", ["core:4", "memory:8"])])]), name="c")
    core = Resource("core", Count(1, 1))
    slots = Resource("slot", Count(3, 3), label="work", children=(core,))
    for inner, cores in ((Resource("socket"), {"": 4}), (slots, {"": 1, "work": 3})):
        job = Request(((Resource("node", exclusive=True, children=(inner,)),),), ())
        answer = rainbow.match(job, [cluster])[0]
        assert answer.totals == {"nodes": 1, "cores": 4, "gpus": 0, "memory": 8, "socket": 1}
        assert list(answer.take.vertices) == ["/cluster0/node0"]
        held = [(label, amounts.get("core", 0)) for label, on in answer.take.placed for amounts in on.values()]
        assert sum(1 for label, _ in held if label == "work") == (3 if inner is slots else 0)
        assert {label: sum(n for at, n in held if at == label) for label, _ in held} == cores


def fits(shape, resource):
    return verdict(shape, Request(((resource,),), ())).fits


def test_an_exclusive_node_counts_only_if_it_holds_all_its_requests_together():
    twice = (Resource("core", Count(1, 1)), Resource("core", Count(1, 1)))
    shape = [("node", ["core"]), ("node", ["core", "core"])]
    assert fits(shape, Resource("node", exclusive=True, children=twice)) == 1


def test_whole_vertices_of_a_larger_size_are_counted():
    for exclusive in (False, True):
        assert fits([("node:2", ["core"]), ("node:2", ["core"])], Resource("node", Count(2, 2), "", exclusive)) == 2


def both(shape, forest, hung=()):
    cluster = strategies.cluster(shape, hung)
    answers = [rainbow.match(Request((forest,), ()), [cluster], backend=name)[0] for name in ("networkx", "index")]
    assert answers[0] == answers[1]
    return answers[0], taken(cluster, Request((forest,), ()))


def taken(cluster, request, most=100):
    occupancy = Occupancy(cluster)
    return sum(1 for _ in range(most) if occupancy.take(request))


CORE = Resource("core")
GCC = (Need("sw", (Condition("match", {"field": "name", "value": "gcc"}),)),)


def test_a_slot_that_takes_a_whole_rack_finds_what_it_needs_in_the_rack():
    """Counted as fitting, not found by the search: that was a fault of the server."""
    slot = Resource("slot", label="a", needs=GCC, children=(Resource("rack"),))
    shape = [("rack", [("node", ["core"])]), ("rack", [("node", ["core"])])]
    answer, copies = both(shape, (slot,), [(2, ("sw", "lib", "gcc", "12"))])
    assert (answer.matched, answer.fits, copies) == (True, 1, 1)
    assert list(answer.take.vertices) == ["/cluster0/rack0"]
    assert not both(shape, (replace(slot, count=Count(2, 2)),), [(2, ("sw", "lib", "gcc", "12"))])[0].matched


def test_needs_of_a_slot_in_a_slot_belong_to_the_vertex_both_are_on():
    inner = Resource("slot", label="inner", needs=GCC, children=(CORE,))
    job = Resource("node", children=(Resource("slot", label="outer", children=(inner,)),))
    shape = [("node", ["core"]), ("node", ["core"])]
    answer, copies = both(shape, (job,), [(3, ("sw", "lib", "gcc", "12"))])
    assert (list(answer.take.vertices), answer.fits, copies) == (["/cluster0/node1/core0"], 1, 1)
    assert not both(shape, (job,))[0].matched


def test_fits_counts_only_where_the_needs_of_a_slot_are_met():
    job = Resource("slot", label="a", needs=GCC, children=(Resource("node", children=(CORE,)),))
    answer, copies = both([("node", ["core"] * 8)] * 2, (job,), [(1, ("sw", "lib", "gcc", "12"))])
    assert (answer.fits, answer.exact, copies) == (8, True, 8)


def test_fits_of_a_slot_in_a_slot_is_what_is_taken():
    job = Resource("slot", label="a", children=(Resource("slot", label="b", children=(CORE,)),))
    answer, copies = both([("node", ["core"] * 3)], (job,))
    assert (answer.fits, copies) == (3, 3)


def test_no_two_slots_share_a_vertex_that_is_taken_whole():
    exclusive = Resource("core", Count(1, 1), "", True)
    slots = Resource("slot", Count(2, 2), label="a", children=(exclusive,))
    assert not both([("node", ["core:2"])], (slots,))[0].matched
    answer, copies = both([("node", ["core:2"] * 3)], (slots,))
    assert (answer.fits, copies) == (1, 1)
    assert [list(held.values()) for _, held in answer.take.placed] == [[{"core": 2}], [{"core": 2}]]
    whole = Resource("slot", Count(2, 2), label="a", children=(Resource("node"),))
    assert not both([("node:2", ["core"])], (whole,))[0].matched
    assert both([("node:2", ["core"])] * 2, (whole,))[0].matched


def test_slots_of_whole_vertices_of_different_sizes_are_searched_for():
    three = Resource("slot", Count(2, 2), label="a", children=(Resource("core", Count(3, 3), "", True),))
    assert both([("node", ["core:3", "core:2", "core:2"])], (three,))[0].matched
    assert not both([("node", ["core:3", "core:2", "core"])], (replace(three, count=Count(3, 3)),))[0].matched


def test_one_gigabyte_is_taken_of_two_nodes_as_a_thousand_megabytes_are():
    for unit, count in (("GB", 1), ("MB", 1000)):
        answer, copies = both([("node", ["memory:750:MB"])] * 2, (Resource("memory", Count(count, count), unit),))
        assert (answer.matched, answer.fits, copies) == (True, 1, 1)
