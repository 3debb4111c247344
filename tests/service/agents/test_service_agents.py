"""Tasks on their way: offered, accepted, ended, lost with their agent, canceled."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.service.scheduler.loop import step_safely
from rainbow.service.scheduler.step import step
from tests.conftest import Api, Clock, Cluster, grid, jobspec, open_service_at

LEASE, GRACE = 60.0, 10.0


def submit(cluster: Cluster, spec: Any = None) -> str:
    placed = cluster.api.good("POST", "/v1/jobs", spec or jobspec(), cluster.token)
    return str(placed["id"])


def shown(cluster: Cluster, job: str) -> Any:
    return cluster.api.good("GET", f"/v1/jobs/{job}", None, cluster.token)


def states(cluster: Cluster, job: str) -> tuple[str, list[str]]:
    answer = shown(cluster, job)
    return answer["state"], [task["state"] for task in answer["tasks"]]


def test_job_from_submit_to_its_end_goes_through_the_states(oak: Cluster) -> None:
    job = submit(oak, jobspec(command=["echo", "a \"quoted\" 'text'"]))
    assert states(oak, job) == ("WAITING", ["WAITING"])
    oak.say("heartbeat")
    step(oak.api.service, "oak")
    assert states(oak, job) == ("WAITING", ["ASSIGNED"])
    [offer] = oak.take()
    assert offer["command"] == ["echo", "a \"quoted\" 'text'"]
    assert offer["processes"] == 1
    assert list(offer["placement"]) in (["n0"], ["n1"])
    assert states(oak, job) == ("WAITING", ["ACCEPTED"])
    oak.say("events", events=[{"task": offer["id"], "attempt": 1, "event": "started"}])
    assert states(oak, job) == ("RUNNING", ["RUNNING"])
    assert oak.end(offer, output="tail")["recorded"] == [offer["id"]]
    assert states(oak, job) == ("COMPLETED", ["COMPLETED"])
    assert shown(oak, job)["tasks"][0]["exit_code"] == 0
    assert shown(oak, job)["tasks"][0]["output"] == "tail"


def test_output_that_is_told_while_a_task_runs_is_shown_and_the_end_replaces_it(oak: Cluster) -> None:
    job = submit(oak)
    oak.say("heartbeat")
    [offer] = oak.take()
    run = {"task": offer["id"], "attempt": offer["attempt"]}
    answers = [{**run, "event": "started"}, {**run, "event": "output", "output": "so far\n"}]
    oak.say("events", events=answers)
    assert (states(oak, job)[1], shown(oak, job)["tasks"][0]["output"]) == (["RUNNING"], "so far\n")
    oak.end(offer, output="so far\nall\n")
    assert shown(oak, job)["tasks"][0]["output"] == "so far\nall\n"


def test_task_that_was_canceled_at_its_site_is_over(oak: Cluster) -> None:
    job = submit(oak)
    oak.say("heartbeat")
    [offer] = oak.take()
    oak.end(offer, result="canceled", exit_code=None, detail="canceled at the site by user 0")
    assert states(oak, job) == ("CANCELED", ["CANCELED"])
    assert shown(oak, job)["tasks"][0]["detail"] == "canceled at the site by user 0"


def test_job_before_any_agent_was_seen_waits_and_says_so(oak: Cluster) -> None:
    job = submit(oak)
    step(oak.api.service, "oak")
    answer = oak.api.good("GET", f"/v1/jobs/{job}/why", None, oak.token)
    assert answer["state"] == "WAITING"
    assert answer["wait"]["reason"]
    assert answer["wait"]["text"]
    workers = oak.api.good("GET", "/v1/clusters/oak/workers", None, oak.secret)["workers"]
    assert [worker["state"] for worker in workers] == ["NEW", "NEW"]


def test_receive_before_accept_offers_the_same_again(oak: Cluster) -> None:
    submit(oak)
    oak.say("heartbeat")
    step(oak.api.service, "oak")
    assert oak.say("receive", max=5)["tasks"] == oak.say("receive", max=5)["tasks"] != []


def test_accept_by_two_agents_gives_the_task_to_the_first(oak: Cluster) -> None:
    submit(oak)
    oak.say("heartbeat")
    step(oak.api.service, "oak")
    [offer] = oak.say("receive", "a", max=5)["tasks"]
    requirements = [{"id": offer["id"], "attempt": offer["attempt"]}]
    assert oak.say("accept", "a", tasks=requirements)["accepted"] == [offer["id"]]
    assert oak.say("accept", "a", tasks=requirements)["accepted"] == [offer["id"]]
    refused = oak.say("accept", "b", tasks=requirements)
    assert refused["accepted"] == []
    assert refused["refused"][0]["id"] == offer["id"]


@pytest.mark.parametrize(
    ("event", "state"),
    [
        ({"result": "exited", "exit_code": 3}, "FAILED"),
        ({"result": "exited", "exit_code": -9}, "FAILED"),
        ({"result": "failed", "exit_code": None, "detail": "no such file"}, "FAILED"),
        ({"result": "timed_out", "exit_code": None}, "TIMED_OUT"),
    ],
)
def test_task_that_ends_badly_fails_its_job(oak: Cluster, event: dict[str, Any], state: str) -> None:
    job = submit(oak)
    oak.say("heartbeat")
    [offer] = oak.take()
    oak.end(offer, **event)
    assert states(oak, job) == ("FAILED", [state])


def test_end_told_twice_is_recorded_twice_and_changes_nothing(oak: Cluster) -> None:
    job = submit(oak)
    oak.say("heartbeat")
    [offer] = oak.take()
    oak.end(offer, output="first")
    before = shown(oak, job)
    assert oak.end(offer, output="second")["recorded"] == [offer["id"]]
    assert shown(oak, job) == before


def test_task_stopped_by_nobody_waits_again_as_another_attempt(oak: Cluster) -> None:
    job = submit(oak)
    oak.say("heartbeat")
    [first] = oak.take()
    oak.end(first, result="stopped", exit_code=None)
    assert states(oak, job)[1] == ["WAITING"]
    [second] = oak.take()
    assert (second["id"], second["attempt"]) == (first["id"], 2)
    assert oak.end(first)["stale"] == [first["id"]]
    assert oak.end(second)["recorded"] == [first["id"]]
    assert states(oak, job)[0] == "COMPLETED"


def test_silent_agent_loses_its_tasks_and_is_told_they_are_stale(oak: Cluster, clock: Clock) -> None:
    job = submit(oak)
    oak.say("heartbeat", "a")
    [offer] = oak.take("a")
    clock.now += LEASE + 1
    oak.say("heartbeat", "b")
    step(oak.api.service, "oak")
    assert states(oak, job)[1] == ["ACCEPTED"], "the agent has the grace to stop it"
    clock.now += GRACE
    oak.say("heartbeat", "b")
    assert oak.take("b") == [], "a task that was lost rests for a second"
    clock.now += 1
    [again] = oak.take("b")
    assert (again["id"], again["attempt"]) == (offer["id"], 2)
    assert oak.end(offer, "a")["stale"] == [offer["id"]]
    running = [{"id": offer["id"], "attempt": 1}]
    assert oak.say("heartbeat", "a", running=running)["stale"] == [offer["id"]]
    oak.end(again, "b")
    assert states(oak, job) == ("COMPLETED", ["COMPLETED"])


def test_agent_that_sends_anything_within_its_lease_keeps_its_tasks(oak: Cluster, clock: Clock) -> None:
    job = submit(oak)
    oak.say("heartbeat")
    oak.take()
    for _ in range(5):
        clock.now += LEASE - 1
        oak.say("receive")
        step(oak.api.service, "oak")
    assert states(oak, job)[1] == ["ACCEPTED"]


def test_worker_missing_from_its_agents_heartbeat_gets_nothing(oak: Cluster) -> None:
    oak.serve_one_job_a_worker()
    oak.say("heartbeat", workers=["n1"])
    jobs = [submit(oak), submit(oak)]
    oak.say("receive")
    [offer] = oak.take()
    assert list(offer["placement"]) == ["n1"]
    assert sorted(states(oak, job)[1][0] for job in jobs) == ["ACCEPTED", "WAITING"]


def test_worker_no_longer_in_its_agents_heartbeat_gives_its_task_back(oak: Cluster, clock: Clock) -> None:
    job = submit(oak)
    oak.say("heartbeat", workers=["n0"])
    [offer] = oak.take()
    assert list(offer["placement"]) == ["n0"]
    oak.say("heartbeat", workers=["n1"])
    step(oak.api.service, "oak")
    assert states(oak, job)[1] == ["STOPPING"], "its agent lives: until it has stopped the task, nobody else gets it"
    oak.end(offer, result="stopped", exit_code=None)
    clock.now += 1
    [again] = oak.take()
    assert (again["id"], again["attempt"], list(again["placement"])) == (offer["id"], 2, ["n1"])
    assert states(oak, job)[1] == ["ACCEPTED"]


def test_workers_of_two_agents_are_ready_while_each_speaks_for_its_own(oak: Cluster, clock: Clock) -> None:
    oak.say("heartbeat", "a", workers=["n0"])
    oak.say("heartbeat", "b", workers=["n1"])
    submit(oak, jobspec(2))
    clock.now += LEASE - 1
    oak.say("receive", "a")
    step(oak.api.service, "oak")
    clock.now += 2
    step(oak.api.service, "oak")
    workers = oak.api.good("GET", "/v1/clusters/oak/workers", None, oak.secret)["workers"]
    assert {worker["name"]: worker["state"] for worker in workers} == {"n0": "READY", "n1": "LOST"}


def test_restart_gives_leases_anew_and_runs_nothing_twice(oak: Cluster, database: str, clock: Clock) -> None:
    done, running = submit(oak), submit(oak)
    oak.say("heartbeat")
    offers = {offer["job"]: offer for offer in oak.take()}
    oak.end(offers[done])
    oak.api.service.close()
    clock.now += 10 * LEASE
    oak.api = Api(open_service_at(database, clock))
    step(oak.api.service, "oak")
    assert states(oak, done) == ("COMPLETED", ["COMPLETED"])
    assert states(oak, running) == ("WAITING", ["ACCEPTED"])
    assert oak.end(offers[running])["recorded"] == [offers[running]["id"]]
    assert states(oak, running)[0] == "COMPLETED"
    oak.api.service.close()


def test_cancel_of_a_waiting_job_ends_it_at_once(oak: Cluster) -> None:
    job = submit(oak)
    for _ in range(2):  # said twice it is the same
        assert oak.api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)["state"] == "CANCELED"


def test_cancel_of_a_running_job_waits_for_its_agent(oak: Cluster) -> None:
    oak.serve_one_job_a_worker()
    job, other = submit(oak, jobspec(2)), submit(oak)
    oak.say("heartbeat")
    [offer] = oak.take()
    oak.api.good("DELETE", f"/v1/jobs/{job}", None, oak.token)
    assert states(oak, job)[1] == ["STOPPING"]
    assert oak.say("receive")["stop"] == [{"id": offer["id"], "attempt": 1}]
    assert oak.say("heartbeat")["stop"] == [{"id": offer["id"], "attempt": 1}]
    step(oak.api.service, "oak")
    assert states(oak, other)[1] == ["WAITING"], "its space is booked until the end is confirmed"
    oak.end(offer, result="stopped", exit_code=None)
    assert states(oak, job) == ("CANCELED", ["CANCELED"])
    assert [taken["job"] for taken in oak.take()] == [other]


def test_nodes_of_a_job_are_free_again_when_it_has_ended(api: Api) -> None:
    oak = api.register("oak", grid(1, 1))
    oak.say("heartbeat")
    jobs = [submit(oak) for _ in range(3)]
    for job in jobs:
        [offer] = oak.take()
        assert offer["job"] == job
        oak.end(offer)
    assert [states(oak, job)[0] for job in jobs] == ["COMPLETED"] * 3


def test_policy_that_fails_stops_no_other_cluster(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    oak, elm = api.register("oak"), api.register("elm")
    for cluster in (oak, elm):
        cluster.say("heartbeat")
    jobs = {cluster.name: submit(cluster) for cluster in (oak, elm)}
    real = step

    def broken(service: Any, name: str) -> bool:
        if name == "oak":
            raise ZeroDivisionError("a policy's own fault")
        return real(service, name)

    monkeypatch.setattr("rainbow.service.scheduler.loop.step", broken)
    assert [step_safely(api.service, name) for name in ("oak", "elm")] == [False, True]
    assert states(oak, jobs["oak"])[1] == ["WAITING"]
    assert states(elm, jobs["elm"])[1] == ["ASSIGNED"]
    fault = api.good("GET", "/v1/clusters/oak/scheduler", None, oak.secret)["fault"]
    assert "a policy's own fault" in fault


def test_heartbeat_that_was_overtaken_loses_no_worker(oak: Cluster) -> None:
    oak.say("heartbeat", workers=["n0", "n1"], seq=7)
    oak.say("heartbeat", workers=["n0"], seq=6)
    workers = oak.api.good("GET", "/v1/clusters/oak/workers", None, oak.secret)["workers"]
    assert [worker["state"] for worker in workers] == ["READY", "READY"]
    oak.say("heartbeat", workers=["n0"], seq=8)
    workers = oak.api.good("GET", "/v1/clusters/oak/workers", None, oak.secret)["workers"]
    assert [worker["state"] for worker in workers] == ["READY", "LOST"]


@pytest.mark.parametrize("seq", [-1, 2**53, "1", True, 1.5, None, [], {}])
def test_number_of_a_message_that_is_none_is_refused(oak: Cluster, seq: Any) -> None:
    body = {"agent": "a", "seq": seq}
    answer = oak.api.problem(400, "request-invalid", "POST", "/v1/clusters/oak/heartbeat", body, oak.secret)
    assert answer["pointer"] == "/seq"


def test_accept_of_what_the_same_agent_runs_is_accepted_again_and_start_and_end_told_again_are_recorded(
    oak: Cluster,
) -> None:
    submit(oak)
    oak.say("heartbeat")
    [offer] = oak.take()
    requirements = [{"id": offer["id"], "attempt": 1}]
    begun = {"task": offer["id"], "attempt": 1, "event": "started"}
    oak.say("events", events=[begun])
    assert oak.say("accept", tasks=requirements)["accepted"] == [offer["id"]]
    assert oak.say("accept", "b", tasks=requirements)["accepted"] == []
    oak.end(offer)
    again = oak.say("events", events=[begun, {**begun, "event": "ended", "result": "exited", "exit_code": 0}])
    assert again == {"recorded": [offer["id"], offer["id"]], "stale": []}
    assert oak.say("accept", tasks=requirements)["accepted"] == []
