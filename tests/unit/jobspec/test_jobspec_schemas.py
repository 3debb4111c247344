"""The published JSON Schemas admit whatever is read, and what RFC 25's own schema admits is read."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rainbow.errors import InputError
from rainbow.jobspec import jobspec_of, parse_jobspec
from rainbow.jobspec.validation import schema
from tests.conftest import examples
from tests.service.core.test_inputs_walk import amounts
from tests.support.asking import shared_folder
from tests.support.jobspecs import DOCUMENTS, rfc25, spoilt
from tests.unit.jobspec.test_jobspec_rfc14 import COUNTS

DIALECTS = ["rfc14", "founding", "nextgen"]
OURS = {dialect: jsonschema.Draft202012Validator(schema(dialect)) for dialect in DIALECTS}
QUICK = settings(max_examples=examples(250), deadline=None, suppress_health_check=list(HealthCheck))
NUMBERS = st.integers(1, 10**6)


@pytest.fixture(scope="module")
def theirs():
    text = (shared_folder() / "inputs" / "rfc" / "spec_25" / "schema.json").read_text()
    return jsonschema.Draft7Validator(json.loads(text))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_schema_is_a_schema_and_has_the_counts_of_all(dialect: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(dialect))
    assert schema(dialect)["$defs"]["count"] == schema("rfc14")["$defs"]["count"]


@QUICK
@given(st.one_of(spoilt(), st.sampled_from(DOCUMENTS)))
def test_what_is_read_is_what_the_schema_admits(document: Any) -> None:
    try:
        request = parse_jobspec(document)
    except (InputError, AssertionError):
        return
    faults = [fault.message for fault in OURS[request.dialect].iter_errors(document)]
    assert faults == []


@pytest.mark.parametrize("case", COUNTS["read"], ids=lambda case: str(case["count"]))
def test_count_that_is_read_is_admitted(case: dict[str, Any]) -> None:
    assert OURS["nextgen"].is_valid({"resources": {"a": {"type": "core", "count": case["count"]}}})


# what a schema cannot say: one number must not be below another, or must lead to a larger one
MEANING = (
    "between 1 and",
    "below its min",
    "does not grow",
    "numbers in a count list must ascend",
    "lists",
    "must be an integer",
)


@pytest.mark.parametrize("case", COUNTS["refused"], ids=lambda case: str(case["count"]))
def test_count_that_is_refused_for_its_form_is_not_admitted(case: dict[str, Any]) -> None:
    admitted = OURS["nextgen"].is_valid({"resources": {"a": {"type": "core", "count": case["count"]}}})
    assert not admitted or case["says"].startswith(MEANING)


@QUICK
@given(rfc25())
def test_rfc_25_jobspec_is_read(theirs: Any, document: dict[str, Any]) -> None:
    assert theirs.is_valid(document)
    request = parse_jobspec(document)
    assert OURS["rfc14"].is_valid(document)
    assert request.tasks[0].slots == (document["tasks"][0]["slot"],)


@QUICK
@given(st.integers(0, 99), NUMBERS, st.integers(0, 9), st.floats(0, 1e9), st.sampled_from(["", "mine"]))
def test_jobspec_of_a_command_is_one_of_rfc_25(
    theirs: Any, nodes: int, cores: int, gpus: int, seconds: float, name: str
) -> None:
    document = jobspec_of(["echo", "a b"], nodes=nodes, cores=cores, gpus=gpus, duration=seconds, name=name)
    assert theirs.is_valid(document)
    request = parse_jobspec(document)
    times = max(nodes, 1)
    requirements = {"node": nodes, "slot": times, "core": times * cores, "gpu": times * gpus}
    assert amounts(request.resources) == {kind: amount for kind, amount in requirements.items() if amount}
    assert (request.duration, request.name, request.tasks[0].command) == (seconds, name, ("echo", "a b"))
