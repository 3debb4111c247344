"""What is registered: clusters, their graphs, subsystems, states and settings, and how many nodes are free."""

from __future__ import annotations

import threading
from typing import Any

from rainbow.store.schema import metadata
from tests.conftest import ADMIN, REGISTRATION, Api, Cluster, grid, jobspec
from tests.support.stored import stored


def test_register_tells_credentials_once_and_keeps_only_digests(api: Api) -> None:
    answer = api.good("POST", "/v1/clusters", {"name": "oak", "graph": grid(2, 2)}, REGISTRATION)
    assert set(answer) == {"name", "token", "secret", "revision", "totals", "units"}
    assert (answer["name"], answer["revision"]) == ("oak", 1)
    assert answer["totals"] == {"cluster": 1, "core": 4, "node": 2}
    assert answer["token"].startswith("rbt_")
    assert answer["secret"].startswith("rbs_")
    with api.service.store.read() as connection:
        reserved = [list(connection.execute(table.select())) for table in metadata.tables.values()]
    assert answer["token"] not in str(reserved)
    assert answer["secret"] not in str(reserved)
    assert "oak" in str(reserved)


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
    answer = api.problem(422, "graph-invalid", "POST", "/v1/clusters", body, REGISTRATION)
    assert answer["pointer"].startswith("/subsystems/io")
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
    answer = oak.api.good("GET", path, None, oak.secret)
    assert answer["state"] == {"cost": 4, "nodes_free": 20}
    assert answer["reported_at"] == "1970-01-12T13:46:40.000Z"
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
    assert sorted(statuses) == [201] * 3 + [409] * 61


def test_scheduler_settings_are_kept_and_checked(oak: Cluster) -> None:
    path = "/v1/clusters/oak/scheduler"
    answer = oak.api.good("GET", path, None, oak.secret)
    assert answer["policy"] == "load_based"
    oak.api.good("PUT", path, {"policy": "load_based", "settings": answer["settings"]}, oak.secret)
    oak.api.problem(422, "policy-invalid", "PUT", path, {"policy": "nobody's"}, oak.secret)
    oak.api.problem(422, "policy-invalid", "PUT", path, {"settings": {"no such": 1}}, oak.secret)
    assert oak.api.good("GET", path, None, oak.secret)["settings"] == answer["settings"]
