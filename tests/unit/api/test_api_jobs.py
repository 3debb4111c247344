"""What is submitted: placed, refused with reasons, listed, once under one key, and there after a restart."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import yaml

from rainbow.jobspec import jobspec_of
from rainbow.service import Service
from rainbow.service.scheduler.step import step
from tests.conftest import SHARED, Api, Cluster, grid, jobspec, open_service_at
from tests.support.stored import stored


@pytest.mark.parametrize("envelope", [False, True])
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_submit_of_any_form_is_placed(oak: Cluster, form: str, envelope: bool) -> None:
    spec: Any = yaml.safe_dump(jobspec()) if form == "yaml" else jobspec()
    body = {"jobspec": spec, "name": "mine", "requestor": "ann"} if envelope else spec
    answer = oak.api.call("POST", "/v1/jobs", body, oak.token)
    reported = answer.get_json()
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"/v1/jobs/{reported['id']}"
    assert (reported["cluster"], reported["state"]) == ("oak", "WAITING")
    assert reported["decision"]["candidates"][0]["cluster"] == "oak"
    shown = oak.api.good("GET", f"/v1/jobs/{reported['id']}", None, oak.token)
    if envelope:
        assert (shown["name"], shown["requestor"]) == ("mine", "ann")


def test_submit_that_fits_nowhere_says_why_for_every_cluster_and_stores_nothing(api: Api) -> None:
    tokens = [api.register(name).token for name in ("oak", "elm")]
    reported = api.problem(422, "unsatisfiable", "POST", "/v1/jobs", jobspec(3), *tokens)
    assert [(each["cluster"], each["reason"]) for each in reported["refusals"]] == [
        ("elm", "total-too-small"),
        ("oak", "total-too-small"),
    ]
    answer = api.good("POST", "/v1/match", jobspec(3), *tokens)
    assert answer["candidates"] == []
    assert answer["refusals"] == reported["refusals"]
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
        page = oak.api.good("GET", f"/v1/jobs?limit=2&cursor={cursor}", None, oak.token)
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
    assert seen == ids[::-1]
    oak.api.good("DELETE", f"/v1/jobs/{ids[2]}", None, oak.token)
    result = oak.api.good("GET", "/v1/jobs?state=CANCELED&cluster=oak", None, oak.token)["jobs"]
    assert [job["id"] for job in result] == [ids[2]]
    assert oak.api.good("GET", "/v1/jobs?cluster=elm", None, oak.token)["jobs"] == []


def test_submits_of_64_threads_are_each_there_once(api: Api) -> None:
    oak = api.register("oak", grid(4, 4))
    answers: list[str] = []

    def submit() -> None:
        answers.extend(api.good("POST", "/v1/jobs", jobspec(), oak.token)["id"] for _ in range(4))

    threads = [threading.Thread(target=submit) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = [job["id"] for job in api.good("GET", "/v1/jobs?limit=1000", None, oak.token)["jobs"]]
    assert len(answers) == 256
    assert sorted(listed) == sorted(answers)
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


@pytest.mark.parametrize(
    ("program", "name"), [("/usr/bin/a.out", "a.out"), ("\x07", "job"), ("x" * 300, "x" * 100), ("bin/", "job")]
)
def test_a_job_without_a_name_has_that_of_its_program(oak: Cluster, program: str, name: str) -> None:
    answer = oak.api.good("POST", "/v1/jobs", jobspec_of([program, "-v"]), oak.token)
    assert oak.api.good("GET", f"/v1/jobs/{answer['id']}", None, oak.token)["name"] == name


def test_node_that_jobs_share_is_in_use_once(api: Api) -> None:
    elm = api.register("elm", grid(4, 8))
    for _ in range(5):  # of a core each
        api.good("POST", "/v1/jobs", {"jobspec": jobspec()}, elm.token)
    offers = [*elm.take(), *elm.take()]
    begun = [{"task": one["id"], "attempt": one["attempt"], "event": "started"} for one in offers]
    elm.say("events", events=begun)
    [tile] = api.good("GET", "/v1/summary", None, elm.token)["tiles"]
    held = {worker for offer in offers for worker in offer["placement"]}
    assert (tile["running"], tile["busy"]) == (5, len(held) / 4)
    assert len(held) < 4
