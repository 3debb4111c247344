"""A query parameter that an operation does not read is refused: an ignored filter shows too much."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rainbow.api.wire import QUERIES
from tests.conftest import ADMIN, Api


def test_every_operation_refuses_a_query_parameter_it_does_not_read(api: Api) -> None:
    api.register("oak")
    app = api.app
    gets = [rule for rule in app.url_map.iter_rules() if "GET" in (rule.methods or ())]
    gets = [rule for rule in gets if not rule.endpoint.startswith("page.")]
    assert len(gets) > 20
    for rule in gets:
        path = rule.rule.replace("<name>", "oak").replace("<id:name>", "oak").replace("<id:account>", "root")
        path = path.replace("<id:job_id>", "none").replace("<subsystem>", "io").replace("<worker:worker>", "n0")
        api.problem(400, "request-invalid", "GET", f"{path}?colour=red", None, ADMIN)


@pytest.mark.parametrize("endpoint", sorted(QUERIES))
def test_queries_are_those_of_operations_there_are(api: Api, endpoint: str) -> None:
    assert endpoint in api.app.view_functions


def test_misspelt_parameter_names_the_one_that_is_meant(api: Api) -> None:
    answer = api.problem(400, "request-invalid", "GET", "/v1/jobs?requester=ann", None, ADMIN)
    assert answer["detail"] == "unknown query parameter 'requester'; did you mean requestor?"
    assert answer["pointer"] == "/requester"


def test_a_worker_is_shown_by_get_and_moved_by_post(api: Api) -> None:
    api.register("oak")
    answer = api.call("OPTIONS", "/v1/clusters/oak/workers/n0:drain", None, ADMIN)
    assert "GET" not in answer.headers["Allow"]


def test_an_account_is_named_as_the_document_says(api: Api) -> None:
    answer = api.problem(400, "request-invalid", "PUT", "/v1/accounts/%C2%84", {}, ADMIN)
    assert answer["detail"].startswith("an account is named by letters")


def test_the_document_says_how_many_a_page_may_have(api: Api) -> None:
    settings = api.service.settings
    api.service.settings = replace(settings, limits=replace(settings.limits, listed=50))
    operations = api.good("GET", "/openapi.json")["paths"]["/v1/jobs"]["get"]["parameters"]
    assert [one["schema"]["maximum"] for one in operations if one["name"] == "limit"] == [50]
    answer = api.problem(400, "request-invalid", "GET", "/v1/jobs?limit=51", None, ADMIN)
    assert answer["detail"] == "limit must be between 1 and 50"
