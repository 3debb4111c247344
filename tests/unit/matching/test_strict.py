"""Strict levels: rule by rule, against Fluxion's recorded answers, and what must hold on any cluster."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings

import rainbow
from rainbow.matching import backends
from rainbow.matching.model.verdict import Why
from rainbow.testing.backends import cluster
from tests.conftest import examples
from tests.support import strategies
from tests.support.oracle_cases import OWN_BACKENDS
from tests.unit.matching.test_matching import document, requests, shapes

CASES = Path(__file__).parents[2] / "cases"
FLUXION = CASES / "conformance" / "fluxion"
RULES = yaml.load((CASES / "strict" / "rules.yaml").read_text(), yaml.CSafeLoader)
ONE_SLOT = [{"command": ["true"], "slot": "work", "count": {"per_slot": 1}}]


def job_of(case):
    tasks = [{**task, "resources": case.get("needs", {})} for task in case.get("tasks", ONE_SLOT)]
    system = {"constraints": case["constraint"]} if "constraint" in case else {}
    return rainbow.parse_jobspec(
        {"version": 9999, "resources": case["resources"], "tasks": tasks, "attributes": {"system": system}}
    )


def ask(job, shape, backend="index", **options):
    return rainbow.match(job, [cluster(shape, **options)], backend=backend)[0]


@pytest.mark.parametrize("backend", OWN_BACKENDS)
@pytest.mark.parametrize("case", RULES, ids=lambda case: case["name"])
def test_rule_gives_the_stated_answer(case, backend):
    verdict = ask(job_of(case), case["shape"], backend, hung=case.get("hung"), levels="strict")
    if "reason" in case:
        assert not verdict.matched
        assert verdict.reason.why == case["reason"], verdict.reason
        assert case.get("says", "") in verdict.reason.text
    else:
        assert verdict.matched, verdict.reason
        assert (verdict.fits, verdict.exact) == (case["fits"], True)
        assert case.get("holds") in (None, [[label, held] for label, held in verdict.take.placed])


@pytest.mark.parametrize("case", RULES, ids=lambda case: case["name"])
def test_same_request_under_the_default_levels_is_matched_unless_stated(case):
    assert ask(job_of(case), case["shape"], hung=case.get("hung")).matched == case.get("default", True)


def test_take_stays_on_the_free_workers():
    job = job_of(
        {"resources": [{"type": "slot", "count": 2, "label": "work", "with": [{"type": "core", "count": 3}]}]}
    )
    built = cluster("cluster(rack(node*3(core*4)))", levels="strict")
    chosen = backends.get("index").take(job, built, ["node1", "node2"])
    assert [held for _, held in chosen.placed] == [{"node1": {"core": 3}}, {"node2": {"core": 3}}]
    assert chosen.vertices == {f"core{n}": 1 for n in (4, 5, 6, 8, 9, 10)}
    assert backends.get("index").take(job, built, ["node1"]) is None


def test_take_of_an_exclusive_rack_waits_for_all_its_workers():
    rack = {"type": "rack", "count": 1, "exclusive": True, "with": [{"type": "node", "count": 1}]}
    job = job_of({"resources": [rack], "tasks": []})
    built = cluster("cluster(rack*2(node*2(core)))", levels="strict")
    assert backends.get("index").take(job, built, ["node1", "node2", "node3"]).vertices == {"rack1": 1}
    assert backends.get("index").take(job, built, ["node1", "node2"]) is None


def test_copies_beyond_the_cap_are_at_least_so_many():
    job = job_of(
        {"resources": [{"type": "slot", "count": 1, "label": "work", "with": [{"type": "core", "count": 1}]}]}
    )
    verdict = ask(job, "cluster(node*300(core*4))", levels="strict")
    assert 1 <= verdict.fits < 1_200
    assert not verdict.exact


@given(shapes, requests)
@settings(deadline=None, max_examples=examples(300))
def test_take_of_a_match_is_there_and_refusals_have_a_reason(shape, request):
    strict = rainbow.read_cluster(document(shape), name="c", levels="strict")
    verdict = rainbow.match(request, [strict], backend="networkx")[0]
    if not verdict.matched:
        assert verdict.reason.why in set(Why)
        assert verdict.reason.text
        return
    assert verdict.fits >= 1
    assert all(amount <= strict.graph.nodes[v]["size"] for v, amount in verdict.take.vertices.items())
    assert backends.get("networkx").take(request, strict, list(strict.workers)) == verdict.take


def swallowed(siblings):
    """Tell whether a slot has siblings: under strict levels the last slot is all that counts."""
    alone = len(siblings) < 2 or not any(r.is_slot for r in siblings)
    return not alone or any(swallowed(r.children) for r in siblings)


@given(strategies.cases())
@settings(deadline=None, max_examples=examples(150), suppress_health_check=list(HealthCheck))
def test_match_under_strict_levels_is_a_match_under_the_default(case):
    shape, hung, request = case
    assume(not swallowed(request.resources))
    assume(not any(part.unit for top in request.resources for part in top.walk()))
    built = strategies.cluster(shape, hung)
    # Without nodes the root is judged, see docs/design/jobs-share-a-node.md.
    assume(request.constraint is None or "node" in built.totals)
    if rainbow.match(request, [replace(built, levels="strict")])[0].matched:
        assert rainbow.match(request, [built])[0].matched
