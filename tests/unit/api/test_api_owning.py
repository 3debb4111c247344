"""What whoever owns a cluster may do: deltas of its graph, draining, workers, batches, replays of placements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.service import Service
from rainbow.service.clusters.drain import finish
from rainbow.service.scheduler.step import step
from rainbow.store import clusters
from tests.conftest import ADMIN, Api, Cluster, grid, jobspec

CASES = Path(__file__).parents[2] / "cases" / "api"
DELTAS = yaml.load((CASES / "deltas.yaml").read_text(), yaml.CSafeLoader)


@pytest.mark.parametrize("case", DELTAS, ids=[case["name"] for case in DELTAS])
def test_delta_is_applied_whole_or_not_at_all(oak: Cluster, case: dict[str, Any]) -> None:
    path = "/v1/clusters/oak/graph"
    before = oak.api.good("GET", path, None, oak.secret)
    if "code" in case:
        reported = oak.api.problem(
            case["status"], case["code"], "PATCH", path, {"changes": case["changes"]}, oak.secret
        )
        assert reported.get("pointer", "").startswith(case.get("pointer", ""))
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


def test_drained_cluster_gives_its_waiting_jobs_to_others_and_goes_when_the_running_end(api: Api) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    oak.say("heartbeat")
    api.good("POST", "/v1/jobs", jobspec(), oak.token)
    [running] = oak.take()
    both = {"jobspec": jobspec(), "clusters": [{"name": "oak"}, {"name": "elm"}]}
    jobs = [api.good("POST", "/v1/jobs", both, oak.token, elm.token) for _ in range(6)]
    alone = api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"]
    api.problem(409, "conflict", "DELETE", "/v1/clusters/oak", None, oak.secret)
    answer = api.call("DELETE", "/v1/clusters/oak?drain=true", None, oak.secret)
    assert answer.status_code == 202
    assert answer.get_json()["running"] == [running["job"]]
    assert answer.get_json()["placed"] == [job["id"] for job in jobs if job["cluster"] == "oak"]
    assert answer.get_json()["refused"] == [alone]
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
    oak.api.problem(405, "method-not-allowed", "POST", f"{path}:explode", None, oak.secret)


def test_batch_answers_each_job_by_itself_and_once(oak: Cluster) -> None:
    many = [{"jobspec": spec} for spec in (jobspec(), jobspec(9), jobspec(), {"version": 1})]
    answer = oak.api.good("POST", "/v1/jobs:batch", {"jobs": many}, oak.token, Idempotency_Key="k")["answers"]
    assert [each["status"] for each in answer] == [201, 422, 201, 422]
    assert answer[1]["refusals"][0]["reason"] == "total-too-small"
    again = oak.api.good("POST", "/v1/jobs:batch", {"jobs": many}, oak.token, Idempotency_Key="k")["answers"]
    assert [each.get("id") for each in again] == [each.get("id") for each in answer]
    assert [each["status"] for each in again] == [200, 422, 200, 422]
    assert len(oak.api.good("GET", "/v1/jobs", None, oak.token)["jobs"]) == 2


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
        result = api.good("GET", f"/v1/jobs/{job['id']}/replay", None, *tokens)
        assert result["equal"], result
        assert result["replayed"] == job["decision"]["selection"]
        assert result["graphs_changed_since"] == sorted(each.name for each in owned)
    one = api.good("GET", f"/v1/jobs/{jobs[0]['id']}/replay", None, ADMIN)
    assert set(one["digests"]) == {"graphs", "states", "policy"}
