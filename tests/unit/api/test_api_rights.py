"""Who may do what: without a credential, with one of somebody else, with a token that allows less."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

import pytest

from tests.conftest import ADMIN, Api, Cluster, grid, jobspec


def test_every_verb_without_a_credential_or_with_an_unknown_one_is_401(oak: Cluster) -> None:
    for rule in oak.api.app.url_map.iter_rules():
        if not rule.rule.startswith("/v1"):
            continue
        path = re.sub(r"<any\((\w+)[^>]*>", r"\1", rule.rule).replace("<name>", "oak")
        path = re.sub(r"<(\w+:)?\w+>", "x", path)
        body = jobspec() if path in ("/v1/jobs", "/v1/match") else {"agent": "a"}
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            sent = None if method in ("GET", "DELETE") else body
            for tokens in ((), ("rbt_wrong",), ("rbt_wrong", "rbs_wrong"), ("",)):
                answer = oak.api.problem(401, "unauthenticated", method, path, sent, *tokens)
                assert "rbt_wrong" not in json.dumps(answer)
                assert "`rainbow help credentials`" in answer["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("GET", "/graph", None),
        ("PUT", "/graph", grid(1, 1)),
        ("PUT", "/subsystems/io", {}),
        ("PUT", "/state", {"a": 1}),
        ("GET", "/workers", None),
        ("GET", "/scheduler", None),
        ("POST", "/receive", {"agent": "a"}),
        ("POST", "/events", {"agent": "a", "events": []}),
    ],
)
def test_cluster_of_somebody_else_is_as_if_it_were_not_there(api: Api, method: str, path: str, body: Any) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    mine = api.problem(404, "not-found", method, f"/v1/clusters/elm{path}", body, oak.secret)
    nobodys = api.problem(404, "not-found", method, f"/v1/clusters/xyz{path}", body, oak.secret)
    assert json.dumps(mine).replace("elm", "*") == json.dumps(nobodys).replace("xyz", "*")
    if path:
        api.problem(403, "forbidden", method, f"/v1/clusters/oak{path}", body, oak.token)
    assert [each["name"] for each in api.good("GET", "/v1/clusters", None, elm.token)["clusters"]] == ["elm"]


def test_submit_places_only_where_a_token_allows(api: Api) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    assert {api.good("POST", "/v1/jobs", jobspec(), oak.token)["cluster"] for _ in range(8)} == {"oak"}
    both = {api.good("POST", "/v1/jobs", jobspec(), oak.token, elm.token)["cluster"] for _ in range(24)}
    assert both == {"oak", "elm"}
    chosen = {"jobspec": jobspec(), "clusters": [{"name": "elm", "token": elm.token}]}
    assert api.good("POST", "/v1/jobs", chosen)["cluster"] == "elm"
    assert api.good("POST", "/v1/jobs", chosen, oak.token)["cluster"] == "elm"
    api.problem(403, "forbidden", "POST", "/v1/jobs", jobspec(), oak.secret)
    api.problem(403, "forbidden", "POST", "/v1/clusters", {"name": "x", "graph": grid(1, 1)}, oak.secret)
    other = {"jobspec": jobspec(), "clusters": [{"name": "elm"}]}
    api.problem(404, "not-found", "POST", "/v1/jobs", other, oak.token)


def test_dead_credential_takes_nothing_away_from_the_others(api: Api) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    api.good("DELETE", "/v1/clusters/elm", None, elm.secret)
    all_of_them = (elm.token, elm.secret, oak.token, oak.secret)
    assert api.good("POST", "/v1/jobs", jobspec(), *all_of_them)["cluster"] == "oak"
    assert [one["name"] for one in api.good("GET", "/v1/clusters", None, *all_of_them)["clusters"]] == ["oak"]
    in_body = {"jobspec": jobspec(), "clusters": [{"name": "oak", "token": oak.token}]}
    assert api.good("POST", "/v1/jobs", in_body, elm.token)["cluster"] == "oak"


def test_dead_token_of_a_body_is_no_way_to_the_cluster_it_is_brought_for(api: Api) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    for name in ("elm", "xyz"):
        request = {"jobspec": jobspec(), "clusters": [{"name": name, "token": "rbt_wrong"}]}
        api.problem(404, "not-found", "POST", "/v1/jobs", request, oak.token)
        api.problem(404, "not-found", "POST", "/v1/match", request, oak.token)
        [answer] = api.good("POST", "/v1/jobs:batch", {"jobs": [request]}, oak.token)["answers"]
        assert answer["status"] == 404
        api.problem(401, "unauthenticated", "POST", "/v1/jobs", request)
    request = {"jobspec": jobspec(), "clusters": [{"name": "elm", "token": "rbt_wrong"}]}
    assert api.good("POST", "/v1/jobs", request, elm.token)["cluster"] == "elm"


def test_key_shows_no_job_of_a_cluster_whose_token_has_ended_since(api: Api) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    ended = api.good("POST", "/v1/tokens", {"clusters": ["elm"]}, elm.secret)
    sent = ("POST", "/v1/jobs", jobspec(), oak.token, ended["token"])
    keys: dict[str, str] = {}
    while set(keys) != {"oak", "elm"}:
        key = f"k{len(keys)}{secrets.token_hex(4)}"
        keys[api.good(*sent, Idempotency_Key=key)["cluster"]] = key
    api.good("DELETE", f"/v1/tokens/{ended['id']}", None, elm.secret)
    assert api.call(*sent, Idempotency_Key=keys["oak"]).status_code == 200
    assert api.call(*sent, Idempotency_Key=keys["elm"]).status_code == 404


def test_job_of_somebody_else_is_as_if_it_were_not_there(api: Api) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    job = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    for method, path in (("GET", ""), ("GET", "/why"), ("DELETE", "")):
        api.problem(404, "not-found", method, f"/v1/jobs/{job}{path}", None, elm.token)
    assert api.good("GET", "/v1/jobs", None, elm.token)["jobs"] == []
    assert api.good("GET", f"/v1/jobs/{job}", None, ADMIN)["id"] == job


def test_token_that_names_requestors_sees_the_jobs_of_others_and_changes_its_own(oak: Cluster) -> None:
    api = oak.api

    def token(*names: str) -> str:
        minted = {"clusters": ["oak"], "requestors": list(names)}
        return str(api.good("POST", "/v1/tokens", minted, oak.secret)["token"])

    alice, bob = token("alice"), token("bob", "cy")
    job = api.good("POST", "/v1/jobs", {"jobspec": jobspec(), "requestor": "bob"}, oak.token)["id"]
    assert api.good("GET", f"/v1/jobs/{job}", None, alice)["requestor"] == "bob"
    changes = (("POST", ":suspend"), ("POST", ":resume"), ("DELETE", ""))
    for method, path in changes:
        answer = api.problem(403, "forbidden", method, f"/v1/jobs/{job}{path}", None, alice)
        assert answer["detail"] == "this token does not allow user bob"
    assert api.good("GET", f"/v1/jobs/{job}", None, alice)["state"] == "WAITING"
    for allowed in ((alice, bob), (oak.token,), (oak.secret,), (alice, oak.secret), (ADMIN,), (bob,)):
        job = api.good("POST", "/v1/jobs", {"jobspec": jobspec(), "requestor": "bob"}, oak.token)["id"]
        for method, path in changes:
            api.good(method, f"/v1/jobs/{job}{path}", None, *allowed)
    api.problem(403, "forbidden", "DELETE", f"/v1/jobs/{job}", None, alice)  # ended or not: it is not hers


def test_decision_is_shown_without_clusters_the_reader_may_not_see(api: Api) -> None:
    oak, elm = api.register("oak", grid(1, 1)), api.register("elm", grid(4, 1))
    job = api.good("POST", "/v1/jobs", jobspec(3), oak.token, elm.token)["id"]
    assert "oak" in json.dumps(api.good("GET", f"/v1/jobs/{job}/why", None, oak.token, elm.token))
    assert "oak" not in json.dumps(api.good("GET", f"/v1/jobs/{job}/why", None, elm.token))
