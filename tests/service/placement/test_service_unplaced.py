"""Jobs that wait for a cluster: entered, tried again in turn, shown, canceled, and kept through everything."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from rainbow.service.placement.unplaced_jobs import RETRY, Round, SchedulingTurns
from rainbow.service.scheduler.loop import step_safely
from rainbow.store import jobs as waits
from rainbow.store.jobs import WaitingJob
from tests.conftest import ADMIN, Api, Clock, Cluster, grid, jobspec, open_service_at

FREE = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": [{"filter": "nodes_free > 0"}]}]}}


def queue(api: Api, *clusters: Cluster, nodes: int = 1, **more: Any) -> Any:
    body = {"jobspec": jobspec(nodes), "selector": FREE, "queue": True, **more}
    return api.good("POST", "/v1/jobs", body, *(one.token for one in clusters))


def state(cluster: Cluster, **values: Any) -> None:
    cluster.api.good("PATCH", f"/v1/clusters/{cluster.name}/state", values, cluster.secret)


def rounds(api: Api) -> Round:
    return Round(api.service, time.monotonic)


def show(api: Api, job: Any, *tokens: str) -> Any:
    return api.good("GET", f"/v1/jobs/{job['id']}", None, *(tokens or (ADMIN,)))


def full(api: Api, name: str = "oak", **more: Any) -> Cluster:
    return api.register(name, grid(4, 2), state={"nodes_free": 0}, **more)


def test_job_that_no_cluster_takes_now_waits_unplaced_with_reason_and_since(api: Api) -> None:
    oak = full(api)
    made = queue(api, oak)
    assert (made["state"], made["cluster"], made["wait"]["reason"]) == ("UNPLACED", None, "no-cluster-now")
    assert made["wait"]["facts"]["dropped"] == {"oak": "booking: job needs 1 node, but none is free (nodes_free)"}
    shown = show(api, made, oak.token)
    assert (shown["state"], shown["cluster"], shown["tasks"]) == ("UNPLACED", None, [])
    assert shown["wait"]["since"] == shown["submitted_at"] == made["wait"]["since"]
    why = api.good("GET", f"/v1/jobs/{made['id']}/why?verify=true", None, oak.token)
    assert (why["state"], why["wait"], why["verify"]) == ("UNPLACED", shown["wait"], None)
    assert why["decision"]["selection"]["drops"] == made["wait"]["facts"]["dropped"]
    assert api.good("GET", f"/v1/jobs/{made['id']}/replay", None, oak.token)["equal"] is True
    listed = api.good("GET", "/v1/jobs?state=unplaced", None, oak.token)["jobs"]
    assert [job["id"] for job in listed] == [made["id"]]
    answer = api.call("GET", "/v1/events?follow=false&after=0", None, oak.token).get_data(as_text=True)
    assert "UNPLACED" in answer
    assert "rainbow_jobs_unplaced 1" in api.call("GET", "/metrics?brief=true", None, ADMIN).get_data(as_text=True)


def test_refuse_is_the_default_and_a_job_that_no_cluster_can_ever_run_never_waits(api: Api) -> None:
    oak = full(api)
    body = {"jobspec": jobspec(), "selector": FREE}
    api.problem(409, "no-cluster-now", "POST", "/v1/jobs", body, oak.token)
    api.problem(409, "no-cluster-now", "POST", "/v1/jobs", {**body, "queue": False}, oak.token)
    api.problem(422, "unsatisfiable", "POST", "/v1/jobs", {"jobspec": jobspec(5), "queue": True}, oak.token)
    api.problem(400, "request-invalid", "POST", "/v1/jobs", {**body, "queue": "yes"}, oak.token)


def test_setting_unplaced_wait_lets_every_job_wait_unless_it_says_no(tmp_path: Path) -> None:
    api = Api(open_service_at(tmp_path, Clock(), unplaced="wait"))
    oak = full(api)
    body = {"jobspec": jobspec(), "selector": FREE}
    assert api.good("POST", "/v1/jobs", body, oak.token)["state"] == "UNPLACED"
    api.problem(409, "no-cluster-now", "POST", "/v1/jobs", {**body, "queue": False}, oak.token)


def test_job_is_placed_when_a_state_changes_and_runs_like_any_other(api: Api) -> None:
    oak = full(api)
    made, tries = queue(api, oak, name="it", requestor="ann"), rounds(api)
    assert (tries.look(), tries.look()) == ([], [])
    step_safely(api.service, "oak")  # the cluster's mirror has been read before
    state(oak, nodes_free=2)
    assert tries.look() == [made["id"]]
    shown = show(api, made, oak.token)
    assert (shown["state"], shown["cluster"], shown["nodes"]) == ("WAITING", "oak", 1)
    assert shown["wait"]["reason"] == "no-agent"
    assert (shown["id"], shown["name"], shown["requestor"]) == (made["id"], "it", "ann")
    assert api.good("GET", f"/v1/jobs/{made['id']}/replay", None, oak.token)["equal"] is True
    oak.say("heartbeat", workers=["n0", "n1", "n2", "n3"])
    [offer] = oak.take()
    oak.end(offer)
    assert show(api, made)["state"] == "COMPLETED"


def test_job_is_placed_when_a_graph_or_a_booking_changes_or_a_cluster_is_reinstated(api: Api) -> None:
    oak = api.register("oak", grid(1, 2), state={"nodes_free": 1})
    tries = rounds(api)
    first, second = queue(api, oak), queue(api, oak)
    assert (first["state"], second["state"]) == ("WAITING", "UNPLACED")
    assert tries.look() == []
    api.good("DELETE", f"/v1/jobs/{first['id']}", None, oak.token)  # gives its booking back
    assert tries.look() == [second["id"]]
    api.good("POST", "/v1/clusters/oak:drain", None, oak.secret)
    third = queue(api, oak)
    assert third["wait"]["facts"]["dropped"] == {"oak": "drained: it takes nothing new until it is reinstated"}
    state(oak, nodes_free=3)
    assert tries.look() == []
    api.good("POST", "/v1/clusters/oak:reinstate", None, oak.secret)
    assert tries.look() == [third["id"]]
    wide = api.good("POST", "/v1/jobs", {"jobspec": jobspec(2), "queue": True}, full(api, "elm").token, oak.token)
    assert wide["cluster"] == "elm"  # random reads no state


def test_cluster_that_comes_later_takes_what_an_administrator_left_waiting(api: Api) -> None:
    full(api)
    made = api.good("POST", "/v1/jobs", {"jobspec": jobspec(), "selector": FREE, "queue": True}, ADMIN)
    elm = api.register("elm", grid(1, 1), state={"nodes_free": 1})
    assert rounds(api).look() == [made["id"]]
    assert show(api, made, elm.token)["cluster"] == "elm"


def test_token_of_another_cluster_neither_sees_nor_cancels_nor_takes_the_job(api: Api) -> None:
    oak, elm = full(api), api.register("elm", grid(4, 2), state={"nodes_free": 4})
    made = queue(api, oak)
    api.problem(404, "not-found", "GET", f"/v1/jobs/{made['id']}", None, elm.token)
    api.problem(404, "not-found", "DELETE", f"/v1/jobs/{made['id']}", None, elm.token)
    assert api.good("GET", "/v1/jobs", None, elm.token)["jobs"] == []
    assert rounds(api).look() == []


def test_canceled_while_it_waits_it_ends_and_is_still_shown(api: Api) -> None:
    oak = full(api)
    made, tries = queue(api, oak), rounds(api)
    for _ in range(2):  # said twice it is the same
        canceled = api.good("DELETE", f"/v1/jobs/{made['id']}", None, oak.token)
        assert (canceled["state"], canceled["cluster"], canceled["wait"]) == ("CANCELED", None, None)
    state(oak, nodes_free=4)
    assert tries.look() == []
    assert show(api, made, oak.token)["state"] == "CANCELED"


def test_suspended_while_it_waits_it_is_not_placed_before_it_is_resumed(api: Api) -> None:
    oak = full(api)
    made, tries = queue(api, oak), rounds(api)
    api.good("POST", f"/v1/jobs/{made['id']}:suspend", None, oak.token)
    state(oak, nodes_free=4)
    assert tries.look() == []
    api.good("POST", f"/v1/jobs/{made['id']}:resume", None, oak.token)
    assert tries.look() == [made["id"]]


def test_same_key_is_the_same_waiting_job(api: Api) -> None:
    oak = full(api)
    body = {"jobspec": jobspec(), "selector": FREE, "queue": True}
    first, again = (api.good("POST", "/v1/jobs", body, oak.token, Idempotency_Key="k") for _ in range(2))
    assert (again["id"], again["state"], again["wait"]) == (first["id"], "UNPLACED", first["wait"])


def test_oldest_first_and_requestors_in_turn(api: Api, clock: Clock) -> None:
    oak, tries, made = full(api), rounds(api), []
    for requestor in ("ann", "ann", "ann", "bob", "ann", "bob"):
        clock.now += 1
        made.append((queue(api, oak, requestor=requestor)["id"], requestor))
    order = []
    for free in range(1, len(made) + 1):  # what was placed is booked, and not accepted
        clock.now += 1
        state(oak, nodes_free=free)
        order += tries.look()
    names = dict(made)
    assert [names[job] for job in order] == ["ann", "bob", "ann", "bob", "ann", "ann"]
    assert [job for job in order if names[job] == "ann"] == [job for job, who in made if who == "ann"]


def test_wide_job_that_does_not_fit_stops_no_other_requestor(api: Api) -> None:
    oak, tries = full(api), rounds(api)
    wide, small = queue(api, oak, nodes=4), queue(api, oak, requestor="bob")
    state(oak, nodes_free=2)
    assert tries.look() == [small["id"]]
    assert "only 2 are free (nodes_free)" in show(api, wide)["wait"]["text"]
    assert show(api, wide)["wait"]["since"] == wide["wait"]["since"]


def test_limit_of_jobs_that_wait_is_told(tmp_path: Path) -> None:
    from rainbow.service.core.settings import Limits

    api = Api(open_service_at(tmp_path, Clock(), limits=Limits(unplaced=2)))
    oak = full(api)
    for _ in range(2):
        queue(api, oak, requestor="ann")
    body = {"jobspec": jobspec(), "selector": FREE, "queue": True, "requestor": "ann"}
    assert api.problem(429, "too-many", "POST", "/v1/jobs", body, oak.token)["limit"] == "unplaced"
    assert queue(api, oak, requestor="bob")["state"] == "UNPLACED"


def test_newer_version_ends_the_older_that_waits(api: Api) -> None:
    oak, tries = full(api), rounds(api)
    old, new = (queue(api, oak, basis="b", tag=tag) for tag in ("1", "2"))
    assert [show(api, job)["state"] for job in (old, new)] == ["CANCELED", "UNPLACED"]
    state(oak, nodes_free=1)
    assert tries.look() == [new["id"]]
    third = queue(api, oak, basis="b", tag="3")  # what has a cluster runs until the newer version has one
    assert [show(api, job)["state"] for job in (new, third)] == ["WAITING", "UNPLACED"]
    state(oak, nodes_free=2)
    assert tries.look() == [third["id"]]
    assert show(api, new)["state"] == "CANCELED"


def test_job_that_waits_for_an_unplaced_one_waits_for_it(api: Api) -> None:
    oak, elm = full(api), api.register("elm", grid(1, 1), state={"nodes_free": 1})
    before = queue(api, oak)
    after = jobspec(dependencies=[{"scheme": "afterok", "value": before["id"]}])
    later = api.good("POST", "/v1/jobs", {"jobspec": after, "selector": FREE}, oak.token, elm.token)
    elm.say("heartbeat", workers=["n0"])
    assert elm.take() == []
    assert show(api, later)["wait"]["reason"] == "dependency"
    api.good("DELETE", f"/v1/jobs/{before['id']}", None, oak.token)
    assert elm.take() == []
    assert show(api, later)["state"] == "CANCELED"


def test_batch_queues_what_finds_no_place_and_optimal_never_queues_at_a_place(api: Api) -> None:
    oak = api.register("oak", grid(4, 2), state={"nodes_free": 2, "price": 1})
    options = {"priorities": [{"priority": 1, "steps": [{"calc": "cost=price"}]}]}
    body = {"jobs": [{"jobspec": jobspec(2)}, {"jobspec": jobspec(1)}, {"jobspec": jobspec(1)}], "queue": True}
    body["selector"] = {"name": "constraint", "options": options}
    answer = api.good("POST", "/v1/jobs:batch", {**body, "assign": "optimal", "minimise": "cost"}, oak.token)
    assert [(one["status"], one["state"]) for one in answer["answers"]] == [
        (201, "UNPLACED"),
        (201, "WAITING"),
        (201, "WAITING"),
    ]
    assert (answer["assign"]["placed"], answer["assign"]["gap"]) == (2, 0)


def test_everything_is_tried_now_and_then_even_if_nothing_changed(api: Api, clock: Clock) -> None:
    oak, tries = full(api), rounds(api)
    api.good("PUT", "/v1/clusters/oak/scheduler", {"limits": {"max_jobs_per_requestor": 0}}, oak.secret)
    made = queue(api, oak)
    state(oak, nodes_free=1)
    assert tries.look() == []
    assert show(api, made)["wait"]["reason"] == "too-many"
    api.good("PUT", "/v1/clusters/oak/scheduler", {"limits": {"max_jobs_per_requestor": 1}}, oak.secret)
    assert tries.look() == []
    clock.now += RETRY
    assert tries.look() == [made["id"]]


def test_a_server_started_again_on_the_store_goes_on(tmp_path: Path) -> None:
    first = Api(open_service_at(tmp_path, Clock()))
    oak = full(first)
    made = queue(first, oak)
    first.service.close()
    api = Api(open_service_at(tmp_path, Clock()))
    oak.api = api
    assert show(api, made)["state"] == "UNPLACED"
    state(oak, nodes_free=1)
    assert rounds(api).look() == [made["id"]]


def test_two_servers_on_one_store_place_a_job_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find that it fits; the second to write sees that it waits no more."""
    from rainbow.service import Service

    other = Api(Service(api.service.store, api.service.settings, api.service.clock))
    oak = full(api)
    made = queue(api, oak)
    other.service.refresh()
    state(oak, nodes_free=4)
    placed: list[Any] = []
    whole = waits.get

    def get_and_let_the_other_first(connection: Any, job: str) -> Any:
        result = whole(connection, job)
        if not placed:
            placed.append(None)
            placed[0] = rounds(other).look()
        return result

    monkeypatch.setattr(waits, "get", get_and_let_the_other_first)
    assert rounds(api).look() == []
    assert placed == [[made["id"]]]
    assert [task["state"] for task in show(api, made)["tasks"]] == ["WAITING"]


def test_turns_go_round_between_requestors_within_one_moment() -> None:
    waiting = [WaitingJob(f"{who}{n}", who, float(n), float(n)) for n, who in enumerate("aaabbc")]
    turns, order = SchedulingTurns(waiting, 9.0), []
    while (following := turns.next()) is not None:
        order.append(following[0])
        turns.serve(following[1])
    assert order == ["a0", "b3", "c5", "a1", "b4", "a2"]


def test_the_best_account_by_fair_share_comes_before_all_turns():
    waiting = [WaitingJob(f"j{k}", who, float(k), 0.0, who[:3]) for k, who in enumerate(["bio1", "bio1", "cfd1"])]
    turns, order = SchedulingTurns(waiting, 9.0, {("bio", "bio1"): 0.5, ("cfd", "cfd1"): 1.0}), []
    while (following := turns.next()) is not None:
        order.append(following[0])
        turns.serve(following[1])
    assert order == ["j2", "j0", "j1"]


def test_a_job_that_waits_for_a_cluster_is_placed_as_it_was_changed(api: Api, clock: Clock) -> None:
    oak = api.register("oak", grid(4, 2), state={"nodes_free": 2})
    tries, wide = rounds(api), queue(api, oak, nodes=3)
    assert wide["state"] == "UNPLACED"
    assert tries.look() == []
    api.good("PATCH", f"/v1/jobs/{wide['id']}", {"nodes": 2, "time_limit": 60}, oak.token)
    clock.now += RETRY + 1
    assert tries.look() == [wide["id"]]
    shown = show(api, wide)
    assert (shown["state"], shown["cluster"], shown["nodes"]) == ("WAITING", "oak", 2)
    assert api.good("GET", f"/v1/jobs/{wide['id']}/replay", None, oak.token)["equal"] is True
    oak.say("heartbeat", workers=["n0", "n1", "n2", "n3"])
    [offer] = oak.take()
    assert len(offer["placement"]) == 2
