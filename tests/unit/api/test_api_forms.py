"""What the OpenAPI document calls valid is not refused for its form: each case was answered 400 before."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from rainbow.text import seconds_of
from tests.conftest import ADMIN, Api, Cluster, grid, jobspec

CLUSTER = "/v1/clusters/oak"
KEPT = {"jobspec": jobspec()}
RUN = {"id": "x", "attempt": 1.0}
VALID: list[tuple[str, str, Any, int]] = [
    ("POST", "/v1/clusters/{name}/accept", {"agent": "a", "tasks": [RUN]}, 200),
    ("POST", "/v1/clusters/{name}/heartbeat", {"agent": "a", "running": [RUN]}, 200),
    (
        "POST",
        "/v1/clusters/{name}/events",
        {"agent": "a", "events": [{"task": "x", "attempt": 1.0, "event": "started"}]},
        200,
    ),
    ("POST", "/v1/tokens", {"clusters": ["oak"], "expires_at": "1969-01-01T00:00:00Z"}, 422),
    ("POST", "/v1/tokens", {"clusters": ["oak"], "expires_at": "2030-06-30t23:59:60z"}, 201),
    ("POST", "/v1/clusters/{name}/reservations", {**KEPT, "duration": 1, "start": "1969-01-01T00:00:00Z"}, 422),
    (
        "POST",
        "/v1/clusters/{name}/reservations",
        {**KEPT, "start": "2031-01-01T00:00:00Z", "end": "2030-01-01T00:00:00Z"},
        422,
    ),
]
INVALID: list[tuple[str, str, Any]] = [
    ("POST", "/v1/clusters", {"name": "elm", "graph": grid(1, 1), "subsystems": {"a b": grid(1, 1)}}),
    ("POST", "/v1/jobs", {"jobspec": 5}),
    ("POST", "/v1/match", {"jobspec": jobspec(), "name": 5}),
    ("POST", "/v1/jobs", {"jobspec": jobspec(), "explain": 5}),
    ("POST", "/v1/clusters/{name}/reservations", KEPT),
    ("POST", "/v1/clusters/{name}/reservations", {**KEPT, "end": "2030-01-01T00:00:00Z"}),
]


def allows(api: Api, method: str, path: str, body: Any) -> bool:
    document = api.good("GET", "/openapi.json")
    [answer] = [answer for at, answer in document["paths"].items() if at == path]
    schema = answer[method.lower()]["requestBody"]["content"]["application/json"]["schema"]
    return jsonschema.Draft202012Validator({**schema, "components": document["components"]}).is_valid(body)


@pytest.mark.parametrize(("method", "path", "body", "status"), VALID)
def test_what_the_document_allows_is_not_refused_for_its_form(
    api: Api, oak: Cluster, method: str, path: str, body: Any, status: int
) -> None:
    assert allows(api, method, path, body)
    assert api.call(method, path.format(name="oak"), body, ADMIN).status_code == status


@pytest.mark.parametrize(("method", "path", "body"), INVALID)
def test_what_is_refused_for_its_form_is_not_allowed_by_the_document(
    api: Api, oak: Cluster, method: str, path: str, body: Any
) -> None:
    assert not allows(api, method, path, body)
    api.problem(400, "request-invalid", method, path.format(name="oak"), body, ADMIN)


def test_an_empty_yaml_jobspec_is_not_allowed_and_refused(api: Api, oak: Cluster) -> None:
    answer = api.good("GET", "/openapi.json")["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]
    assert not jsonschema.Draft202012Validator(answer["application/yaml"]["schema"]).is_valid(" \n")
    api.problem(400, "request-invalid", "POST", "/v1/jobs", " \n", oak.token)


@pytest.mark.parametrize("body", ['{"a": "\x7f"}', '{"a": "\ufffe"}'])
def test_json_that_is_no_yaml_is_refused_as_a_state_and_not_for_its_form(api: Api, oak: Cluster, body: str) -> None:
    api.problem(422, "state-invalid", "PUT", f"{CLUSTER}/state", body, oak.secret)
    api.problem(400, "request-invalid", "PUT", f"{CLUSTER}/state", body[:-1] + "]", oak.secret)


@pytest.mark.parametrize("text", ["2030-01-01T00:00:00.5+01:00", "2016-12-31T23:59:60Z", "2030-01-01t00:00:00z"])
def test_times_of_rfc_3339_are_read(text: str) -> None:
    assert seconds_of(text) > 0
