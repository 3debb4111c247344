"""Qualities of service at the server: who may use one, what it preempts, and limits of running cores."""

import pytest

from rainbow.service.scheduler.step import step
from tests.conftest import ADMIN, jobspec


@pytest.fixture
def centre(api, oak):
    """Two accounts and three qualities of service on a cluster of two nodes of two cores."""
    for name, user in (("bio", "ann"), ("cfd", "bob")):
        api.good("PUT", f"/v1/accounts/{name}", {"users": {user: {}}}, ADMIN)
    api.good("PUT", "/v1/qos/safe", {"exempt": ["preemption"]}, ADMIN)
    api.good("PUT", "/v1/qos/low", {"priority": -10}, ADMIN)
    urgent = {"priority": 100, "preempts": ["default", "low"], "accounts": ["cfd"], "signal": "USR1", "grace": 9}
    api.good("PUT", "/v1/qos/urgent", urgent, ADMIN)
    oak.say("heartbeat", workers=["n0", "n1"])
    return oak


def submit(api, oak, user, qos=None, **more):
    system = {"qos": qos} if qos else {}
    return api.call(
        "POST", "/v1/jobs", {"jobspec": jobspec(duration=500, **system), "requestor": user, **more}, oak.token
    )


def fill(api, oak, *kinds):
    """Run a job of ann's of each kind; return the offers."""
    for qos in kinds:
        assert submit(api, oak, "ann", qos).status_code == 201
    offers = oak.take()
    oak.say("events", events=[{"task": o["id"], "attempt": o["attempt"], "event": "started"} for o in offers])
    return offers


def test_a_qos_that_is_unknown_or_forbidden_is_refused_with_those_one_may_use(api, centre):
    for request in ("urgent", "urgnet"):
        answer = submit(api, centre, "ann", request)
        assert (answer.status_code, answer.get_json()["qos"]) == (403, ["low", "safe"])
    assert answer.get_json()["detail"].endswith("ann may use: low, safe")
    job = submit(api, centre, "bob", "urgent").get_json()["id"]
    shown = api.good("GET", f"/v1/jobs/{job}", None, centre.token)
    assert (shown["qos"], shown["priority"]) == ("urgent", 100)


def test_a_server_without_any_qos_leaves_it_to_the_cluster(api, oak):
    assert submit(api, oak, "ann", "nosuch").status_code == 201


def test_a_qos_is_checked_listed_and_deleted_by_the_administrator_alone(api, centre):
    api.problem(403, "forbidden", "PUT", "/v1/qos/x", {}, centre.secret)
    for body, pointer in (
        ({"grace": -1}, "/grace"),
        ({"preempts": ["none"]}, "/preempts/0"),
        ({"accounts": ["x"]}, "/accounts/0"),
    ):
        answer = api.call("PUT", "/v1/qos/x", body, ADMIN)
        assert (answer.status_code, answer.get_json()["pointer"]) == (422, pointer)
    assert [one["name"] for one in api.good("GET", "/v1/qos", None, centre.token)["qos"]] == ["low", "safe", "urgent"]
    submit(api, centre, "ann", "low")
    api.problem(409, "conflict", "DELETE", "/v1/qos/low", None, ADMIN)
    api.good("DELETE", "/v1/qos/safe", None, ADMIN)


@pytest.mark.parametrize("policy", ["load_based", "priority"])
def test_a_job_preempts_what_it_may_with_signal_and_grace_and_takes_its_place(api, centre, policy):
    api.good("PUT", "/v1/clusters/oak/scheduler", {"policy": policy}, centre.secret)
    _, low, _, plain = fill(api, centre, "safe", "low", "safe", None)
    urgent = submit(api, centre, "bob", "urgent").get_json()["id"]
    step(api.service, "oak")
    answer = centre.say("receive")["stop"]
    assert answer == [{"id": low["id"], "attempt": 1, "signal": "USR1", "grace": 9}]  # the lowest priority
    step(api.service, "oak")
    assert len(centre.say("receive")["stop"]) == 1  # once
    why = api.good("GET", f"/v1/jobs/{low['job']}/why", None, centre.token)["wait"]
    assert why["text"] == f"preempted by job {urgent}: 1 task told by USR1, ended in 9 s"
    why = api.good("GET", f"/v1/jobs/{urgent}/why", None, centre.token)["wait"]
    assert why["text"] == f"preempts 1 task of 1 job ({low['job']}), which end first"
    centre.end(low, result="stopped")
    [offer] = centre.take()
    assert offer["job"] == urgent
    why = api.good("GET", f"/v1/jobs/{low['job']}/why", None, centre.token)
    assert why["preempted"]["by"] == urgent
    centre.end(plain)
    [again] = centre.take()
    assert (again["job"], again["attempt"]) == (low["job"], 2)
    assert "preempted" not in api.good("GET", f"/v1/jobs/{low['job']}/why", None, centre.token)


def test_what_is_exempt_is_not_preempted_however_long_others_wait(api, centre):
    fill(api, centre, "safe", "safe", "safe", "safe")
    submit(api, centre, "bob", "urgent")
    step(api.service, "oak")
    assert centre.say("receive")["stop"] == []


def test_a_whole_worker_is_freed_where_each_serves_one_job_at_a_time(api, centre):
    centre.serve_one_job_a_worker()
    _, low = fill(api, centre, "safe", "low")
    urgent = submit(api, centre, "bob", "urgent").get_json()["id"]
    step(api.service, "oak")
    assert [one["id"] for one in centre.say("receive")["stop"]] == [low["id"]]
    centre.end(low, result="stopped")
    assert [offer["job"] for offer in centre.take()] == [urgent]


def test_preempted_jobs_are_canceled_where_the_qos_says_so(api, centre):
    api.good("PUT", "/v1/qos/urgent", {"how": "cancel"}, ADMIN)
    first, *_ = fill(api, centre, "low", "safe", "safe", "safe")
    submit(api, centre, "bob", "urgent")
    step(api.service, "oak")
    assert [one["signal"] for one in centre.say("receive")["stop"]] == ["USR1"]
    centre.end(first, result="stopped")
    assert api.good("GET", f"/v1/jobs/{first['job']}", None, centre.token)["state"] == "CANCELED"


def test_starts_wait_for_a_limit_of_running_cores_over_all_clusters(api, centre):
    elm = api.register("elm")
    elm.say("heartbeat", workers=["n0", "n1"])
    api.good(
        "PUT", "/v1/accounts/bio", {"limits": {"running_cores": 3, "clusters": {"elm": {"running_cores": 1}}}}, ADMIN
    )
    for cluster, count in ((elm, 2), (centre, 4)):
        for _ in range(count):
            where = [{"name": cluster.name, "token": cluster.token}]
            assert submit(api, cluster, "ann", clusters=where).status_code == 201
    texts: set[str] = set()
    [on_elm] = elm.take()
    for take in (list, centre.take):
        offers = take()
        listed = api.good("GET", "/v1/jobs?state=WAITING", None, ADMIN)["jobs"]
        texts |= {one["wait"]["text"] for one in listed if one["wait"]["reason"] == "running-limit"}
    assert len(offers) == 2
    assert sorted(texts) == [
        "account bio may run 1 core on elm; 1 in use, 1 needed",
        "account bio may run 3 cores over all clusters; 3 in use, 1 needed",
    ]
    elm.say("events", events=[{"task": on_elm["id"], "attempt": 1, "event": "started"}])
    elm.end(on_elm)
    assert len(centre.take()) == 1


def test_usage_of_a_cluster_is_not_shown_to_who_registers_its_name_again(api, centre, clock):
    clock.now = 86_400 * 20_000
    centre.say("heartbeat", workers=["n0", "n1"])
    [offer] = fill(api, centre, None)
    clock.now += 3_600
    centre.end(offer)
    query = "/v1/usage?by=cluster,account&since=2024-09-01"
    rows = api.good("GET", query, None, centre.secret)["rows"]
    assert [row["cluster"] for row in rows] == ["oak"]
    api.good("DELETE", "/v1/clusters/oak", None, centre.secret)
    again = api.register("oak")
    assert api.good("GET", query, None, again.secret)["rows"] == []
    assert api.good("GET", query, None, ADMIN)["rows"] == rows  # statements name it still


def test_an_account_shows_what_it_borrows_and_lends_and_gets_back_what_it_is_guaranteed(api, centre):
    api.good("PUT", "/v1/accounts/org", {"limits": {"running_cores": 4}}, ADMIN)
    for name in ("bio", "cfd"):
        api.good("PUT", f"/v1/accounts/{name}", {"parent": "org", "limits": {"guaranteed_cores": 2}}, ADMIN)
    fill(api, centre, None, None, None)
    shown = [api.good("GET", f"/v1/accounts/{name}", None, ADMIN)["cores"] for name in ("bio", "cfd")]
    assert shown[0] == {"guaranteed": 2, "running": 3, "borrowed": 1, "lent": 0}
    assert shown[1] == {"guaranteed": 2, "running": 0, "borrowed": 0, "lent": 1}
    jobs = [submit(api, centre, "bob").get_json()["id"] for _ in range(3)]
    [first] = centre.take()
    step(api.service, "oak")
    assert (first["job"], len(centre.say("receive")["stop"])) == (jobs[0], 1)
