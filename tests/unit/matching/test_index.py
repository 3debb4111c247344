"""The index gives the answers of the plain search, whatever the cluster and the request."""

import copy
import gc
import pickle
from dataclasses import replace
from weakref import ref

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import rainbow
from rainbow.cache import Overlay
from rainbow.jobspec import Condition, Constraint, Count, Need, Request, Resource
from rainbow.matching import amounts_on, candidates_of, candidates_without
from rainbow.matching.equivalence.cluster_class import cluster_class_of
from rainbow.matching.equivalence.count_arrays import Catalogue
from rainbow.matching.equivalence.count_scalar import ScalarCount
from rainbow.matching.equivalence.query import Query
from rainbow.matching.equivalence.subtree_classes import classify, nameless
from rainbow.matching.index_backend import IndexBackend, Verdicts
from rainbow.matching.model.layout import layout
from rainbow.matching.networkx_backend import NetworkxBackend
from rainbow.matching.solution import successive
from rainbow.matching.trail import Trail
from rainbow.matching.upper_bound import PLENTY, UpperBound
from tests.conftest import examples
from tests.support import strategies

SLOW = list(HealthCheck)


def agree(case):
    shape, hung, request = case
    cluster = strategies.cluster(shape, hung)
    index = IndexBackend()
    plain, result, again = (
        NetworkxBackend().match(request, cluster),
        index.match(request, cluster),
        index.match(request, cluster),
    )
    assert result == plain
    assert again == plain


@given(strategies.cases())
@settings(deadline=None, max_examples=examples(300), suppress_health_check=SLOW)
def test_index_answers_as_the_plain_search(case):
    agree(case)


@pytest.mark.soak
@given(strategies.cases())
@settings(deadline=None, max_examples=10_000, suppress_health_check=SLOW)
def test_index_answers_as_the_plain_search_at_length(case):
    agree(case)


@given(strategies.shapes, strategies.hung, st.lists(strategies.resources(), min_size=1, max_size=2))
@settings(deadline=None, max_examples=examples(200), suppress_health_check=SLOW)
def test_tally_counts_what_the_bound_counts_by_walking(shape, hung, forest):
    cluster = strategies.cluster(shape, hung)
    root = cluster_class_of(cluster, classify(cluster)[0][0])
    needs = [need for top in forest for part in top.walk() for need in part.needs]
    # a slot directly in a slot is left to the plain search (query.py)
    assume(not any(r.is_slot and any(c.is_slot for c in r.children) for top in forest for r in top.walk()))
    tally = ScalarCount(root, tuple(forest), {need.number: root.meeting(need) for need in needs})
    bound = UpperBound(layout(cluster), Trail(layout(cluster)))
    for place, top in enumerate(forest):
        counted = bound.available(top, 0, 0)
        assert min(tally.available(place), PLENTY) == min(counted, PLENTY)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), max_size=5), st.integers(1, 6))
@settings(deadline=None)
def test_successive_is_taking_the_first_that_have_some_left_one_by_one(runs, units):
    remaining = [capacity for capacity, many in runs for _ in range(many) if capacity]
    copies = 0
    while len(remaining) >= units:
        copies += 1
        remaining = [capacity - (place < units) for place, capacity in enumerate(remaining)]
        remaining = [capacity for capacity in remaining if capacity]
    assert successive(runs, units) == copies


@given(strategies.shapes)
@settings(deadline=None, max_examples=examples(100), suppress_health_check=SLOW)
def test_equal_clusters_have_one_root_and_other_names_do_not_matter(shape):
    one, other = strategies.cluster(shape, seed=1), strategies.cluster(shape, seed=7)
    assert classify(one)[0][0] is classify(other)[0][0]


def template(nodes):
    vertices = {"c": {"type": "cluster"}, "n": {"type": "node", "count": nodes}, "k": {"type": "core", "count": 24}}
    edges = [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}]
    document = {"graph": {"nodes": {key: {"metadata": data} for key, data in vertices.items()}, "edges": edges}}
    return rainbow.read_cluster(document, name="large")


def test_a_million_vertices_are_never_written_out_to_answer():
    cluster = template(40_000)
    slot = Resource("slot", Count(64, 64), label="w", children=(Resource("core", Count(24, 24)),))
    verdict = IndexBackend().match(Request(((slot,),), ()), cluster)
    assert verdict.matched
    assert (verdict.fits, verdict.exact) == (625, True)
    assert verdict.totals["cores"] == 64 * 24
    assert list(verdict.take.vertices)[:2] == ["k.0.0", "k.0.1"]
    assert verdict.take.placed[63][1] == {"n63": {"core": 24}}
    assert "graph" not in vars(cluster.outline)


def test_a_name_that_kinds_hide_is_found_all_the_same():
    nodes = {"c": {"metadata": {"type": "cluster"}}, "n": {"metadata": {"type": "node"}}}
    cluster = rainbow.read_cluster({"graph": {"nodes": nodes, "edges": [{"source": "c", "target": "n"}]}}, name="c")
    hung = {"graph": {"nodes": {"p": {"metadata": {"type": "package", "basename": "package", "name": "package7"}}}}}
    hung["graph"]["edges"] = [{"source": "n", "target": "p"}]
    cluster = cluster.with_subsystem("spack", hung)
    for name, matched in (("package7", True), ("package8", False)):
        task = {"command": ["true"], "resources": {"spack": {"match": [{"field": "name", "value": name}]}}}
        job = rainbow.parse_jobspec({"version": 1, "resources": [{"type": "node", "count": 1}], "task": task})
        assert rainbow.match(job, [cluster])[0].matched is matched


def test_a_need_by_name_is_answered_by_kinds_beside_a_subsystem_without_names():
    nodes = {"c": {"metadata": {"type": "cluster"}}, "n": {"metadata": {"type": "node"}}}
    cluster = rainbow.read_cluster({"graph": {"nodes": nodes, "edges": [{"source": "c", "target": "n"}]}}, name="c")
    for name, fields in (("spack", {"type": "package", "name": "gcc"}), ("disks", {"type": "nvme"})):
        hung = {"nodes": {name: {"metadata": fields}}, "edges": [{"source": "n", "target": name}]}
        cluster = cluster.with_subsystem(name, {"graph": hung})
    assert nameless(cluster) == {"disks"}
    for subsystem, by_kinds in (("spack", True), ("disks", False)):
        need = Need(subsystem, (Condition("match", {"field": "name", "value": "gcc"}),))
        request = Request(((Resource("node", needs=(need,)),),), ())
        assert IndexBackend().compiled(cluster).by_kinds(Query(request)) is by_kinds
        assert rainbow.match(request, [cluster])[0].matched is by_kinds


@given(strategies.cases(), st.sampled_from(["core", "gpu", "memory", "storage"]), st.integers(0, 40))
@settings(deadline=None, max_examples=examples(200), suppress_health_check=SLOW)
def test_a_vertex_more_never_turns_a_yes_into_a_no(case, kind, place):
    shape, hung, request = case
    document = strategies.document(shape)
    if rainbow.match(request, [strategies.cluster(shape, hung)])[0].matched:
        compound = sorted({edge["source"] for edge in document["graph"]["edges"]})
        at = compound[place % len(compound)]
        more = strategies.cluster(shape, hung, more=(at, kind))
        assert rainbow.match(request, [more])[0].matched


@given(
    st.lists(st.tuples(strategies.shapes, strategies.hung), min_size=1, max_size=20),
    strategies.requests(),
    st.randoms(),
)
@settings(deadline=None, max_examples=examples(100), suppress_health_check=SLOW)
def test_many_clusters_are_answered_as_one_by_one_in_any_order(drawn, request, chance):
    clusters = [strategies.cluster(*one, name=f"c{k}") for k, one in enumerate(drawn)]
    alone = [IndexBackend().match(request, cluster) for cluster in clusters]
    chance.shuffle(clusters)
    index = IndexBackend()
    with_few = IndexBackend()
    assert list(with_few.match_all(request, clusters)) == alone
    together = Verdicts(index, index.question(request), Catalogue(clusters, index.compiled))
    assert [verdict.matched for verdict in together] == [verdict.matched for verdict in alone]
    matched = [one for one in alone if one.matched]
    for name in {name for one in matched for name in one.totals}:
        assert list(amounts_on(candidates_of(together), name)) == [one.totals.get(name) for one in matched]
    assert together == alone


@given(
    st.lists(st.tuples(strategies.shapes, strategies.hung), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 19), strategies.shapes, strategies.hung), min_size=1, max_size=12),
    st.lists(strategies.requests(), min_size=1, max_size=3),
    st.randoms(),
)
@settings(deadline=None, max_examples=examples(60), suppress_health_check=SLOW)
def test_a_list_with_some_other_clusters_is_answered_as_one_by_one(drawn, changes, requests, chance):
    index, alone = IndexBackend(), IndexBackend()
    clusters = Overlay(strategies.cluster(*drawn[k % len(drawn)], name=f"c{k:02}") for k in range(20))
    for at, *other in [(0, *drawn[0]), *changes]:
        clusters = clusters.with_others({at: strategies.cluster(*other, name=f"c{at:02}")})
        for request in chance.sample(requests, chance.randint(1, len(requests))):
            verdicts = index.match_all(request, clusters)
            assert [one.matched for one in verdicts] == [alone.match(request, each).matched for each in clusters]


def test_a_cluster_appended_to_the_list_is_asked_too():
    request, clusters = Request(((Resource("core"),),), ()), [template(k + 1) for k in range(20)]
    assert len(rainbow.match(request, clusters)) == 20
    clusters.append(template(21))
    assert len(rainbow.match(request, clusters)) == 21


def test_a_verdict_of_many_is_the_same_however_often_it_is_looked_at():
    verdicts = rainbow.match(Request(((Resource("core"),),), ()), [template(k + 1) for k in range(20)])
    assert verdicts[3] is verdicts[3]
    assert verdicts[-1] == verdicts[19]


def test_candidates_without_some_are_the_others_in_order():
    clusters = [strategies.cluster([("node", [f"core:{k + 1}"])], name=f"c{k}") for k in range(20)]
    verdicts = rainbow.match(Request(((Resource("core"),),), ()), clusters)
    known = candidates_of(verdicts)
    remaining = candidates_without(verdicts, {known[3].cluster, known[0].cluster, "nobody"})
    assert list(remaining) == [known[at] for at in range(20) if at not in (0, 3)] == list(candidates_of(remaining))
    assert candidates_without(list(verdicts), {known[0].cluster}) == list(known[1:])


def test_counts_beyond_numpys_integers_are_answered_among_many_clusters_too():
    clusters = [strategies.cluster([("node", [f"core:{k + 1}"])], name=f"c{k}") for k in range(20)]
    for request in (
        Request(((Resource("core", Count(10**20)),),), ()),
        Request(((Resource("node", Count(1), children=(Resource("core", Count(2**63)),)),),), ()),
        Request(((Resource("slot", Count(2**64), children=(Resource("core"),)),),), ()),
    ):
        alone = [IndexBackend().match(request, cluster) for cluster in clusters]
        assert not any(verdict.matched for verdict in alone)
        assert list(IndexBackend().match_all(request, clusters)) == alone


def test_an_answer_is_never_inherited_by_a_request_that_has_the_address_of_one_that_is_gone():
    shape = [("node", ["core"] * 2), ("node", ["core"] * 2), ("node", ["core"] * 4)]
    cluster = strategies.cluster(shape)
    on_one = Resource("node", children=(Resource("core", Count(4, 4)),))
    on_two = Resource("node", Count(2, 2), children=(Resource("core"),))
    slots = tuple(Resource("slot", label=str(n), children=(r,)) for n, r in enumerate((on_one, on_two)))
    named = Constraint("hostlist", ("node[0-2]",))
    for constraint in (None, named):
        for backend in ("index", "networkx"):
            for _ in range(20):
                job = Request((slots,), (), constraint=constraint)
                assert rainbow.match(job, [cluster], backend=backend)[0].matched


def test_copies_of_a_request_have_numbers_of_their_own():
    one = Resource("core", needs=(Need("sw", ()),))
    sent = pickle.loads(pickle.dumps(one))  # noqa: S301 - of our own making
    same = [one, replace(one), copy.copy(one), copy.deepcopy(one), sent]
    assert all(other == one for other in same)
    assert len({other.number for other in same}) == len(same)
    assert Request(((one,),), ()).key == Request(((replace(one),),), ()).key


@pytest.mark.parametrize("backend", ["index", "networkx"])
@pytest.mark.parametrize("hosts", [[], ["node[0-1]"], ["node[0-1]", "node0"]])
def test_what_is_kept_of_a_cluster_is_freed_with_it(backend, hosts):
    """A graph that agents change every minute is a new cluster every minute."""
    request = rainbow.parse_jobspec(
        {
            "resources": {"a": {"type": "node", "exclusive": True}, "b": {"type": "core"}},
            "attributes": {"system": {"constraints": {"hostlist": hosts}}} if hosts else {},
        }
    )
    cluster = strategies.cluster([("node", ["core"] * 4)] * 2, [])
    gone = ref(cluster)
    [verdict] = rainbow.match(request, [cluster], backend)
    assert verdict.fits
    assert verdict.take
    del cluster, verdict
    gc.collect()
    assert gone() is None
