"""The API's forms: what is registered, submitted and asked, by whom, and what each fault answers."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.service import Service
from rainbow.service.steps.stepping import step
from rainbow.store.schema import metadata
from tests.conftest import ADMIN, REGISTRATION, SHARED, Api, Cluster, grid, jobspec, open_service_at

CASES = yaml.safe_load((Path(__file__).parent / "cases" / "api" / "refused.yaml").read_text())


@pytest.fixture
def oak(api: Api) -> Cluster:
    return api.register("oak")


def stored(api: Api) -> tuple[Any, Any]:
    clusters = api.good("GET", "/v1/clusters", None, ADMIN)["clusters"]
    return clusters, api.good("GET", "/v1/jobs", None, ADMIN)["jobs"]


# ── clusters ──


def test_register_tells_credentials_once_and_keeps_only_digests(api: Api) -> None:
    told = api.good("POST", "/v1/clusters", {"name": "oak", "graph": grid(2, 2)}, REGISTRATION)
    assert set(told) == {"name", "token", "secret", "revision", "totals"}
    assert (told["name"], told["revision"]) == ("oak", 1)
    assert told["totals"] == {"cluster": 1, "core": 4, "node": 2}
    assert told["token"].startswith("rbt_")
    assert told["secret"].startswith("rbs_")
    with api.service.store.read() as connection:
        kept = [list(connection.execute(table.select())) for table in metadata.tables.values()]
    assert told["token"] not in str(kept)
    assert told["secret"] not in str(kept)
    assert "oak" in str(kept)


def test_register_a_name_again_is_a_conflict_and_after_delete_inherits_nothing(api: Api) -> None:
    old = api.register("oak", state={"nodes_free": 9})
    job = api.good("POST", "/v1/jobs", jobspec(), old.token)["id"]
    api.problem(409, "conflict", "POST", "/v1/clusters", {"name": "oak", "graph": grid(1, 1)}, REGISTRATION)
    api.problem(409, "conflict", "DELETE", "/v1/clusters/oak", None, old.secret)
    api.good("DELETE", f"/v1/jobs/{job}", None, old.token)
    api.good("DELETE", "/v1/clusters/oak", None, old.secret)
    new = api.register("oak")
    assert api.good("GET", "/v1/clusters/oak/state", None, new.secret)["state"] == {}
    assert api.good("GET", "/v1/jobs", None, new.token)["jobs"] == []
    api.problem(404, "not-found", "GET", f"/v1/jobs/{job}", None, new.token)
    api.problem(401, "unauthenticated", "GET", "/v1/clusters/oak", None, old.secret)
    assert [each["id"] for each in api.good("GET", "/v1/jobs", None, ADMIN)["jobs"]] == [job]


def test_register_that_fails_in_a_subsystem_stores_nothing(api: Api) -> None:
    body = {"name": "oak", "graph": grid(1, 1), "subsystems": {"io": {"graph": {"nodes": 7}}}}
    told = api.problem(422, "graph-invalid", "POST", "/v1/clusters", body, REGISTRATION)
    assert told["pointer"].startswith("/subsystems/io")
    assert stored(api) == ([], [])


def test_clusters_registered_by_many_threads_are_all_there(api: Api) -> None:
    threads = [threading.Thread(target=api.register, args=(f"c{k}",)) for k in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = [each["name"] for each in stored(api)[0]]
    assert listed == [f"c{k}" for k in range(24)]


def test_graph_comes_back_as_given_with_its_revision(oak: Cluster) -> None:
    path = "/v1/clusters/oak/graph"
    answer = oak.api.call("GET", path, None, oak.secret)
    assert answer.get_json() == grid(2, 2)
    assert answer.headers["ETag"] == '"1"'
    answer = oak.api.call("PUT", path, grid(3, 2), oak.secret, If_Match='"1"')
    assert (answer.status_code, answer.headers["ETag"]) == (200, '"2"')
    answer = oak.api.call("PUT", path, grid(4, 2), oak.secret, If_Match='"1"')
    assert (answer.status_code, answer.get_json()["code"]) == (412, "precondition-failed")
    assert oak.api.good("GET", path, None, oak.secret) == grid(3, 2)


def test_graph_without_a_worker_in_use_is_a_conflict(oak: Cluster) -> None:
    oak.api.good("POST", "/v1/jobs", jobspec(2), oak.token)
    oak.say("heartbeat")
    oak.take()
    oak.api.problem(409, "conflict", "PUT", "/v1/clusters/oak/graph", grid(1, 2), oak.secret)
    oak.api.good("PUT", "/v1/clusters/oak/graph", grid(3, 2), oak.secret)


def test_subsystem_hung_matches_and_taken_away_matches_no_more(oak: Cluster) -> None:
    vertices = {"s0": {"metadata": {"type": "shm", "name": "shm0"}}}
    hung = {"graph": {"nodes": vertices, "edges": [{"source": "n0", "target": "s0", "relation": "contains"}]}}
    wants = {"name": "io", "match": "shm", "field": "type"}
    resources = {"it": {"type": "node", "replicas": 1, "requires": [wants]}}
    spec = {"version": 1, "resources": resources, "task": {"command": ["true"]}}
    match = ("POST", "/v1/match", spec, oak.token)
    assert oak.api.good(*match)["candidates"] == []
    path = "/v1/clusters/oak/subsystems/io"
    oak.api.good("PUT", path, hung, oak.secret)
    assert [each["cluster"] for each in oak.api.good(*match)["candidates"]] == ["oak"]
    assert oak.api.good("GET", path, None, oak.secret) == hung
    oak.api.good("DELETE", path, None, oak.secret)
    refusals = oak.api.good(*match)["refusals"]
    assert [(each["cluster"], each["reason"]) for each in refusals] == [("oak", "need-unmet")]
    oak.api.problem(404, "not-found", "DELETE", path, None, oak.secret)


def test_state_is_put_patched_and_read(oak: Cluster) -> None:
    path = "/v1/clusters/oak/state"
    oak.api.good("PUT", path, '{"cost": 3, "nodes_free": 20,}', oak.secret)
    oak.api.good("PATCH", path, {"cost": 4}, oak.secret)
    told = oak.api.good("GET", path, None, oak.secret)
    assert told["state"] == {"cost": 4, "nodes_free": 20}
    assert told["reported_at"] == "1970-01-12T13:46:40.000Z"
    oak.api.good("PUT", path, {"cost": 1}, oak.secret)
    assert oak.api.good("GET", path, None, oak.secret)["state"] == {"cost": 1}


def test_nodes_free_is_booked_by_a_submit_and_given_back_by_its_end(oak: Cluster) -> None:
    def free() -> Any:
        return oak.api.good("GET", "/v1/clusters/oak/state", None, oak.secret)["effective"]["nodes_free"]

    oak.api.good("PUT", "/v1/clusters/oak/state", {"nodes_free": 2}, oak.secret)
    oak.api.good("POST", "/v1/jobs", jobspec(2), oak.token)
    assert free() == 0
    oak.say("heartbeat")
    [offer] = oak.take()
    oak.api.good("PUT", "/v1/clusters/oak/state", {"nodes_free": 0}, oak.secret)
    assert free() == 0, "the cluster had accepted the job when it reported"
    oak.end(offer)
    assert free() == 2


def test_last_free_node_is_taken_once_by_64_submits_at_once(api: Api) -> None:
    oak = api.register("oak", grid(8, 1), state={"nodes_free": 3})
    options = {"priorities": [{"priority": 1, "steps": [{"filter": "nodes_free > 0"}, {"select": "first"}]}]}
    body = {"jobspec": jobspec(), "selector": {"name": "constraint", "options": options}}
    statuses: list[int] = []

    def submit() -> None:
        statuses.append(api.call("POST", "/v1/jobs", body, oak.token).status_code)

    threads = [threading.Thread(target=submit) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [201] * 3 + [422] * 61


def test_scheduler_settings_are_kept_and_checked(oak: Cluster) -> None:
    path = "/v1/clusters/oak/scheduler"
    told = oak.api.good("GET", path, None, oak.secret)
    assert told["policy"] == "load_based"
    oak.api.good("PUT", path, {"policy": "load_based", "settings": told["settings"]}, oak.secret)
    oak.api.problem(422, "policy-invalid", "PUT", path, {"policy": "nobody's"}, oak.secret)
    oak.api.problem(422, "policy-invalid", "PUT", path, {"settings": {"no such": 1}}, oak.secret)
    assert oak.api.good("GET", path, None, oak.secret)["settings"] == told["settings"]


# ── jobs ──


@pytest.mark.parametrize("envelope", [False, True])
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_submit_of_any_form_is_placed(oak: Cluster, form: str, envelope: bool) -> None:
    spec: Any = yaml.safe_dump(jobspec()) if form == "yaml" else jobspec()
    body = {"jobspec": spec, "name": "mine", "requestor": "ann"} if envelope else spec
    answer = oak.api.call("POST", "/v1/jobs", body, oak.token)
    told = answer.get_json()
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"/v1/jobs/{told['id']}"
    assert (told["cluster"], told["state"]) == ("oak", "WAITING")
    assert told["decision"]["candidates"][0]["cluster"] == "oak"
    shown = oak.api.good("GET", f"/v1/jobs/{told['id']}", None, oak.token)
    if envelope:
        assert (shown["name"], shown["requestor"]) == ("mine", "ann")


def test_submit_that_fits_nowhere_says_why_for_every_cluster_and_stores_nothing(api: Api) -> None:
    tokens = [api.register(name).token for name in ("oak", "elm")]
    told = api.problem(422, "unsatisfiable", "POST", "/v1/jobs", jobspec(3), *tokens)
    assert [(each["cluster"], each["reason"]) for each in told["refusals"]] == [
        ("elm", "total-too-small"),
        ("oak", "total-too-small"),
    ]
    answer = api.good("POST", "/v1/match", jobspec(3), *tokens)
    assert answer["candidates"] == []
    assert answer["refusals"] == told["refusals"]
    assert stored(api)[1] == []


def test_submit_with_an_idempotency_key_is_one_job(oak: Cluster) -> None:
    def send(body: Any, key: str = "k") -> Any:
        return oak.api.call("POST", "/v1/jobs", body, oak.token, Idempotency_Key=key)

    first, second = send(jobspec()), send(jobspec())
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.get_json()["id"] == second.get_json()["id"]
    assert send(jobspec(2)).status_code in (400, 409, 422)
    assert send(jobspec(), "another").get_json()["id"] != first.get_json()["id"]
    assert len(stored(oak.api)[1]) == 2


def test_jobs_are_listed_newest_first_page_by_page(oak: Cluster) -> None:
    ids = [oak.api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"] for _ in range(5)]
    assert ids == sorted(ids)
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = oak.api.good("GET", f"/v1/jobs?limit=2{cursor and '&cursor=' + cursor}", None, oak.token)
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
    assert seen == ids[::-1]
    oak.api.good("DELETE", f"/v1/jobs/{ids[2]}", None, oak.token)
    found = oak.api.good("GET", "/v1/jobs?state=CANCELED&cluster=oak", None, oak.token)["jobs"]
    assert [job["id"] for job in found] == [ids[2]]
    assert oak.api.good("GET", "/v1/jobs?cluster=elm", None, oak.token)["jobs"] == []


def test_submits_of_64_threads_are_each_there_once(api: Api) -> None:
    oak = api.register("oak", grid(4, 4))
    told: list[str] = []

    def submit() -> None:
        told.extend(api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"] for _ in range(4))

    threads = [threading.Thread(target=submit) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = [job["id"] for job in api.good("GET", "/v1/jobs?limit=1000", None, oak.token)["jobs"]]
    assert len(told) == 256
    assert sorted(listed) == sorted(told)
    assert len(set(listed)) == 256


def test_everything_survives_a_restart(api: Api, database: str, clock: Any) -> None:
    oak = api.register("oak", state={"nodes_free": 2})
    job = api.good("POST", "/v1/jobs", jobspec(), oak.token)
    paths = ("/v1/clusters", "/v1/clusters/oak", "/v1/jobs", f"/v1/jobs/{job['id']}", f"/v1/jobs/{job['id']}/why")
    before = [api.good("GET", path, None, oak.token) for path in paths]
    graph = api.good("GET", "/v1/clusters/oak/graph", None, oak.secret)
    api.service.close()
    again = Api(open_service_at(database, clock))
    assert [again.good("GET", path, None, oak.token) for path in paths] == before
    assert again.good("GET", "/v1/clusters/oak/graph", None, oak.secret) == graph
    assert again.good("POST", "/v1/match", jobspec(), oak.token)["candidates"][0]["cluster"] == "oak"
    again.service.close()


# ── who may do what ──


def test_every_verb_without_a_credential_or_with_an_unknown_one_is_401(oak: Cluster) -> None:
    for rule in oak.api.app.url_map.iter_rules():
        if not rule.rule.startswith("/v1"):
            continue
        path = re.sub(r"<any\((\w+)[^>]*>", r"\1", rule.rule).replace("<name>", "oak")
        path = re.sub(r"<(\w+:)?\w+>", "x", path)
        body = jobspec() if path in ("/v1/jobs", "/v1/match") else {"agent": "a"}
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}:
            sent = None if method in ("GET", "DELETE") else body
            for tokens in ((), ("rbt_wrong",), (oak.token, "rbt_wrong"), ("",)):
                told = oak.api.problem(401, "unauthenticated", method, path, sent, *tokens)
                assert "rbt_wrong" not in json.dumps(told)


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


def test_job_of_somebody_else_is_as_if_it_were_not_there(api: Api) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    job = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    for method, path in (("GET", ""), ("GET", "/why"), ("DELETE", "")):
        api.problem(404, "not-found", method, f"/v1/jobs/{job}{path}", None, elm.token)
    assert api.good("GET", "/v1/jobs", None, elm.token)["jobs"] == []
    assert api.good("GET", f"/v1/jobs/{job}", None, ADMIN)["id"] == job


def test_decision_is_shown_without_clusters_the_reader_may_not_see(api: Api) -> None:
    oak, elm = api.register("oak", grid(1, 1)), api.register("elm", grid(4, 1))
    job = api.good("POST", "/v1/jobs", jobspec(3), oak.token, elm.token)["id"]
    assert "oak" in json.dumps(api.good("GET", f"/v1/jobs/{job}/why", None, oak.token, elm.token))
    assert "oak" not in json.dumps(api.good("GET", f"/v1/jobs/{job}/why", None, elm.token))


# ── faults ──


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_hostile_request_is_a_problem_and_stores_nothing(api: Api, oak: Cluster, case: dict[str, Any]) -> None:
    before = stored(api)
    body = case.get("text", case.get("json"))
    if "repeat" in case:
        body = case["repeat"] * case["times"]
    if "bytes" in case:
        body = bytes(range(256)) * case["bytes"]
    token = {"token": oak.token, "secret": oak.secret, "registration": REGISTRATION}[case["by"]]
    told = api.problem(case["status"], case["code"], case["method"], case["path"], body, token)
    for key in case.get("says", []):
        assert told.get(key) is not None, key
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

    monkeypatch.setattr("rainbow.service.jobs.showing.listing", broken)
    told = oak.api.problem(500, "error", "GET", "/v1/jobs", None, oak.token)
    assert "secret thought" not in json.dumps(told)


def test_unknown_path_and_method_are_problems(api: Api) -> None:
    api.problem(404, "not-found", "GET", "/nothing/here")
    api.problem(405, "method-not-allowed", "PATCH", "/v1/jobs")


def test_health_needs_no_credential(api: Api) -> None:
    for path in ("/livez", "/readyz", "/"):
        assert api.call("GET", path).status_code == 200


# ── upstream's own files ──

UPSTREAM = SHARED / "inputs" / "rainbow"


@pytest.mark.skipif(not UPSTREAM.exists(), reason="upstream's files are not here")
def test_upstreams_files_register_and_place_100_of_100(api: Api, service: Service) -> None:
    folder = UPSTREAM / "scheduler"
    keebler = api.register("keebler", json.loads((folder / "cluster-nodes.json").read_text()))
    hung = json.loads((folder / "cluster-io-subsystem.json").read_text())
    api.good("PUT", "/v1/clusters/keebler/subsystems/io", hung, keebler.secret)
    state = (folder / "cluster-state.json").read_text()
    api.good("PUT", "/v1/clusters/keebler/state", state, keebler.secret)
    spec = (folder / "jobspec-io.yaml").read_text()
    placed = [api.good("POST", "/v1/jobs", spec, keebler.token)["cluster"] for _ in range(100)]
    assert placed == ["keebler"] * 100
    keebler.say("heartbeat")
    assert step(service, "keebler")
    assert keebler.say("receive", max=1)["tasks"][0]["command"] == ["ior"]
