"""What each fault answers: a problem that tells nothing of our insides, and nothing is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REGISTRATION, Api, Cluster, jobspec, open_service_at
from tests.support.stored import stored

CASES = yaml.load((Path(__file__).parents[2] / "cases" / "api" / "refused.yaml").read_text(), yaml.CSafeLoader)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_hostile_request_is_a_problem_and_stores_nothing(api: Api, oak: Cluster, case: dict[str, Any]) -> None:
    before = stored(api)
    body = case.get("text", case.get("json"))
    if "repeat" in case:
        body = case["repeat"] * case["times"]
    if "bytes" in case:
        body = bytes(range(256)) * case["bytes"]
    token = {"token": oak.token, "secret": oak.secret, "registration": REGISTRATION}[case["by"]]
    answer = api.problem(case["status"], case["code"], case["method"], case["path"], body, token)
    assert case.get("detail", answer["detail"]) == answer["detail"]
    for key in case.get("says", []):
        assert answer.get(key) is not None, key
    assert stored(api) == before
    assert api.good("POST", "/v1/match", jobspec(), oak.token)["candidates"]


def test_body_over_the_limit_is_413_before_it_is_read(database: str, clock: Any) -> None:
    from rainbow.service import Limits

    service = open_service_at(database, clock, limits=Limits(body=1000))
    api = Api(service)
    oak = api.register("oak")
    api.problem(413, "limit-exceeded", "POST", "/v1/jobs", "x" * 1001, oak.token)
    service.close()


def test_fault_nobody_expected_is_500_without_a_traceback(oak: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret thought")

    monkeypatch.setattr("rainbow.service.queries.jobs.listing", broken)
    answer = oak.api.problem(500, "error", "GET", "/v1/jobs", None, oak.token)
    assert "secret thought" not in json.dumps(answer)


def test_unknown_path_and_method_are_problems(api: Api) -> None:
    api.problem(404, "not-found", "GET", "/nothing/here")
    api.problem(405, "method-not-allowed", "PATCH", "/v1/jobs")


def test_health_needs_no_credential(api: Api) -> None:
    for path in ("/livez", "/readyz", "/"):
        assert api.call("GET", path).status_code == 200
