"""Forms and limits: a request that is wrong, too large or one too many says so."""

from __future__ import annotations

import threading

from rainbow.service import Limits
from rainbow.service.core import event_stream
from rainbow.service.core.limits import check_limits, limits_of
from tests.conftest import REGISTRATION, Api, Clock, grid, jobspec, open_service_at
from tests.scenarios.test_end_to_end import until

RECEIVE = "/v1/clusters/oak/receive"


def test_registration_says_where_its_form_is_wrong(api: Api) -> None:
    answer = api.problem(400, "request-invalid", "POST", "/v1/clusters", {"name": "a b", "graph": {}}, REGISTRATION)
    assert answer["pointer"] == "/name"
    answer = api.problem(400, "request-invalid", "POST", "/v1/clusters", {"name": "a"}, REGISTRATION)
    assert answer["pointer"] == "/graph"


def test_cluster_over_the_limits_is_413_and_names_the_limit(database: str, clock: Clock) -> None:
    service = open_service_at(database, clock, limits=Limits(vertices=20, edges=17))
    api = Api(service)
    answer = api.problem(
        413, "limit-exceeded", "POST", "/v1/clusters", {"name": "x", "graph": grid(7, 2)}, REGISTRATION
    )
    assert answer["limit"] == "vertices"
    answer = api.problem(
        413, "limit-exceeded", "POST", "/v1/clusters", {"name": "x", "graph": grid(6, 2)}, REGISTRATION
    )
    assert answer["limit"] == "edges"
    api.register("x", grid(5, 2))
    service.close()


def test_requestor_over_the_limit_of_live_jobs_is_429_until_one_ends(database: str, clock: Clock) -> None:
    service = open_service_at(database, clock, limits=Limits(live=2))
    api = Api(service)
    oak = api.register("oak")
    jobs = [api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"] for _ in range(2)]
    api.problem(429, "too-many", "POST", "/v1/jobs", jobspec(), oak.token)
    api.good("POST", "/v1/jobs", {"jobspec": jobspec(), "requestor": "bob"}, oak.token)
    api.good("DELETE", f"/v1/jobs/{jobs[0]}", None, oak.token)
    api.good("POST", "/v1/jobs", jobspec(), oak.token)
    service.close()


def test_more_agents_than_may_wait_are_told_to_come_again_and_others_are_served(database: str, clock: Clock) -> None:
    service = open_service_at(database, clock, limits=Limits(waiting=3, wait=20))
    api = Api(service)
    oak = api.register("oak")
    waiting = [
        threading.Thread(target=lambda k=k: oak.say("receive", f"a{k}", wait=20), daemon=True)  # type: ignore[misc]
        for k in range(3)
    ]
    for thread in waiting:
        thread.start()
    until(lambda: sum(event_stream._open.values()) == 3, seconds=10)
    api.problem(429, "too-many", "POST", RECEIVE, {"agent": "x", "wait": 1}, oak.secret)
    assert api.good("POST", RECEIVE, {"agent": "x"}, oak.secret)["tasks"] == []
    assert api.good("POST", "/v1/match", jobspec(), oak.token)["candidates"]
    service.let_go()
    for thread in waiting:
        thread.join(10)
        assert not thread.is_alive()
    service.close()


def test_rate_counts_for_a_credential_whatever_is_brought_beside_it(database: str, clock: Clock) -> None:
    service = open_service_at(database, clock, limits=Limits(rate=0.001, burst=3))
    api = Api(service)
    oak = api.register("oak")
    for k in range(3):
        api.good("GET", "/v1/jobs", None, oak.token, f"rbt_wrong{k}")
    api.problem(429, "too-many", "GET", "/v1/jobs", None, oak.token, "rbt_wrong3")
    api.problem(429, "too-many", "GET", "/v1/jobs", None, oak.token)
    service.close()


def test_limits_of_a_store_of_before_are_filled_in_as_they_are_when_they_are_set() -> None:
    assert limits_of({"max_retries": 3}) == check_limits({"max_retries": 3})
