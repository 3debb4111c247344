"""The API as a client sees it: wire forms, statuses, who may do what, and hostile input."""

import json
import os
import threading

import pytest

from tests.conftest import ADMIN, REGISTRATION
from tests.support.asking import api, jobspec

__all__ = ["api"]  # fixtures

NODES = "cluster(node*3(core*4))"


@pytest.fixture
def keebler(api):
    return api.register("keebler", NODES, state={"nodes_free": 3})


def submit(api, token, text=None, **more):
    return api("POST", "/v1/jobs", token, data=text or jobspec(), content_type="application/yaml", **more)


def test_registration_tells_credentials_and_totals(api, keebler):
    assert keebler["name"] == "keebler"
    assert keebler["revision"] == 1
    assert keebler["totals"] == {"cluster": 1, "core": 12, "node": 3}
    assert keebler["token"].startswith("rbt_")
    assert keebler["secret"].startswith("rbs_")


def test_name_taken_is_a_conflict(api, keebler):
    answer = api("POST", "/v1/clusters", REGISTRATION, json={"name": "keebler", "graph": {}})
    assert answer.status_code in (409, 422)
    assert api("GET", "/v1/clusters/keebler", keebler["token"]).json["revision"] == 1


def test_submit_answers_with_cluster_and_decision(api, keebler):
    answer = submit(api, keebler["token"])
    assert answer.status_code == 201
    assert answer.json["cluster"] == "keebler"
    assert answer.json["state"] == "WAITING"
    assert answer.json["decision"]["candidates"][0]["fits"] == 12
    shown = api("GET", f"/v1/jobs/{answer.json['id']}", keebler["token"]).json
    assert shown["tasks"][0]["state"] == "WAITING"


def test_unsatisfiable_job_is_refused_with_reasons_and_not_stored(api, keebler):
    answer = submit(api, keebler["token"], jobspec(cores=5))
    assert answer.status_code == 422
    assert answer.mimetype == "application/problem+json"
    assert answer.json["refusals"][0]["reason"] == "vertex-too-small"
    assert api("GET", "/v1/jobs", keebler["token"]).json["jobs"] == []


def test_match_of_an_unsatisfiable_job_is_an_answer(api, keebler):
    answer = api("POST", "/v1/match", keebler["token"], data=jobspec(cores=5))
    assert answer.status_code == 200
    assert answer.json["candidates"] == []
    assert answer.json["refusals"][0]["cluster"] == "keebler"


def test_same_idempotency_key_is_one_job(api, keebler):
    first = submit(api, keebler["token"], headers={"Idempotency-Key": "k"})
    second = submit(api, keebler["token"], headers={"Idempotency-Key": "k"})
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["Idempotent-Replayed"] == "true"
    assert first.json["id"] == second.json["id"]
    assert len(api("GET", "/v1/jobs", keebler["token"]).json["jobs"]) == 1


def test_envelope_brings_tokens_and_its_own_selector(api, keebler):
    other = api.register("other", NODES, state={"nodes_free": 9, "cost_per_node_hour": 1})
    priorities = [{"priority": 1, "steps": [{"sort_descending": "nodes_free"}, {"select": "first"}]}]
    body = {
        "jobspec": json.loads(jobspec()),
        "clusters": [{"name": "keebler", "token": keebler["token"]}, {"name": "other", "token": other["token"]}],
        "selector": {"name": "constraint", "options": {"priorities": priorities}},
    }
    answer = api("POST", "/v1/jobs", json=body)
    assert answer.status_code == 201, answer.json
    assert answer.json["cluster"] == "other"


def test_booking_keeps_concurrent_submits_within_nodes_free(api):
    token = api.register("small", "cluster(node*20(core*4))", state={"nodes_free": 20})["token"]
    selector = {
        "name": "constraint",
        "options": {"priorities": [{"priority": 1, "steps": [{"filter": "nodes_free > 0"}]}]},
    }
    answers = []

    def ask(nodes):
        resources = {"w": {"type": "node", "replicas": nodes, "with": [{"type": "core"}]}}
        spec = {"resources": resources, "tasks": [{"command": ["true"], "resources": "w"}]}
        answers.append(
            (nodes, api("POST", "/v1/jobs", token, json={"jobspec": spec, "selector": selector}).status_code)
        )

    threads = [threading.Thread(target=ask, args=(1 + k % 3,)) for k in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for _, status in answers} == {201, 409}
    assert sum(nodes for nodes, status in answers if status == 201) in (18, 19, 20)


# ── who may do what ──


def test_no_and_wrong_credentials_are_401(api, keebler):
    for token in (None, "rbt_nobody"):
        answer = submit(api, token)
        assert answer.status_code == 401
        assert answer.json["code"] == "unauthenticated"


def test_submit_token_may_not_change_the_cluster(api, keebler):
    assert api("PUT", "/v1/clusters/keebler/state", keebler["token"], json={}).status_code == 403
    assert api("POST", "/v1/clusters/keebler/receive", keebler["token"], json={"agent": "a"}).status_code == 403


def test_cluster_secret_may_not_submit_or_register(api, keebler):
    assert submit(api, keebler["secret"]).status_code == 403
    assert api("POST", "/v1/clusters", keebler["secret"], json={"name": "x", "graph": {}}).status_code == 403


def test_another_clusters_credentials_see_nothing(api, keebler):
    job = submit(api, keebler["token"]).json["id"]
    other = api.register("other", NODES)
    for credential in (other["token"], other["secret"]):
        for path in ("/v1/clusters/keebler", "/v1/clusters/nobody", f"/v1/jobs/{job}", "/v1/jobs/nothing"):
            assert api("GET", path, credential).status_code == 404
        assert api("PUT", "/v1/clusters/keebler/state", credential, json={}).status_code == 404
        assert [c["name"] for c in api("GET", "/v1/clusters", credential).json["clusters"]] == ["other"]
        assert api("GET", "/v1/jobs", credential).json["jobs"] == []


def test_admin_sees_everything(api, keebler):
    submit(api, keebler["token"])
    assert len(api("GET", "/v1/jobs", ADMIN).json["jobs"]) == 1
    assert api("GET", "/v1/clusters/keebler/state", ADMIN).json["state"] == {"nodes_free": 3}


def test_name_registered_again_inherits_nothing(api, keebler):
    assert api("DELETE", "/v1/clusters/keebler", keebler["secret"]).status_code == 204
    again = api.register("keebler", NODES)
    assert submit(api, keebler["token"]).status_code == 401
    assert api("GET", "/v1/clusters/keebler/state", again["secret"]).json["state"] == {}


def test_cluster_with_live_jobs_is_not_deleted(api, keebler):
    submit(api, keebler["token"])
    assert api("DELETE", "/v1/clusters/keebler", keebler["secret"]).status_code == 409


# ── subsystems ──


def test_deleted_subsystem_matches_nothing(api, keebler):
    needing = {"resources": {"w": {"type": "node", "requires": [{"name": "io", "match": "shm"}]}}}
    hung = {"graph": {"nodes": {"s": {"metadata": {"type": "shm"}}}, "edges": [{"source": "node0", "target": "s"}]}}
    assert api("PUT", "/v1/clusters/keebler/subsystems/io", keebler["secret"], json=hung).status_code == 200
    assert api("POST", "/v1/match", keebler["token"], json=needing).json["candidates"]
    assert api("GET", "/v1/clusters/keebler/subsystems/io", keebler["secret"]).json == hung
    assert api("DELETE", "/v1/clusters/keebler/subsystems/io", keebler["secret"]).status_code == 204
    assert api("POST", "/v1/match", keebler["token"], json=needing).json["candidates"] == []


# ── hostile input: a clear problem, the right status, nothing stored ──

CYCLE = {"nodes": {k: {"metadata": {"type": "node"}} for k in "rab"}}
CYCLE["edges"] = [{"source": a, "target": b} for a, b in ("ra", "ab", "ba")]
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("graph", "pointer"),
    [
        ({"graph": CYCLE}, "/graph/graph/edges"),
        ({"graph": {"nodes": {"a": {"metadata": {"type": 3}}}, "edges": []}}, "/graph/graph/nodes/a/metadata/type"),
        ([], "/graph"),
        ({"graph": {"nodes": {}, "edges": []}}, "/graph/graph/nodes"),
    ],
)
def test_bad_graph_is_refused_by_pointer_and_not_stored(api, graph, pointer):
    answer = api("POST", "/v1/clusters", REGISTRATION, json={"name": "bad", "graph": graph})
    assert answer.status_code == 422
    assert answer.json["pointer"].startswith(pointer)
    assert api("GET", "/v1/clusters", ADMIN).json["clusters"] == []


def test_path_graph_of_100_000_vertices_is_refused_by_a_named_limit(api):
    nodes = {str(k): {"metadata": {"type": "node"}} for k in range(100_000)}
    edges = [{"source": str(k), "target": str(k + 1)} for k in range(99_999)]
    answer = api(
        "POST",
        "/v1/clusters",
        REGISTRATION,
        json={"name": "path", "graph": {"graph": {"nodes": nodes, "edges": edges}}},
    )
    assert answer.status_code in (413, 422)
    assert answer.json["limit"] == "depth"
    assert api("GET", "/livez").status_code == 200


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (os.urandom(100_000), (400,)),
        (b"\xff" * 100, (400,)),
        (b"", (400,)),
        (BOMB.encode(), (413, 422)),
        (b"[" * 100_000, (413, 422)),
        (b"{" * 100_000, (400,)),
        (b"- 1\n- 2", (422,)),
        (b"resources: {a: {type: node, count: 0}}", (422,)),
    ],
)
def test_hostile_jobspec_is_a_problem(api, keebler, data, statuses):
    answer = api("POST", "/v1/jobs", keebler["token"], data=data)
    assert answer.status_code in statuses
    assert answer.mimetype == "application/problem+json"
    assert api("GET", "/v1/jobs", keebler["token"]).json["jobs"] == []


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/match"])
def test_half_a_surrogate_pair_is_a_problem(api, keebler, path):
    text = jobspec().replace('"true"', r'"true", "\ud800"')
    answer = api("POST", path, keebler["token"], data=text, content_type="application/json")
    assert answer.status_code == 400
    whole = jobspec().replace('"true"', r'"true", "\ud83c\udf08"')
    assert api("POST", path, keebler["token"], data=whole, content_type="application/json").status_code in (200, 201)


def test_jobspec_fault_names_line_and_column(api, keebler):
    answer = submit(api, keebler["token"], "resources:\n  a:\n    type: node\n    count: -1\n")
    assert (answer.json["line"], answer.json["column"]) == (4, 12)
    assert answer.json["pointer"] == "/resources/a/count"


def test_command_full_of_quotes_is_stored_and_offered_as_given(api, keebler, service):
    from rainbow.service.scheduler.step import step

    command = ["sh", "-c", "echo \"it's\"; 'x'", "; drop table jobs", "%s\u2602"]
    job = submit(api, keebler["token"], jobspec(command=command)).json["id"]
    api("POST", "/v1/clusters/keebler/heartbeat", keebler["secret"], json={"agent": "a"})
    assert step(service, "keebler")
    offered = api("POST", "/v1/clusters/keebler/receive", keebler["secret"], json={"agent": "a"}).json["tasks"]
    assert [task["command"] for task in offered] == [command]
    assert offered[0]["job"] == job


def test_body_over_the_limit_is_413(api, keebler, service):
    answer = submit(api, keebler["token"], "x" * (service.settings.limits.body + 1))
    assert answer.status_code == 413


def test_unknown_path_is_a_problem(api):
    answer = api("GET", "/v1/nothing").json
    assert (answer["code"], answer["detail"][:26]) == ("not-found", "path /v1/nothing not found")
