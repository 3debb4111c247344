"""Who may do what: every verb with every kind of credential; a cluster outside one's tokens leaves no trace."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from rainbow.api.schemas import EXAMPLES
from tests.conftest import ADMIN, REGISTRATION, Api, Cluster, grid, jobspec

RESERVATIONS = "/v1/clusters/oak/reservations"
TABLE = yaml.load((Path(__file__).parents[2] / "cases" / "api" / "matrix.yaml").read_text(), yaml.CSafeLoader)
BODIES: dict[str, Any] = {
    "registration": {"name": "new", "graph": grid(1, 1)},
    "graph": grid(2, 2),
    "delta": {"changes": []},
    "subsystem": {
        "graph": {"nodes": {"s": {"metadata": {"type": "shm"}}}, "edges": [{"source": "n0", "target": "s"}]}
    },
    "state": {"cost": 1},
    "policy": {},
    "agent": {"agent": "a"},
    "accept": {"agent": "a", "tasks": []},
    "events": {"agent": "a", "events": []},
    "job": jobspec(),
    "batch": {"jobs": [{"jobspec": jobspec()}]},
    "change": {"name": "other"},
    "many": {"where": {"name": "none-such"}},
    "token": {"clusters": ["oak"]},
    "reservation": EXAMPLES["reservations.create"],
    "diff": EXAMPLES["jobs.policy_diff"],
    "check": {"policy": "load_based"},
    "call": {"words": []},
    "account": {"shares": 3},
    "qos": {"priority": 3},
}


def credentials(api: Api, oak: Cluster) -> dict[str, tuple[str, ...]]:
    elm = api.register("elm")
    made = api.good("POST", "/v1/tokens", {"clusters": ["oak"]}, oak.secret)
    api.good("DELETE", f"/v1/tokens/{made['id']}", None, oak.secret)
    zoe = api.good("POST", "/v1/tokens", {"clusters": ["oak"], "requestors": ["zoe"]}, oak.secret)
    return {
        "none": (),
        "wrong": ("rbt_wrong",),
        "revoked": (made["token"],),
        "other token": (elm.token,),
        "other secret": (elm.secret,),
        "requestor's token": (zoe["token"],),
        "token": (oak.token,),
        "token beside dead ones": ("rbt_wrong", oak.token, made["token"]),
        "secret": (oak.secret,),
        "registration": (REGISTRATION,),
        "admin": (ADMIN,),
    }


@pytest.mark.parametrize("row", TABLE["verbs"], ids=[row["verb"] for row in TABLE["verbs"]])
def test_every_verb_with_every_kind_of_credential(api: Api, oak: Cluster, row: dict[str, Any]) -> None:
    api.good("PUT", "/v1/clusters/oak/subsystems/io", BODIES["subsystem"], oak.secret)
    if "qos" in row["verb"]:
        api.good("PUT", "/v1/qos/urgent", {}, ADMIN)
    if "accounts" in row["verb"]:
        api.good("PUT", "/v1/accounts/bio", {}, ADMIN)
    if "reservations" in row["verb"]:
        api.good("PUT", "/v1/clusters/oak/scheduler", {"policy": "priority"}, oak.secret)
        oak.say("heartbeat")
    assert _answers(api, oak, row) == dict(zip(TABLE["credentials"], row["status"], strict=True))


OF_JOBS = [row for row in TABLE["verbs"] if "{job}" in row["verb"]]


@pytest.mark.parametrize("row", OF_JOBS, ids=[row["verb"] for row in OF_JOBS])
def test_every_verb_of_a_job_where_each_sees_ones_own_only(api: Api, oak: Cluster, row: dict[str, Any]) -> None:
    """The same but for the token of another requestor: to it the job does not exist."""
    api.good("PUT", "/v1/clusters/oak/scheduler", {"visibility": "own"}, oak.secret)
    expected = dict(zip(TABLE["credentials"], row["status"], strict=True))
    assert expected["requestor's token"] in (200, 403, 404)  # 404: of a job that has not started
    assert _answers(api, oak, row) == {**expected, "requestor's token": 404}


def _answers(api: Api, oak: Cluster, row: dict[str, Any]) -> dict[str, int]:
    kinds = credentials(api, oak)
    assert set(TABLE["credentials"]) == set(kinds)
    method, path = row["verb"].split()
    answers = {}
    for kind in TABLE["credentials"]:
        named = _prepared(api, oak, path) if "{" in path else {}
        url = path.format(**named)
        answers[kind] = api.call(method, url, BODIES.get(row.get("body", "")), *kinds[kind]).status_code
        if method == "DELETE" and answers[kind] in (200, 204) and "subsystems" in path:
            api.good("PUT", "/v1/clusters/oak/subsystems/io", BODIES["subsystem"], oak.secret)
        if "reservation" in named:  # there are only so many at once
            api.call("DELETE", f"{RESERVATIONS}/{named['reservation']}", None, ADMIN)
    return answers


def _prepared(api: Api, oak: Cluster, path: str) -> dict[str, str]:
    """Make what the path is about, anew for each credential."""
    if "{reservation}" in path:
        return {"reservation": api.good("POST", RESERVATIONS, BODIES["reservation"], oak.token)["id"]}
    job = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    return {"job": job, "token": api.good("POST", "/v1/tokens", {"clusters": ["oak"]}, ADMIN)["id"]}


EXAMPLES = {
    "name": "oak",
    "subsystem": "io",
    "worker": "n0",
    "account": "bio",
    "qos": "urgent",
    "command": "squeue",
} | {f"{kind}_id": f"{{{kind}}}" for kind in ("job", "token", "reservation")}


def test_the_table_has_every_verb(api: Api) -> None:
    there = set()
    for rule in api.app.url_map.iter_rules():
        if rule.endpoint.startswith("page."):  # sessions open these: tests/unit/page/test_page_sessions.py
            continue
        path = re.sub(r"<any\((\w+)[^>]*>", r"\1", re.sub(r"<\w+:(?=\w+>)", "<", rule.rule))
        for argument, example in EXAMPLES.items():
            path = path.replace(f"<{argument}>", example)
        there |= {f"{method} {path}" for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}}
    listed = [row["verb"].replace("?follow=false", "") for row in TABLE["verbs"]]
    assert sorted(listed) == sorted(there)


# ── a cluster outside one's tokens ──


def test_cluster_outside_ones_tokens_leaves_no_trace(api: Api, oak: Cluster) -> None:
    elm = api.register("elm")
    job = api.good("POST", "/v1/jobs", jobspec(), elm.token)["id"]
    elm.say("heartbeat")
    seen = [
        api.call("GET", "/v1/clusters", None, oak.token, oak.secret),
        api.call("GET", "/v1/jobs", None, oak.token),
        api.call("GET", "/v1/jobs?cluster=elm", None, oak.token),
        api.call("GET", "/v1/tokens", None, oak.secret),
        api.call("GET", "/v1/events?follow=false&after=0", None, oak.token, oak.secret),
        api.call("POST", "/v1/match", jobspec(9), oak.token),
        api.call("POST", "/v1/jobs", jobspec(), oak.token),
    ]
    for answer in seen:
        text = answer.get_data(as_text=True)
        assert answer.status_code < 300, text
        assert "elm" not in text
        assert job not in text


ELSEWHERE: list[tuple[str, str, Any]] = [
    ("POST", "/v1/tokens", {"clusters": ["{}"]}),
    ("POST", "/v1/jobs", {"jobspec": jobspec(), "clusters": [{"name": "{}"}]}),
    ("POST", "/v1/match", {"jobspec": jobspec(), "clusters": [{"name": "{}"}]}),
    ("POST", "/v1/jobs:batch", {"jobs": [{"jobspec": jobspec(), "clusters": [{"name": "{}"}]}]}),
    ("GET", "/v1/jobs?cluster={}", None),
    ("GET", "/v1/jobs?cursor={}", None),
    ("GET", "/v1/decisions?cluster={}", None),
]
NAMING = [
    (*re.sub(r"oak|{job}|{token}", "{}", row["verb"]).replace("{reservation}", "r1").split(), row.get("body", ""))
    for row in TABLE["verbs"]
]
EVERY = ELSEWHERE + [(method, path, BODIES.get(body)) for method, path, body in NAMING if "{}" in path]


def test_same_statements_and_answer_for_what_is_not_yours_and_what_is_nobodys(api: Api, oak: Cluster) -> None:
    elm = api.register("elm")
    job = api.good("POST", "/v1/jobs", jobspec(), elm.token)["id"]
    token = api.good("POST", "/v1/tokens", {"clusters": ["elm"]}, elm.secret)["id"]

    def asked(method: str, path: str, body: Any, name: str) -> tuple[list[str], int, dict[str, str], str]:
        said: list[str] = []

        def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            said.append(statement)

        sa.event.listen(api.service.store.engine, "before_cursor_execute", note)
        sent = json.loads(json.dumps(body).replace('"{}"', json.dumps(name)))
        answer = api.call(method, path.format(name), sent, oak.secret, oak.token)
        sa.event.remove(api.service.store.engine, "before_cursor_execute", note)
        headers = {key: value for key, value in answer.headers.items() if key != "X-Request-ID"}
        return said, answer.status_code, headers, answer.get_data(as_text=True).replace(name, "*")

    for method, path, body in EVERY:
        theirs = job if "/v1/jobs/" in path or "cursor" in path else token if "/v1/tokens/" in path else "elm"
        nobodys = theirs[::-1]  # as long, so that the lengths of what is said are the same
        asked(method, path, body, theirs)  # whatever is prepared once is prepared
        yours, none = asked(method, path, body, theirs), asked(method, path, body, nobodys)
        assert yours[0], f"{method} {path} did not ask the store"
        assert yours == none, f"{method} {path}"


def test_nothing_of_a_cluster_elsewhere_comes_with_time(api: Api, oak: Cluster) -> None:
    """What is listed, counted and told stays word for word the same, whatever happens at the other cluster."""

    def told() -> list[str]:
        jobs, events = "/v1/jobs?limit=1", "/v1/events?follow=false&after=0"
        paths = ["/v1/clusters", "/v1/clusters/oak", jobs, "/v1/tokens", events, "/v1/clusters/oak/workers"]
        return [api.call("GET", path, None, oak.token, oak.secret).get_data(as_text=True) for path in paths]

    api.good("POST", "/v1/jobs", jobspec(), oak.token)
    before = told()
    elm = api.register("elm", grid(3, 3))
    elm.say("heartbeat")
    for _ in range(3):
        api.good("POST", "/v1/jobs", jobspec(), elm.token)
    for offer in elm.take():
        elm.end(offer)
    api.good("PUT", "/v1/clusters/elm/graph", grid(4, 3), elm.secret)
    api.good("DELETE", "/v1/clusters/elm", None, elm.secret)
    assert told() == before
