"""Refutations of what does not fit: of handed cases, of what the search refuses, and of what was claimed wrongly."""

import random

import pytest

import rainbow
from rainbow.certificate.bounds import Nodes
from rainbow.certificate.document import read_held
from rainbow.certificate.exhaustion import Exhaustion, TooManyError
from rainbow.certificate.refutation import Refutation, read_refutations
from rainbow.errors import InputError
from rainbow.matching import Occupancy, faults_of, faults_of_refutations, refuted, take_beside
from rainbow.matching.needs import meets_condition
from tests.support.oracle_cases import case
from tests.support.trees import groups, some, tree
from tests.unit.certificate.test_checker import CASES, handed

COUNTED = ("type", "total", "bound")
MOST_HELD = 24  # vertices of a case that is tried in every way


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_handed_refusals_are_refuted_and_no_handed_yes_is():
    for one in handed():
        cluster, request = rainbow.read_cluster(one["graph"], name="c"), rainbow.parse_jobspec(one["jobspec"])
        held = read_held(one["held"], cluster)
        claims = refuted(request, cluster, held)
        if one["matched"]:
            assert claims is None, one["name"]
        else:
            assert faults_of_refutations(request, cluster, claims, held) == ([], []), one["name"]
            counted = [claim.kind in COUNTED for claim in claims]
            assert all(counted) == ("exhaustion" not in one["refuted_by"]), (one["name"], claims)


def others(cluster, number):
    """Return what others hold in a case: nothing, amounts of leaves, or all of some vertices."""
    rng, held = random.Random(number), {}
    if number % 2:
        for vertex in rng.sample(list(cluster.graph)[1:], min(2, len(cluster.graph) - 1)):
            inside = any(vertex in other or other in vertex for other in held)
            if not inside and cluster.graph.out_degree(vertex) == 0:
                held[vertex] = rng.choice([None, 1])
            elif not inside:
                held[vertex] = None
    return held


def judged(number):
    """Compare a case beside what others hold with its refutation, and with every way there is; what was it."""
    cluster, request = case(number)
    held = others(cluster, number)
    take, claims = take_beside(request, cluster, held), refuted(request, cluster, held)
    if take is not None:
        assert claims is None, (number, claims)
    elif claims is None:
        return "undecided"
    else:
        assert faults_of_refutations(request, cluster, claims, held)[0] == [], number
    if len(cluster.graph) > MOST_HELD:
        return "large"
    nodes = Nodes(request, cluster, held, (), meets_condition, listed=True)
    try:
        ways = [Exhaustion(nodes).is_possible(variant) for variant in request.variants]
    except TooManyError:
        return "too many"
    assert any(ways) == (take is not None), number
    return "yes" if take else claims[0].kind


def test_what_the_search_refuses_is_refuted_and_every_way_agrees():
    kinds = [judged(number) for number in range(700)]
    counted = sum(kind in COUNTED for kind in kinds)
    assert kinds.count("exhaustion") < 0.05 * counted
    assert kinds.count("undecided") + kinds.count("too many") < 0.01 * len(kinds)
    assert kinds.count("yes") > 150


@pytest.mark.soak
@pytest.mark.parametrize("thousand", range(20))
def test_what_the_search_refuses_is_refuted_at_length(thousand):
    kinds = [judged(number) for number in range(10_000 + thousand * 1000, 11_000 + thousand * 1000)]
    assert kinds.count("undecided") + kinds.count("too many") < 0.01 * len(kinds)


def test_claims_on_requests_that_fit_and_changed_numbers_are_refused():
    rng, refused = random.Random(2), 0
    for number in range(400):
        cluster, request = case(number)
        if rainbow.match(request, [cluster])[0].matched:
            kind = request.variants[0][0].type
            wrong = [
                Refutation("type", kind, 1, 0),
                Refutation("total", kind, 5, rng.randrange(5)),
                Refutation("bound", 0, 5, rng.randrange(5)),
            ]
        else:
            claims = refuted(request, cluster)
            if not claims or claims[0].kind == "exhaustion":
                continue
            wrong = [claims[0]._replace(wanted=claims[0].wanted + 1), claims[0]._replace(found=claims[0].wanted)]
        for claim in wrong:
            assert faults_of_refutations(request, cluster, [claim])[0], (number, claim)
            refused += 1
    assert refused > 800


def test_nobody_stands_on_a_leaf_that_others_use_up():
    cluster = tree("n0 node", "n0/c0 core*2")
    request = groups(a={"type": "core", "with": [{"type": "slot", "count": 2, "label": "b", "with": []}]})
    for held, fits in (({}, True), ({"c0": 1}, True), ({"c0": 2}, False), ({"c0": None}, False)):
        take, claims = take_beside(request, cluster, held), refuted(request, cluster, held)
        assert ((take is None), (claims is None)) == ((not fits), fits), held
        if claims:
            assert faults_of_refutations(request, cluster, claims, held) == ([], [])
            empty = take_beside(request, cluster, {}).certificate()
            assert faults_of(request, cluster, empty, held) == ["row 0: c0 lies in c0, which others hold"]
    occupancy = Occupancy(cluster)
    assert occupancy.take(groups(a={"type": "core", "count": 2, "exclusive": True})) is not None
    assert occupancy.take(request) is None


def test_exhaustion_is_checked_on_small_graphs_only():
    whole = {"type": "socket", "exclusive": True}
    request = groups(a=whole, b={"type": "node", "with": [some("core", 2)]})
    small = tree("n0 node", "n0/s0 socket", "n0/s0/c0 core", "n0/s0/c1 core")
    claims = refuted(request, small)
    assert [claim.kind for claim in claims] == ["exhaustion"]
    assert faults_of_refutations(request, small, claims) == ([], [])
    more = [f"n{n} node" for n in range(1, 30)]
    large = tree("n0 node", "n0/s0 socket", "n0/s0/c0 core", "n0/s0/c1 core", *more)
    faults, unchecked = faults_of_refutations(request, large, refuted(request, large))
    assert (faults, len(unchecked)) == ([], 1)
    fits = groups(a=whole)
    said = faults_of_refutations(fits, small, [Refutation("exhaustion", steps=3)])
    assert said == (["variant 0: there is a way to meet it"], [])


def test_templates_are_counted_without_writing_them_out():
    nodes = {"c": {"metadata": {"type": "cluster"}}, "n": {"metadata": {"type": "node", "count": 500_000}}}
    nodes["k"] = {"metadata": {"type": "core", "size": 4, "count": 2}}
    edges = [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}]
    cluster = rainbow.read_cluster({"graph": {"nodes": nodes, "edges": edges}}, name="c")
    request = groups(a={"type": "node", "count": 3, "with": [some("core", 9)]})
    assert refuted(request, cluster) == [Refutation("bound", 0, 1, 0)]
    fits = groups(a={"type": "node", "count": 500_000, "with": [some("core", 8)]})
    assert faults_of_refutations(fits, cluster, [Refutation("bound", 0, 1, 0)])[0]


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({}, "/refutation"),
        ([{}], "/refutation/0/kind"),
        ([{"kind": "sum"}], "/refutation/0/kind"),
        ([{"kind": "type", "type": "core", "wanted": 1}], "/refutation/0/found"),
        ([{"kind": "type", "type": 3, "wanted": 1, "found": 0}], "/refutation/0/type"),
        ([{"kind": "bound", "request": True, "wanted": 1, "found": 0}], "/refutation/0/request"),
        ([{"kind": "bound", "request": 0, "wanted": float("nan"), "found": 0}], "/refutation/0/wanted"),
        ([{"kind": "exhaustion", "steps": -1}], "/refutation/0/steps"),
        ([{"kind": "exhaustion", "steps": 1, "more": 1}], "/refutation/0/more"),
    ],
)
def test_what_is_no_refutation_is_refused_with_a_pointer(document, pointer):
    with pytest.raises(InputError) as fault:
        read_refutations(document)
    assert fault.value.pointer == pointer


def test_refutations_are_read_as_they_are_written():
    claims = [Refutation("type", "gpu", 2, 0), Refutation("total", "memory", 10**12, 10**11)]
    claims += [Refutation("bound", 3, 4, 1), Refutation("exhaustion", steps=17)]
    assert read_refutations([claim.document() for claim in claims]) == claims
