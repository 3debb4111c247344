"""What whoever owns a cluster may do: tokens, workers, deltas, draining, batches, events, the ledger."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.service import Limits, Service, telling
from rainbow.service.clusters.draining import finish
from rainbow.service.measuring import METRICS
from rainbow.service.steps.loop import step_safely
from rainbow.service.steps.stepping import step
from rainbow.store import clusters, events
from tests.conftest import ADMIN, REGISTRATION, Api, Clock, Cluster, grid, jobspec, open_service_at
from tests.test_end_to_end import until

RECEIVE = "/v1/clusters/oak/receive"
CASES = Path(__file__).parent / "cases" / "api"
DELTAS = yaml.safe_load((CASES / "deltas.yaml").read_text())


@pytest.fixture
def oak(api: Api) -> Cluster:
    return api.register("oak")


# ── tokens ──


def test_minted_token_names_clusters_requestors_and_an_end(api: Api, oak: Cluster, clock: Clock) -> None:
    elm = api.register("elm")
    body = {"clusters": ["oak", "elm"], "requestors": ["ann", "bob"], "expires_at": "1970-01-12T14:46:40Z"}
    api.problem(404, "not-found", "POST", "/v1/tokens", body, oak.secret)
    made = api.good("POST", "/v1/tokens", body, oak.secret, elm.secret)
    assert made["clusters"] == ["elm", "oak"]
    placed = {api.good("POST", "/v1/jobs", jobspec(), made["token"])["cluster"] for _ in range(16)}
    assert placed == {"oak", "elm"}
    asked = {"jobspec": jobspec(), "requestor": "cy"}
    api.problem(403, "forbidden", "POST", "/v1/jobs", asked, made["token"])
    job = api.good("POST", "/v1/jobs", {**asked, "requestor": "bob"}, made["token"])["id"]
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


# ── graphs by deltas ──


@pytest.mark.parametrize("case", DELTAS, ids=[case["name"] for case in DELTAS])
def test_delta_is_applied_whole_or_not_at_all(oak: Cluster, case: dict[str, Any]) -> None:
    path = "/v1/clusters/oak/graph"
    before = oak.api.good("GET", path, None, oak.secret)
    if "code" in case:
        told = oak.api.problem(case["status"], case["code"], "PATCH", path, {"changes": case["changes"]}, oak.secret)
        assert told.get("pointer", "").startswith(case.get("pointer", ""))
        assert oak.api.good("GET", path, None, oak.secret) == before
        return
    answer = oak.api.call("PATCH", path, {"changes": case["changes"]}, oak.secret, If_Match='"1"')
    assert (answer.status_code, answer.headers["ETag"]) == (200, '"2"'), answer.get_json()
    assert {key: answer.get_json()["totals"].get(key, 0) for key in case["totals"]} == case["totals"]
    late = oak.api.call("PATCH", path, {"changes": case["changes"]}, oak.secret, If_Match='"1"')
    assert late.status_code == 412


def test_graph_of_any_form_comes_back_as_it_was_given_and_can_be_changed(api: Api) -> None:
    document = {"graph": {"nodes": [{"id": "c", "metadata": {"type": "cluster"}}], "edges": []}}
    ash = api.register("ash", document)
    assert api.good("GET", "/v1/clusters/ash/graph", None, ash.secret) == document
    new = {"op": "add", "nodes": {"n": {"metadata": {"type": "node"}}}, "edges": [{"source": "c", "target": "n"}]}
    api.good("PATCH", "/v1/clusters/ash/graph", {"changes": [new]}, ash.secret)
    changed = api.good("GET", "/v1/clusters/ash/graph", None, ash.secret)
    assert [node["id"] for node in changed["graph"]["nodes"]] == ["c", "n"]


# ── draining ──


def test_drained_cluster_gives_its_waiting_jobs_to_others_and_goes_when_the_running_end(api: Api) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    oak.say("heartbeat")
    api.good("POST", "/v1/jobs", jobspec(), oak.token)
    [running] = oak.take()
    both = {"jobspec": jobspec(), "clusters": [{"name": "oak"}, {"name": "elm"}]}
    jobs = [api.good("POST", "/v1/jobs", both, oak.token, elm.token) for _ in range(6)]
    alone = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    api.problem(409, "conflict", "DELETE", "/v1/clusters/oak", None, oak.secret)
    told = api.call("DELETE", "/v1/clusters/oak?drain=true", None, oak.secret)
    assert told.status_code == 202
    assert told.get_json()["running"] == [running["job"]]
    assert told.get_json()["placed"] == [job["id"] for job in jobs if job["cluster"] == "oak"]
    assert told.get_json()["refused"] == [alone]
    shown = api.good("GET", f"/v1/jobs/{alone}", None, oak.token)
    assert (shown["state"], "drained" in shown["tasks"][0]["detail"]) == ("CANCELED", True)
    assert {api.good("GET", f"/v1/jobs/{job['id']}", None, elm.token)["cluster"] for job in jobs} == {"elm"}
    api.problem(403, "forbidden", "POST", "/v1/jobs", jobspec(), oak.token)
    oak.end(running)
    with api.service.store.read() as connection:
        record = clusters.find(connection, "oak")
    assert record is not None
    finish(api.service, record)
    assert [each["name"] for each in api.good("GET", "/v1/clusters", None, ADMIN)["clusters"]] == ["elm"]


def test_graph_without_a_worker_in_use_is_taken_with_drain(oak: Cluster) -> None:
    oak.api.good("POST", "/v1/jobs", jobspec(2), oak.token)
    oak.say("heartbeat")
    [offer] = oak.take()
    oak.api.good("PUT", "/v1/clusters/oak/graph?drain=true", grid(1, 2), oak.secret)
    assert oak.end(offer)["recorded"] == [offer["id"]]


# ── workers ──


def test_worker_offline_takes_no_tasks_until_it_is_reinstated(oak: Cluster, service: Service) -> None:
    path = "/v1/clusters/oak/workers/n0"
    oak.say("heartbeat")
    for verb, state in (
        ("offline", "OFFLINE"),
        ("offline", "OFFLINE"),
        ("reinstate", "READY"),
        ("drain", "DRAINING"),
    ):
        assert oak.api.good("POST", f"{path}:{verb}", None, oak.secret)["state"] == state
    oak.api.good("POST", "/v1/clusters/oak/workers/n1:offline", None, oak.secret)
    oak.api.good("POST", "/v1/jobs", jobspec(), oak.token)
    assert not step(service, "oak")
    oak.api.good("POST", "/v1/clusters/oak/workers/n1:reinstate", None, oak.secret)
    assert step(service, "oak")
    oak.api.problem(404, "not-found", "POST", "/v1/clusters/oak/workers/n9:offline", None, oak.secret)
    oak.api.problem(404, "not-found", "POST", f"{path}:explode", None, oak.secret)


# ── batches ──


def test_batch_answers_each_job_by_itself_and_once(oak: Cluster) -> None:
    many = [{"jobspec": spec} for spec in (jobspec(), jobspec(9), jobspec(), {"version": 1})]
    answer = oak.api.good("POST", "/v1/jobs:batch", {"jobs": many}, oak.token, Idempotency_Key="k")["answers"]
    assert [each["status"] for each in answer] == [201, 422, 201, 422]
    assert answer[1]["refusals"][0]["reason"] == "total-too-small"
    again = oak.api.good("POST", "/v1/jobs:batch", {"jobs": many}, oak.token, Idempotency_Key="k")["answers"]
    assert [each.get("id") for each in again] == [each.get("id") for each in answer]
    assert [each["status"] for each in again] == [200, 422, 200, 422]
    assert len(oak.api.good("GET", "/v1/jobs", None, oak.token)["jobs"]) == 2


# ── events ──


def told(api: Api, *tokens: str, after: int = 0) -> list[dict[str, Any]]:
    text = api.call("GET", f"/v1/events?follow=false&after={after}", None, *tokens).get_data(as_text=True)
    found = []
    for block in text.strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        found += [{"id": int(lines["id"]), "kind": lines["event"], **json.loads(lines["data"])}] if lines else []
    return found


def test_events_tell_what_happened_in_order_and_are_resumed(api: Api) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    oak.say("heartbeat")
    job = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    [offer] = oak.take()
    oak.end(offer)
    seen = told(api, oak.token)
    assert [(each["kind"], each.get("state")) for each in seen] == [
        ("cluster", "registered"),
        ("job", "WAITING"),
        ("task", "ASSIGNED"),
        ("task", "ACCEPTED"),
        ("task", "COMPLETED"),
        ("job", "COMPLETED"),
    ]
    assert {each["job"] for each in seen if each["kind"] in ("job", "task")} == {job}
    ended = {"job": job, "task": offer["id"], "state": "COMPLETED", "attempt": 1, "exit_code": 0, "cluster": "oak"}
    assert {key: seen[4][key] for key in ended} == ended
    assert told(api, oak.token, after=seen[1]["id"]) == seen[2:]
    assert [each["cluster"] for each in told(api, elm.token)] == ["elm"]
    assert len(told(api, ADMIN)) == len(seen) + 1
    api.problem(400, "request-invalid", "GET", "/v1/events?after=x", None, oak.token)


@pytest.mark.parametrize("how", ["started", "canceled", "lost"])
def test_events_tell_of_every_state_of_a_task(api: Api, clock: Clock, how: str) -> None:
    oak = api.register("oak")
    oak.say("heartbeat")
    job = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    [offer] = oak.take()
    oak.say("events", events=[{"task": offer["id"], "attempt": 1, "event": "started"}])
    if how == "canceled":
        api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
        oak.end(offer, result="stopped", exit_code=None)
    if how == "lost":
        clock.now += 10_000
        step(api.service, "oak")
    rest = {"started": [], "canceled": ["STOPPING", "CANCELED"], "lost": ["WAITING"]}[how]
    states = [each["state"] for each in told(api, oak.token) if each["kind"] == "task"]
    assert states == ["ASSIGNED", "ACCEPTED", "RUNNING", *rest]


def test_events_that_there_are_are_told_to_the_last(api: Api) -> None:
    oak = api.register("oak")
    with api.service.store.write() as connection:
        cluster = api.service.catalogue["oak"].id
        events.add_all(connection, 0.0, cluster, "job", [{"cluster": "oak", "n": n} for n in range(1_200)])
    assert [each["n"] for each in told(api, oak.token) if "n" in each] == list(range(1_200))


def test_stream_begins_at_last_event_id_and_is_one_of_few(oak: Cluster) -> None:
    def opened() -> Any:
        headers = {"Authorization": f"Bearer {oak.token}", "Last-Event-ID": "0"}
        return oak.api.app.test_client().get("/v1/events", headers=headers)

    streams = [opened() for _ in range(4)]
    parts = iter(streams[0].response)
    assert next(parts).startswith(b":")
    assert b"registered" in next(parts)
    refused = opened()
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "2")
    for stream in streams:
        stream.close()
    last = opened()
    assert last.status_code == 200
    last.close()


# ── the ledger ──


def test_placement_is_decided_again_bit_for_bit_after_everything_has_changed(api: Api) -> None:
    owned = [api.register(name, grid(2, 2), state={"nodes_free": k}) for k, name in enumerate(("oak", "elm", "ash"))]
    options = {"priorities": [{"priority": 1, "steps": [{"filter": "nodes_free > 0"}, {"select": "random"}]}]}
    body = {"jobspec": jobspec(), "selector": {"name": "constraint", "options": options}}
    tokens = [each.token for each in owned]
    jobs = [api.good("POST", "/v1/jobs", body, *tokens) for _ in range(3)]
    jobs += [api.good("POST", "/v1/jobs", jobspec(), *tokens) for _ in range(3)]
    for each in owned:
        api.good("PUT", f"/v1/clusters/{each.name}/graph", grid(4, 1), each.secret)
        api.good("PUT", f"/v1/clusters/{each.name}/state", {"nodes_free": 9}, each.secret)
    for job in jobs:
        found = api.good("GET", f"/v1/jobs/{job['id']}/replay", None, *tokens)
        assert found["equal"], found
        assert found["replayed"] == job["decision"]["selection"]
        assert found["graphs_changed_since"] == sorted(each.name for each in owned)
    one = api.good("GET", f"/v1/jobs/{jobs[0]['id']}/replay", None, ADMIN)
    assert set(one["digests"]) == {"graphs", "states", "policy"}


# ── metrics, pace, the API's own document ──


def test_no_metric_stays_empty(oak: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    oak.say("heartbeat")
    oak.api.good("POST", "/v1/jobs", jobspec(), oak.token)
    step_safely(oak.api.service, "oak")
    monkeypatch.setattr("rainbow.service.steps.stepping.check_plan", lambda *_: 1 / 0)
    oak.api.good("POST", "/v1/jobs", jobspec(), oak.token)
    step_safely(oak.api.service, "oak")
    text = oak.api.call("GET", "/metrics", None, ADMIN).get_data(as_text=True)
    assert set(METRICS) <= set(re.findall(r"^# TYPE (\w+)", text, re.M))
    for kind in ("read", "write", "commit"):
        assert float(re.search(rf'rainbow_store_seconds_count{{kind="{kind}"}} (\S+)', text)[1]) > 0  # type: ignore[index]


def test_metrics_are_the_administrators(oak: Cluster) -> None:
    oak.api.good("POST", "/v1/jobs", jobspec(), oak.token)
    oak.api.problem(403, "forbidden", "GET", "/metrics", None, oak.secret)
    oak.api.problem(401, "unauthenticated", "GET", "/metrics")
    text = oak.api.call("GET", "/metrics", None, ADMIN).get_data(as_text=True)
    assert 'rainbow_jobs{cluster="oak",state="WAITING"} 1' in text
    assert 'rainbow_workers{cluster="oak",state="NEW"} 2' in text
    assert "rainbow_clusters 1" in text
    assert 'rainbow_tasks_waiting{cluster="oak"} 1' in text
    assert 'rainbow_phase_seconds_bucket{phase="match",le="+Inf"}' in text


def test_registration_says_where_its_form_is_wrong(api: Api) -> None:
    told = api.problem(400, "request-invalid", "POST", "/v1/clusters", {"name": "a b", "graph": {}}, REGISTRATION)
    assert told["pointer"] == "/name"
    told = api.problem(400, "request-invalid", "POST", "/v1/clusters", {"name": "a"}, REGISTRATION)
    assert told["pointer"] == "/graph"


def test_cluster_over_the_limits_is_413_and_names_the_limit(database: str, clock: Clock) -> None:
    service = open_service_at(database, clock, limits=Limits(vertices=20, edges=17))
    api = Api(service)
    told = api.problem(
        413, "limit-exceeded", "POST", "/v1/clusters", {"name": "x", "graph": grid(7, 2)}, REGISTRATION
    )
    assert told["limit"] == "vertices"
    told = api.problem(
        413, "limit-exceeded", "POST", "/v1/clusters", {"name": "x", "graph": grid(6, 2)}, REGISTRATION
    )
    assert told["limit"] == "edges"
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
    until(lambda: sum(telling._open.values()) == 3, seconds=10)
    api.problem(429, "too-many", "POST", RECEIVE, {"agent": "x", "wait": 1}, oak.secret)
    assert api.good("POST", RECEIVE, {"agent": "x"}, oak.secret)["tasks"] == []
    assert api.good("POST", "/v1/match", jobspec(), oak.token)["candidates"]
    service.let_go()
    for thread in waiting:
        thread.join(10)
        assert not thread.is_alive()
    service.close()
