"""POST /v1/match with "explain": true: the same answer, and why."""

import json
from pathlib import Path

import jsonschema
import pytest

from rainbow.graph import read_cluster
from tests.conftest import REGISTRATION, jobspec

FORM = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parents[3] / "docs" / "match.schema.json").read_text())
)
RANKED = {"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-3"}}]}}


def ask(api, tokens, **body):
    answer = api.good("POST", "/v1/match", {"jobspec": jobspec(2), **body}, *tokens)
    FORM.validate(answer)
    return answer


def told(api, *names):
    return [api.register(name).token for name in names]


def test_only_if_asked_an_answer_is_explained(api):
    tokens = told(api, "oak")
    plain = ask(api, tokens)
    assert plain == ask(api, tokens, explain=False)
    explained = ask(api, tokens, explain=True)
    one = explained["candidates"][0]
    assert one.pop("explanation")["tree"]
    assert explained == plain


def test_what_a_candidate_would_hold_is_readable_as_a_resource_set(api):
    api.good("POST", "/v1/clusters", {"name": "elm", "graph": RANKED}, REGISTRATION)
    answer = ask(api, ["rba_of-the-tests"], explain=True)
    result = answer["candidates"][0]["explanation"]
    held = read_cluster(result["R"])
    assert held.totals["core"] == answer["candidates"][0]["totals"]["cores"]
    assert len(result["paths"]) == held.totals["core"]


def test_the_change_of_a_refusal_makes_it_match(api):
    tokens = told(api, "oak")
    requirements = {
        "resources": {"work": {"type": "core", "replicas": 1, "count": 50}},
        "tasks": [{"command": ["a"]}],
    }
    answer = ask(api, tokens, jobspec=requirements, explain=True)
    (edit,) = answer["refusals"][0]["explanation"]["change"]["edits"]
    for count, matched in ((edit["count"], True), (edit["count"] + 1, False)):
        requirements["resources"]["work"]["count"] = count
        assert bool(ask(api, tokens, jobspec=requirements)["candidates"]) is matched


def test_of_clusters_that_are_not_yours_nothing_is_explained(api):
    oak, _ = told(api, "oak", "elm")
    assert "elm" not in json.dumps(ask(api, [oak], explain=True))


@pytest.mark.parametrize("value", ["yes", 1, None, [], {}])
def test_explain_is_true_or_false(api, value):
    (oak,) = told(api, "oak")
    problem = api.problem(400, "request-invalid", "POST", "/v1/match", {"jobspec": jobspec(), "explain": value}, oak)
    assert problem["pointer"] == "/explain"
