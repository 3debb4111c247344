"""Every reason with its numbers, where the search stopped, and the smallest change: cases of both backends."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings

import rainbow
from rainbow.matching import Why, backends, shown_explained, smallest_change
from rainbow.matching.explain import report
from rainbow.matching.explain.request_tree import sought
from tests.shapes import cluster
from tests.test_matching import document, requests, shapes
from tests.test_smaller import levels

ROOT = Path(__file__).parents[1]
CASES = yaml.safe_load((ROOT / "tests" / "cases" / "explain" / "why.yaml").read_text())
FORM = jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "match.schema.json").read_text()))


def built(case):
    return cluster(case["shape"], hung=case.get("hung"), properties=case.get("properties"))


def asked(case):
    return rainbow.parse_jobspec({key: case[key] for key in ("resources", "attributes") if key in case})


@pytest.mark.parametrize("backend", backends.names())
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_refusal_has_its_reason_its_numbers_and_its_change(case, backend):
    made, job = built(case), asked(case)
    verdict = rainbow.match(job, [made], backend=backend)[0]
    assert not verdict.matched
    reason = verdict.reason
    assert (reason.why, [reason.subject, reason.wanted, reason.found]) == (case["reason"], case["about"])
    assert case.get("says", "") in reason.text
    stopped = [part.text for tree in sought(job, made, verdict) for part in tree.walk() if part.stopped]
    assert len(stopped) == (verdict.matched is False)
    assert not stopped or case.get("stopped", stopped[0]) == stopped[0]
    change = smallest_change(made, job, backends.get(backend))
    assert (change.text if change else None) == case["change"]
    if change:
        assert rainbow.match(change.request, [made], backend=backend)[0].matched


def test_every_reason_has_a_case():
    assert {case["reason"] for case in CASES} == set(Why)


@given(shapes, requests, levels)
@settings(deadline=None, max_examples=150)
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


def test_once_a_query_has_cost_its_share_changes_are_left_out_and_trees_are_not(monkeypatch):
    monkeypatch.setattr(report, "MOST_PROBES", 20)
    made = [cluster("cluster(node*2(core*4))", name=f"c{k}") for k in range(30)]
    job = rainbow.parse_jobspec({"resources": {"all": {"type": "node", "with": [{"type": "core", "count": 9}]}}})
    answer = shown_explained(job, made, rainbow.match(job, made), backends.get("index"))
    found = [one["explanation"] for one in answer["refusals"]]
    told = [each["change"]["text"] for each in found if "change" in each]
    assert 0 < len(told) < 20
    assert set(told) == {"core ≤ 4"}
    assert all("change" not in each for each in found[len(told) :])
    assert all(each["tree"] for each in found)
