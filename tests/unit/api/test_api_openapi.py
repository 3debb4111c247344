"""The API's own document: it names every route, and nothing it allows or forbids is answered by a fault of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rainbow.api.openapi import BODIES
from rainbow.api.problems import MEANINGS, STATUS
from rainbow.api.schemas import ANSWERS, SCHEMAS
from tests.conftest import ADMIN, REGISTRATION, Api, Clock, examples, grid, jobspec, open_service_at

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
PARTS = st.sampled_from(["oak", "elm", "n0", "io", "%00", "a%2Fb", "..", "ü", "%F0%9F%98%80", "x" * 300, "%ED%A0%80"])
ASKED = st.sampled_from(["", "\0", "oak", "a", "true", "-1", "1", "1e999", "9" * 30, "waiting", "ü", "٣"])
TEXTS = ASKED | st.sampled_from(["\ud800", "2030-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "x" * 300])


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    url = f"sqlite:///{tmp_path_factory.mktemp('openapi')}/x.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_server").new_database()
    service = open_service_at(url, Clock())
    yield Api(service)
    service.close()


@pytest.fixture(scope="module")
def document(api: Api) -> dict[str, Any]:
    results: dict[str, Any] = api.good("GET", "/openapi.json")
    return results


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(m.upper(), path, answer) for path, methods in document["paths"].items() for m, answer in methods.items()]


def test_document_names_every_route_once_and_its_references_lead_somewhere(
    api: Api, document: dict[str, Any]
) -> None:
    assert document["openapi"] == "3.1.0"
    there = {
        (method, re.sub(r"<any\((\w+)[^>]*>", r"\1", re.sub(r"<(?:path:|id:|worker:)?(\w+)>", r"{\1}", rule.rule)))
        for rule in api.app.url_map.iter_rules()
        if not rule.endpoint.startswith("page.")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    named = {(method, path) for method, path, _ in operations(document)}
    assert there <= named
    ids = [answer["operationId"] for _, _, answer in operations(document)]
    assert len(ids) == len(set(ids))
    for reference in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)):
        assert reference in document["components"]["schemas"]
    for _, path, answer in operations(document):
        assert {p["name"] for p in answer["parameters"] if p["in"] == "path"} == set(re.findall(r"{(\w+)}", path))
        assert answer["summary"]


def test_schemas_are_schemas_and_are_those_that_validate(document: dict[str, Any]) -> None:
    assert document["components"]["schemas"] == SCHEMAS | ANSWERS
    for schema in ANSWERS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for name, schema in SCHEMAS.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert name in BODIES.values() or name in {"Problem", "Jobspec"}


def of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of the forms these schemas use, some of them a little wrong."""
    if "$ref" in schema:
        return of(SCHEMAS[schema["$ref"].rsplit("/", 1)[1]])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return st.one_of([of(each) for each in schema[key]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | JSON
    kind = schema.get("type")
    if kind == "object":
        known = {key: of(inner) for key, inner in schema.get("properties", {}).items()}
        required = {key: known.pop(key) for key in schema.get("required", [])}
        return st.fixed_dictionaries(required, optional=known)
    if kind == "array":
        return st.lists(of(schema["items"]), max_size=3)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        "string": TEXTS | st.text(max_size=20),
        "integer": st.integers(),
        "number": NUMBERS,
        "boolean": st.booleans(),
    }
    if isinstance(kind, str) and kind in plain:
        return plain[kind] | JSON
    return JSON | st.just(grid(1, 1)) | st.just(jobspec())


@given(data=st.data())
@settings(
    max_examples=examples(400),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.generate],
)
def test_nothing_the_document_allows_or_forbids_is_a_fault_of_ours(api: Api, data: st.DataObject) -> None:
    every = operations(api.good("GET", "/openapi.json"))
    method, path, reported = every[data.draw(st.integers(0, len(every) - 1))]
    if not api.good("GET", "/v1/clusters", None, ADMIN)["clusters"]:
        api.register("oak")
    url = re.sub(r"{\w+}", lambda _: data.draw(PARTS), path)
    requests = [p["name"] for p in reported["parameters"] if p["in"] == "query"]
    query = {name: data.draw(ASKED) for name in requests if data.draw(st.booleans())}
    if "events" in path and method == "GET":
        query["follow"] = "false"
    headers = {"Authorization": f"Bearer {data.draw(st.sampled_from([ADMIN, REGISTRATION, 'rbt_x']))}"}
    for one in reported["parameters"]:
        if one["in"] == "header" and data.draw(st.booleans()):
            headers[one["name"]] = data.draw(st.sampled_from(["", '"1"', "*", "k", "-", "9" * 30, "ü", '"', "W/"]))
    body = None
    if "requestBody" in reported:
        [schema, *_] = [each["schema"] for each in reported["requestBody"]["content"].values()]
        body = json.dumps(data.draw(of(schema)))
    answer = api.app.test_client().open(
        url, method=method, query_string=query, headers=headers, data=body, content_type="application/json"
    )
    text = answer.get_data(as_text=True)
    drained = answer.status_code == 503 and answer.get_json()["code"] == "try-later"  # until reinstated
    assert answer.status_code < 500 or drained, (method, url, query, headers, body, text)
    assert str(answer.status_code) in reported["responses"] or answer.status_code in (308, 404, 405), (
        method,
        url,
        text,
    )
    if answer.status_code >= 400:
        assert answer.mimetype == "application/problem+json"
        jsonschema.validate(answer.get_json(), SCHEMAS["Problem"])


def test_every_status_that_a_fault_may_have_is_documented() -> None:
    assert set(STATUS.values()) <= set(MEANINGS)
