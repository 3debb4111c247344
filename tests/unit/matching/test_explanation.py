"""Every reason with its numbers, where the search stopped, and the smallest change: cases of both backends."""

import io
import json
import time
from itertools import count
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from rich.console import Console

import rainbow
from rainbow.cli.output.decisions import draw_explained
from rainbow.matching import Budget, Why, backends, shown_explained, smallest_change
from rainbow.matching.explain.request_tree import sought_in_time
from rainbow.matching.model.budget import FREE
from rainbow.testing.backends import cluster
from tests.conftest import examples
from tests.support.oracle_cases import OWN_BACKENDS
from tests.unit.matching.test_matching import document, requests, shapes
from tests.unit.matching.test_smaller import levels

ROOT = Path(__file__).parents[3]
CASES = yaml.load((ROOT / "tests" / "cases" / "explain" / "why.yaml").read_text(), yaml.CSafeLoader)
FORM = jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "match.schema.json").read_text()))


DOCUMENT = ("version", "resources", "tasks", "attributes")


def built(case):
    return cluster(case["shape"], hung=case.get("hung"), properties=case.get("properties"), site=case.get("site"))


def asked(case):
    return rainbow.parse_jobspec({key: case[key] for key in DOCUMENT if key in case})


@pytest.mark.parametrize("backend", OWN_BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_refusal_has_its_reason_its_numbers_and_its_change(case, backend):
    made, job = built(case), asked(case)
    budget = Budget(cluster_steps=2_000, query_steps=2_000) if case["reason"] == "undecided" else Budget()
    verdict = rainbow.match(job, [made], backend=backend, budget=budget)[0]
    assert not verdict.matched
    reason = verdict.reason
    assert (reason.why, [reason.subject, reason.wanted, reason.found]) == (case["reason"], case["about"])
    assert case.get("says", "") in reason.text
    trees, _ = sought_in_time(job, made, verdict, FREE)
    stopped = [part.text for tree in trees for part in tree.walk() if part.stopped]
    assert len(stopped) == (verdict.matched is False)
    assert not stopped or case.get("stopped", stopped[0]) == stopped[0]
    change = smallest_change(made, job, backends.get(backend))
    assert (change.text if change else None) == case["change"]
    if change:
        assert rainbow.match(change.request, [made], backend=backend)[0].matched


def test_every_reason_has_a_case():
    assert {case["reason"] for case in CASES} == set(Why) - {Why.SITE_REFUSES}  # that one an agent says


@given(shapes, requests, levels)
@settings(deadline=None, max_examples=examples(150))
def test_explained_answer_has_the_documented_form(shape, request, levels):
    made = rainbow.read_cluster(document(shape), name="c", levels=levels)
    verdicts = rainbow.match(request, [made])
    answer = json.loads(json.dumps(shown_explained(request, [made], verdicts, backends.get("index"))))
    FORM.validate(answer)
    for one in [*answer["candidates"], *answer["refusals"]]:
        trees = [one["explanation"]["tree"]]
        parts = []
        while trees:
            parts += (level := trees.pop())
            trees += [part["with"] for part in level]
        assert sum(part["stopped"] for part in parts) == ("reason" in one)
        if "reason" not in one:  # what matches is nowhere short
            assert not any(part["short"] for part in parts)


# ── issue 16, 8: --explain ends in time ──


def many_slots(count):
    need = [{"name": "spack", "field": "name", "match": "gcc"}]
    slots = {f"s{k}": {"type": "core", "replicas": 2, "count": 34 + k % 50, "requires": need} for k in range(count)}
    return rainbow.parse_jobspec({"resources": slots})


@pytest.mark.parametrize("clusters", [1, 40])
def test_thousands_of_slots_are_explained_within_two_seconds(clusters):
    made = [cluster("cluster(node*30(core*8))", name=f"c{k}") for k in range(clusters)]
    job = many_slots(3_000)
    begun = time.thread_time()
    budget = Budget(time.thread_time)
    answer = shown_explained(job, made, rainbow.match(job, made, budget=budget), backends.get("index"), budget)
    assert time.thread_time() - begun < 2
    FORM.validate(answer)
    assert len(answer["refusals"]) == clusters


def test_where_the_time_ends_not_all_is_explained_and_that_is_said():
    made, job = cluster("cluster(node*30(core*8))", name="c"), many_slots(200)
    clock = iter(count())
    short = Budget(lambda: next(clock), query=1_000)  # every look at the clock is a second
    answer = shown_explained(job, [made], rainbow.match(job, [made]), backends.get("index"), short)
    result = answer["refusals"][0]["explanation"]
    assert result["complete"] is False
    assert 0 < len(result["tree"]) < 200
    console = Console(width=100, file=io.StringIO())
    draw_explained(console, answer)
    assert "not all explained" in console.file.getvalue()
    whole = shown_explained(job, [made], rainbow.match(job, [made]), backends.get("index"))
    assert whole["refusals"][0]["explanation"]["complete"] is True


def test_clusters_of_a_query_share_the_probes_for_changes_equally():
    made = [cluster("cluster(node*2(core*4))", name=f"c{k}") for k in range(30)]
    job = rainbow.parse_jobspec({"resources": {"all": {"type": "node", "with": [{"type": "core", "count": 9}]}}})
    answer = shown_explained(job, made, rainbow.match(job, made), backends.get("index"))
    assert {one["explanation"]["change"]["text"] for one in answer["refusals"]} == {"core ≤ 4"}
