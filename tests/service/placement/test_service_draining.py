"""A cluster that takes nothing new, and takes it again."""

from rainbow.service.placement import failover
from rainbow.service.scheduler.step import step
from rainbow.store import workers
from tests.conftest import ADMIN, REGISTRATION, grid, jobspec, open_service_at
from tests.conftest import Api as Voice


def submit(api, *clusters):
    return api.good("POST", "/v1/jobs", {"jobspec": jobspec()}, *(one.token for one in clusters))


def test_what_waits_leaves_and_what_runs_goes_on(api):
    oak = api.register("oak", grid(1, 1))
    oak.say("heartbeat", running=[])
    runs, waits, too = (submit(api, oak)["id"] for _ in range(3))
    (offer,) = oak.take()
    assert offer["job"] == runs
    answer = api.good("POST", "/v1/clusters/oak:drain", None, oak.secret)
    assert answer["name"] == "oak"
    assert answer["drained_at"]
    oak.end(offer)
    assert oak.take() == []
    assert {api.good("GET", f"/v1/jobs/{job}", None, ADMIN)["state"] for job in (waits, too)} == {"WAITING"}
    assert api.good("GET", f"/v1/jobs/{waits}/why", None, ADMIN)["wait"]["reason"] == "drained"
    refusal = api.problem(503, "try-later", "POST", "/v1/jobs", {"jobspec": jobspec()}, oak.token)
    assert refusal["detail"] == "drained until reinstated: oak"
    assert api.good("POST", "/v1/clusters/oak:drain", None, oak.secret) == answer
    assert api.good("POST", "/v1/clusters/oak:reinstate", None, oak.secret) == {"name": "oak", "drained_at": None}
    assert [one["job"] for one in oak.take()] == [waits]


def test_job_that_may_go_elsewhere_is_placed_anew(api, monkeypatch):
    monkeypatch.setattr(failover, "SLICE", 5.0)  # all in one step
    oak, elm = api.register("oak", grid(1, 1)), api.register("elm", grid(1, 1))
    api.good("POST", "/v1/clusters/elm:drain", None, elm.secret)
    job = submit(api, oak, elm)
    assert job["cluster"] == "oak"  # what is drained is no candidate
    api.good("POST", "/v1/clusters/elm:reinstate", None, elm.secret)
    jobs = [submit(api, oak, elm) for _ in range(8)]
    api.good("POST", "/v1/clusters/oak:drain", None, oak.secret)
    step(api.service, "oak")
    placed = {api.good("GET", f"/v1/jobs/{one['id']}", None, ADMIN)["cluster"] for one in jobs}
    assert placed == {"elm"}


def test_both_are_audited_and_outlive_a_restart(api, service, database, clock):
    oak = api.register("oak", grid(1, 1))
    api.good("POST", "/v1/clusters/oak:drain", None, oak.secret)
    (change,) = api.good("GET", "/v1/clusters/oak/scheduler/changes", None, oak.secret)["changes"]
    assert (change["what"], change["from"], change["to"]) == ("drained", False, True)
    again = Voice(open_service_at(database, clock))
    assert again.good("GET", "/v1/clusters/oak", None, oak.secret)["drained_at"]
    assert again.service.catalogue["oak"].drained
    again.service.close()


def test_only_its_operator_drains_a_cluster(api):
    oak = api.register("oak", grid(1, 1))
    for token in (oak.token, REGISTRATION):
        assert api.call("POST", "/v1/clusters/oak:drain", None, token).status_code in (401, 403, 404)


def test_a_new_cluster_begins_with_the_limits_its_server_is_configured_with(database, clock):
    originals = {"max_requestors": 10, "max_jobs_per_requestor": 100, "task_minutes": 30}
    service = open_service_at(database, clock, admission=originals)
    api = Voice(service)
    oak = api.register("oak", grid(1, 1))
    limits = api.good("GET", "/v1/clusters/oak/scheduler", None, oak.secret)["limits"]
    assert (limits["max_requestors"], limits["max_jobs_per_requestor"], limits["task_minutes"]) == (10, 100, 30)
    for name in [f"r{k}" for k in range(10)]:
        api.good("POST", "/v1/jobs", {"jobspec": jobspec(), "requestor": name}, oak.token)
    answer = api.problem(429, "too-many", "POST", "/v1/jobs", {"jobspec": jobspec(), "requestor": "r10"}, oak.token)
    assert "has 10 of at most 10 users with active jobs" in answer["detail"]
    assert "rainbow scheduler set oak --max-requestors N" in answer["detail"]
    api.good("PATCH", "/v1/clusters/oak/scheduler", {"limits": {"max_requestors": 11}}, oak.secret)
    api.good("POST", "/v1/jobs", {"jobspec": jobspec(), "requestor": "r10"}, oak.token)
    made = api.good("PATCH", "/v1/clusters/oak/scheduler", {"limits": {"max_requestors": None}}, oak.secret)
    assert made["limits"]["max_requestors"] == 10
    elm = api.register("elm", grid(1, 1), policy={"name": "delegate"})
    assert api.good("GET", "/v1/clusters/elm/scheduler", None, elm.secret)["limits"]["max_requestors"] == -1
    service.close()


def states(api):
    return {
        one["name"]: (one["state"], one["ready"]) for one in api.good("GET", "/v1/clusters", None, ADMIN)["clusters"]
    }


def test_the_list_tells_how_every_cluster_is(api):
    oak, elm, ash = (api.register(name, grid(2, 1)) for name in ("oak", "elm", "ash"))
    assert states(api) == dict.fromkeys(("ash", "elm", "oak"), ("unattended", 0))
    for each in (oak, elm, ash):
        each.say("heartbeat", running=[])
    assert states(api) == dict.fromkeys(("ash", "elm", "oak"), ("up", 2))
    api.good("POST", "/v1/clusters/oak/workers/n0:drain", None, oak.secret)
    api.good("POST", "/v1/clusters/elm:drain", None, elm.secret)
    submit(api, ash)
    ash.take()
    api.good("DELETE", "/v1/clusters/ash?drain=true", None, ash.secret)
    assert states(api) == {"oak": ("up", 1), "elm": ("drained", 2), "ash": ("deleting", 2)}
    shown = api.good("GET", "/v1/clusters/elm", None, elm.token)
    assert (shown["state"], shown["draining"], shown["drained_at"][-1]) == ("drained", False, "Z")


def test_the_list_asks_once_for_all_clusters(api, monkeypatch):
    for name in ("oak", "elm", "ash"):
        api.register(name, grid(1, 1))
    requests = []
    monkeypatch.setattr(workers, "counts", lambda _, ids: requests.append(len(ids)) or {})
    states(api)
    assert requests == [3]
