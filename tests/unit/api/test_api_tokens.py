"""Tokens and secrets: minted, rotated, revoked, and never told again."""

from __future__ import annotations

import json

from tests.conftest import ADMIN, Api, Clock, Cluster, jobspec


def test_minted_token_names_clusters_requestors_and_an_end(api: Api, oak: Cluster, clock: Clock) -> None:
    elm = api.register("elm")
    body = {"clusters": ["oak", "elm"], "requestors": ["ann", "bob"], "expires_at": "1970-01-12T14:46:40Z"}
    api.problem(404, "not-found", "POST", "/v1/tokens", body, oak.secret)
    made = api.good("POST", "/v1/tokens", body, oak.secret, elm.secret)
    assert made["clusters"] == ["elm", "oak"]
    placed = {api.good("POST", "/v1/jobs", jobspec(), made["token"])["cluster"] for _ in range(16)}
    assert placed == {"oak", "elm"}
    request = {"jobspec": jobspec(), "requestor": "cy"}
    api.problem(403, "forbidden", "POST", "/v1/jobs", request, made["token"])
    job = api.good("POST", "/v1/jobs", {**request, "requestor": "bob"}, made["token"])["id"]
    assert api.good("GET", f"/v1/jobs/{job}", None, made["token"])["requestor"] == "bob"
    clock.now += 3_601
    api.problem(401, "unauthenticated", "GET", f"/v1/jobs/{job}", None, made["token"])


def test_token_is_rotated_and_revoked_and_its_value_never_told_again(oak: Cluster) -> None:
    api = oak.api
    made = api.good("POST", "/v1/tokens", {"clusters": ["oak"], "name": "ci"}, oak.secret)
    again = api.good("POST", f"/v1/tokens/{made['id']}:rotate", None, oak.secret)
    api.problem(401, "unauthenticated", "GET", "/v1/jobs", None, made["token"])
    api.good("GET", "/v1/jobs", None, again["token"])
    listed = api.good("GET", "/v1/tokens", None, oak.secret)["tokens"]
    assert sorted(each["kind"] for each in listed) == ["secret", "token", "token"]
    assert again["token"] not in json.dumps(listed)
    api.good("DELETE", f"/v1/tokens/{made['id']}", None, oak.secret)
    api.problem(401, "unauthenticated", "GET", "/v1/jobs", None, again["token"])
    api.problem(409, "conflict", "POST", f"/v1/tokens/{made['id']}:rotate", None, oak.secret)


def test_monitor_token_reads_the_metrics_and_nothing_else(oak: Cluster) -> None:
    api = oak.api
    api.problem(403, "forbidden", "POST", "/v1/tokens", {"monitor": True}, oak.secret)
    api.problem(400, "request-invalid", "POST", "/v1/tokens", {}, oak.secret)
    api.problem(400, "request-invalid", "POST", "/v1/tokens", {"monitor": True, "clusters": ["oak"]}, ADMIN)
    made = api.good("POST", "/v1/tokens", {"monitor": True, "name": "prometheus"}, ADMIN)
    assert "rainbow_jobs" in api.call("GET", "/metrics", None, made["token"]).get_data(as_text=True)
    assert api.good("GET", "/v1/jobs", None, made["token"])["jobs"] == []
    api.problem(404, "not-found", "GET", "/v1/clusters/oak", None, made["token"])
    api.problem(403, "forbidden", "GET", "/v1/tokens", None, made["token"])
    api.register("gone")
    api.good("DELETE", "/v1/clusters/gone", None, ADMIN)  # ends credentials that are good for no cluster
    again = api.good("POST", f"/v1/tokens/{made['id']}:rotate", None, ADMIN)
    api.problem(401, "unauthenticated", "GET", "/metrics", None, made["token"])
    api.good("DELETE", f"/v1/tokens/{made['id']}", None, ADMIN)
    api.problem(401, "unauthenticated", "GET", "/metrics", None, again["token"])


def test_secret_is_rotated_and_cannot_be_revoked(oak: Cluster) -> None:
    api = oak.api
    [secret] = [
        each["id"] for each in api.good("GET", "/v1/tokens", None, oak.secret)["tokens"] if each["kind"] == "secret"
    ]
    api.problem(409, "conflict", "DELETE", f"/v1/tokens/{secret}", None, oak.secret)
    new = api.good("POST", f"/v1/tokens/{secret}:rotate", None, oak.secret)["secret"]
    api.problem(401, "unauthenticated", "GET", "/v1/clusters/oak/graph", None, oak.secret)
    api.good("GET", "/v1/clusters/oak/graph", None, new)


def test_token_of_somebody_else_is_as_if_it_were_not_there(api: Api, oak: Cluster) -> None:
    elm = api.register("elm")
    made = api.good("POST", "/v1/tokens", {"clusters": ["elm"]}, elm.secret)["id"]
    both = api.good("POST", "/v1/tokens", {"clusters": ["oak", "elm"]}, elm.secret, oak.secret)
    for token in (made, both["id"], "nobodys"):
        api.problem(404, "not-found", "DELETE", f"/v1/tokens/{token}", None, oak.secret)
        api.problem(404, "not-found", "POST", f"/v1/tokens/{token}:rotate", None, oak.secret)
    listed = api.good("GET", "/v1/tokens", None, oak.secret)["tokens"]
    assert {name for each in listed for name in each["clusters"]} == {"oak"}
    api.problem(403, "forbidden", "GET", "/v1/tokens", None, oak.token)
    assert len(api.good("GET", "/v1/tokens", None, ADMIN)["tokens"]) == 6
