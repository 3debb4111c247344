"""What is changed of a job after its submit: in the next plan, or refused with a reason and nothing half done."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.jobspec import parse_jobspec
from rainbow.service.jobs.jobspecs import Changeable, altered, changeable, read_request
from tests.conftest import ADMIN, Api, Cluster, grid, jobspec


def submit(oak: Cluster, spec: Any = None, **more: Any) -> str:
    body = {"jobspec": spec or jobspec(), "requestor": "ann", "name": "job", **more}
    return str(oak.api.good("POST", "/v1/jobs", body, oak.token)["id"])


def update(oak: Cluster, job: str, *tokens: str, **changes: Any) -> dict[str, Any]:
    answer: dict[str, Any] = oak.api.good(
        "PATCH", f"/v1/jobs/{job}", changes, *(tokens or (oak.token,)), Rainbow_Login="ann"
    )
    return answer


def refused(oak: Cluster, job: str, status: int, code: str, **changes: Any) -> str:
    return str(oak.api.problem(status, code, "PATCH", f"/v1/jobs/{job}", changes, oak.token)["detail"])


def test_changed_limit_is_that_of_the_offer_and_stays_with_the_old_one(oak: Cluster) -> None:
    oak.say("heartbeat", workers=["n0"])
    job = submit(oak, jobspec(duration=3600))
    assert oak.api.good("GET", f"/v1/jobs/{job}", None, oak.token).get("changes") is None
    update(oak, job, time_limit=7200)
    shown = update(oak, job, time_limit=1440, name="other")
    assert [one["changed"] for one in shown["changes"]] == [
        {"time_limit": [3600.0, 7200]},
        {"time_limit": [7200.0, 1440], "name": ["job", "other"]},
    ]
    assert {one["by"] for one in shown["changes"]} == {"ann"}
    assert update(oak, job, time_limit=1440)["changes"] == shown["changes"]  # nothing new
    [offer] = oak.take()
    assert (offer["job"], offer["duration"]) == (job, 1440)


def test_fewer_nodes_start_where_more_had_no_room(oak: Cluster) -> None:
    oak.say("heartbeat", workers=["n0"])  # of two
    job = submit(oak, jobspec(nodes=2))
    assert oak.take() == []
    assert refused(oak, job, 422, "value-refused", nodes=4) == "/nodes: the job asks for 2; give 1"
    assert update(oak, job, nodes=1)["changes"][0]["changed"] == {"nodes": [2, 1]}
    [offer] = oak.take()
    assert list(offer["placement"]) == ["n0"]


def gpu_spec(count: int = 2) -> dict[str, Any]:
    """Slots that hold a node each, with a core and a GPU, on nodes of rack r1."""
    node = {"type": "node", "count": 1, "with": [{"type": "core", "count": 1}, {"type": "gpu", "count": 1}]}
    return {
        "version": 1,
        "resources": [{"type": "slot", "count": count, "label": "s", "with": [node]}],
        "tasks": [{"command": ["true"], "slot": "s", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, "constraints": {"properties": ["fast", "near"]}}},
    }


def test_what_it_may_do_without_is_said_once_for_who_offers_and_who_changes() -> None:
    read = read_request(parse_jobspec(gpu_spec()))
    assert changeable(read, None) == Changeable("nodes", 2, ("gpu", "fast", "near"))
    overrides: dict[str, Any] = {}
    for name, remaining in (("fast", ("gpu", "near")), ("gpu", ("near",)), ("near", ())):
        overrides["without"] = [*overrides.get("without", ()), name]
        read = altered(read, {**overrides, "without": overrides["without"][:-1]}, without=name)
        assert changeable(read, overrides).omissible == remaining
    read = altered(read, overrides, nodes=1)
    assert changeable(read, {**overrides, "nodes": 1}) == Changeable("nodes", 1, ())
    assert read.request.constraint is None
    assert [one.type for one in read.request.variants[0][0].walk()] == ["slot", "node", "core"]
    assert read.submitted is not None
    assert read.submitted.constraint is not None


def test_a_count_is_that_of_the_same_resource_however_often_it_is_changed() -> None:
    spec = jobspec(nodes=4)
    spec["resources"][0]["with"][0]["count"] = 3
    read = read_request(parse_jobspec(spec))
    for count in (2, 1, 1):
        read = altered(read, None, nodes=count)
        node, slot = read.request.variants[0][0], read.request.variants[0][0].children[0]
        assert (node.count.min, slot.count.min) == (count, 3)


def test_a_requirement_that_is_left_out_starts_the_job(api: Api) -> None:
    graph = grid(2, 2)
    for name in ("n0", "n1"):
        graph["graph"]["nodes"][name]["metadata"]["properties"] = {"fast": "true", "near": "true"}
    graph["graph"]["nodes"]["g0"] = {"metadata": {"type": "gpu", "name": "gpu0"}}
    graph["graph"]["edges"].append({"source": "n0", "target": "g0", "relation": "contains"})
    oak = api.register("oak", graph)
    oak.say("heartbeat", workers=["n1"])
    job = submit(oak, gpu_spec(1))
    assert oak.take() == []
    assert refused(oak, job, 422, "value-refused", without="mem") == (
        "/without: the job does not ask for mem; give one of gpu, fast, near"
    )
    shown = update(oak, job, without="gpu")
    assert shown["changes"][0]["changed"] == {"without": [[], ["gpu"]]}
    [offer] = oak.take()
    assert list(offer["placement"]) == ["n1"]
    assert refused(oak, job, 409, "conflict", without="fast") == (f"job {job} runs: only its limit may be lowered")


def test_a_job_goes_to_another_cluster_and_back_in_its_place(api: Api) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    oak.say("heartbeat", workers=["n0"])
    elm.say("heartbeat", workers=["n0"])
    body = {"jobspec": jobspec(nodes=2), "requestor": "ann", "name": "job"}
    job = str(api.good("POST", "/v1/jobs", body, oak.token, elm.token)["id"])
    first, second = (oak, elm) if api.good("GET", f"/v1/jobs/{job}", None, ADMIN)["cluster"] == "oak" else (elm, oak)
    both = (oak.token, elm.token)
    assert update(first, job, *both, cluster=first.name).get("changes") is None
    refused_ = api.problem(422, "value-refused", "PATCH", f"/v1/jobs/{job}", {"cluster": "ash"}, *both)
    assert refused_["detail"] == f"/cluster: job {job} may go to no cluster ash"
    unseen = api.problem(422, "value-refused", "PATCH", f"/v1/jobs/{job}", {"cluster": second.name}, first.token)
    assert unseen["detail"] == f"/cluster: job {job} may go to no cluster {second.name}"
    submitted = api.good("GET", f"/v1/jobs/{job}", None, ADMIN)["submitted_at"]
    for to in (second, first, second):
        shown = update(first, job, *both, cluster=to.name, nodes=1)
        assert (shown["cluster"], shown["submitted_at"]) == (to.name, submitted)
        assert shown["changes"][-1]["changed"]["cluster"][1] == to.name
    assert first.take() == []
    [offer] = second.take()
    assert (offer["job"], list(offer["placement"])) == (job, ["n0"])
    assert api.problem(409, "conflict", "PATCH", f"/v1/jobs/{job}", {"cluster": first.name}, *both)["detail"] == (
        f"job {job} runs: only its limit may be lowered"
    )


def test_of_what_runs_only_the_limit_may_be_lowered(oak: Cluster, clock: Any) -> None:
    oak.say("heartbeat", workers=["n0", "n1"])
    job = submit(oak, jobspec(duration=3600))
    [offer] = oak.take()
    oak.say("events", events=[{"task": offer["id"], "attempt": 1, "event": "started"}])
    for change in ({"time_limit": 7200}, {"time_limit": 0}, {"nodes": 1}, {"nodes": 1, "name": "other"}):
        assert refused(oak, job, 409, "conflict", **change) == f"job {job} runs: only its limit may be lowered"
    shown = update(oak, job, time_limit=60)
    assert (shown["name"], shown["changes"][0]["changed"]) == ("job", {"time_limit": [3600.0, 60]})
    clock.now += 3_000
    oak.say("heartbeat", workers=["n0", "n1"], running=[{"id": offer["id"], "attempt": 1}])
    oak.take()
    assert [one["id"] for one in oak.say("heartbeat", workers=["n0", "n1"])["stop"]] == [offer["id"]]


def test_a_lower_priority_is_anyones_and_a_higher_one_the_owners(oak: Cluster) -> None:
    job = submit(oak)
    assert update(oak, job, priority=-5)["priority"] == -5
    assert "only the cluster's owner may raise it" in refused(oak, job, 403, "forbidden", priority=5, name="other")
    assert update(oak, job, oak.secret, priority=7)["priority"] == 7
    assert update(oak, job, ADMIN, priority=9, held=True)["held_at"] is not None
    assert update(oak, job, held=False)["held_at"] is None


@pytest.mark.parametrize(
    "body", [{}, {"nodes": 0}, {"time_limit": -1}, {"nme": "x"}, {"name": ""}, {"held": "yes"}, {"without": ""}]
)
def test_what_is_no_change_is_refused(oak: Cluster, body: Any) -> None:
    refused(oak, submit(oak), 400, "request-invalid", **body)


def test_nobody_changes_the_job_of_another_or_one_that_has_ended(api: Api) -> None:
    oak = api.register("oak")
    token = api.good("POST", "/v1/tokens", {"clusters": ["oak"], "requestors": ["bob"]}, oak.secret)["token"]
    job = submit(oak)
    api.problem(403, "forbidden", "PATCH", f"/v1/jobs/{job}", {"name": "x"}, token)
    api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    assert "already ended: CANCELED" in refused(oak, job, 409, "conflict", name="x")
