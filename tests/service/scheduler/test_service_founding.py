"""What the founding texts state and Rainbow did otherwise or not at all: each failed before it was built."""

from datetime import UTC, datetime

import pytest

from rainbow.service.scheduler.step import step
from tests.conftest import grid
from tests.support.growing import bag, elastic, settings, site, there

__all__ = ["there"]  # fixtures


def scheduler(api, cluster, policy, **settings_):
    body = {"policy": policy, "settings": settings_}
    return api.good("PUT", f"/v1/clusters/{cluster.name}/scheduler", body, cluster.secret)


def pairs(least, most):
    """A jobspec of shares of two cores."""
    spec = elastic(least, most)
    spec["resources"][0]["with"] = [{"type": "core", "count": 2}]
    return spec


def test_a_needy_job_of_larger_shares_stops_no_more_than_it_needs(api):
    """The text's first figure: five shares of one quantum and two of two quanta on nine."""
    here = site(api, 3, 3)
    ann = here.submit("ann", elastic(1, 9))
    here.settle()
    assert here.held() == {ann: 9}
    bob = here.submit("bob", pairs(1, 2))
    here.step(confirm=False)
    stopping = [task for task in here.job(ann)["tasks"] if task["state"] == "STOPPING"]
    assert len(stopping) == 4
    here.confirm()
    here.settle()
    assert here.held() == {ann: 5, bob: 2}
    assert sum(task["attempt"] > 1 for task in here.job(ann)["tasks"]) == 0, "nothing was stopped to be started again"


def test_tables_of_the_resource_manager_are_figures(api):
    """The text's example: quanta 1 to 4 on 3, 2, 1 and 4 machines make [0, 26, 11, 5, 4] shares."""
    sizes = [1] * 3 + [2] * 2 + [3] + [4] * 4
    graph = grid(0, 0)
    for n, cores in enumerate(sizes):
        part = grid(n + 1, cores)["graph"]
        graph["graph"]["nodes"] |= {k: v for k, v in part["nodes"].items() if k == f"n{n}" or k.startswith(f"n{n}c")}
        graph["graph"]["edges"] += [e for e in part["edges"] if e["target"].partition("c")[0] == f"n{n}"]
    cluster = api.register("one", graph, policy={"name": "fair_share", "settings": settings()})
    cluster.say("heartbeat", running=[])
    orders = api.good("GET", "/v1/clusters/one/scheduler", None, cluster.secret)["figures"]["orders"]
    assert [line["nShares"] for line in orders.values()] == [26, 11, 5, 4]
    assert [line["nMachines"] for line in orders.values()] == [3, 2, 1, 4]
    assert [line["vMachines"] for line in orders.values()] == [0, 0, 0, 0]


def test_default_classes_that_are_missing_are_named_together(api, oak):
    classes = {name: {"policy": name} for name in ("FAIR_SHARE", "FIXED_SHARE", "RESERVE")}
    body = {"policy": "fair_share", "settings": {"classes": classes}}
    answer = api.problem(422, "policy-invalid", "PUT", "/v1/clusters/oak/scheduler", body, oak.secret)
    assert answer["detail"].startswith("no FAIR_SHARE, FIXED_SHARE or RESERVE class is the default")


@pytest.mark.parametrize(
    ("policy", "given", "pointer", "text"),
    [
        (
            "priority",
            {"queues": {"q": {"workers": ["m0"]}}},
            "/queues/q/workers/0",
            "queue q names m0, which no worker of the cluster matches; nearest: n0",
        ),
        (
            "fair_share",
            {"nodepools": {"all": {}, "far": {"parent": "all", "nodes": ["n1", "n10"]}}},
            "/nodepools/far/nodes/1",
            "nodepool far names n10, which no worker of the cluster matches; nearest: n1, n0",
        ),
        (
            "fair_share",
            {"nodepools": {"all": {}, "far": {"parent": "all", "match": "x.*"}}},
            "/nodepools/far/match",
            "nodepool far names x.*, which no worker of the cluster matches",
        ),
    ],
)
def test_machines_that_do_not_exist_are_warned_of(api, oak, policy, given, pointer, text):
    (warning,) = scheduler(api, oak, policy, **given)["warnings"]
    assert (warning["pointer"], warning["text"]) == (pointer, text)
    assert api.good("GET", "/v1/clusters/oak/scheduler", None, oak.secret)["warnings"] == [warning]


def test_why_names_the_queue_that_is_on_no_worker(api, oak):
    scheduler(api, oak, "priority", queues={"q": {"workers": ["m*"]}, "r": {}})
    oak.say("heartbeat")
    job = api.good("POST", "/v1/jobs", {"jobspec": bag(1, queue="q")}, oak.token)["id"]
    step(api.service, "oak")
    wait = api.good("GET", f"/v1/jobs/{job}/why", None, oak.token)["wait"]
    assert "queue q has none of the cluster's workers" in wait["text"]
    assert "queue r" not in wait["text"]


def test_what_others_use_of_a_worker_is_not_given_away(api, oak):
    scheduler(api, oak, "priority")
    oak.say("heartbeat", workers=["n0"], load={"core": 1})
    jobs = [api.good("POST", "/v1/jobs", {"jobspec": bag(1)}, oak.token)["id"] for _ in range(2)]
    assert len(oak.take()) == 1
    wait = api.good("GET", f"/v1/jobs/{jobs[1]}/why", None, oak.token)["wait"]
    assert wait["facts"]["reasons"] == {"in use outside Rainbow": 1, "not ready": 1}
    oak.say("heartbeat", workers=["n0"], load={"core": 2})  # of the two one is booked: what others had is back
    assert len(oak.take()) == 1


def test_load_values_are_worked_out_by_formula(api, oak):
    scheduler(api, oak, "priority", load_values={"core": "$idle*0.5"})
    oak.say("heartbeat", workers=["n0"], load={"idle": 2.0})
    for _ in range(2):
        api.good("POST", "/v1/jobs", {"jobspec": bag(1)}, oak.token)
    assert len(oak.take()) == 1


def test_tasks_that_run_long_are_a_metric(api, oak, clock):
    scheduler(api, oak, "priority")
    oak.say("heartbeat")
    api.good("POST", "/v1/jobs", {"jobspec": bag(1)}, oak.token)
    (offer,) = oak.take()
    oak.say("events", events=[{"task": offer["id"], "attempt": offer["attempt"], "event": "started"}])
    names = []
    for seconds in (4 * 3600, 1):
        clock.now += seconds
        text = api.call("GET", "/metrics", None, "rba_of-the-tests").get_data(as_text=True)
        names += [line for line in text.splitlines() if line.startswith("rainbow_tasks_long_running{")]
    assert names == [f'rainbow_tasks_long_running{{cluster="oak"}} {count}' for count in ("0.0", "1.0")]


def test_one_gang_ahead_is_one(api, oak):
    scheduler(api, oak, "priority", discipline="fcfs")
    jobs = [api.good("POST", "/v1/jobs", {"jobspec": bag(1)}, oak.token)["id"] for _ in range(6)]
    oak.say("heartbeat")
    step(api.service, "oak")
    texts = [api.good("GET", f"/v1/jobs/{job}/why", None, oak.token)["wait"]["text"] for job in jobs[4:]]
    assert texts[1] == "1 gang ahead is also waiting"


def test_reservation_without_a_zone_is_at_the_clusters_own_hour(api, oak, clock):
    clock.now = datetime(2026, 3, 28, tzinfo=UTC).timestamp()
    scheduler(api, oak, "priority", time_zone="Europe/Berlin")
    oak.say("heartbeat")
    path, body = "/v1/clusters/oak/reservations", {"jobspec": bag(1), "requestor": "ann", "duration": 3600}
    starts = [
        ("2026-03-29T01:00:00", "2026-03-29T00:00:00.000Z"),
        ("2026-03-29T03:00:00", "2026-03-29T01:00:00.000Z"),
    ]
    for local, utc in starts:
        assert api.good("POST", path, {**body, "start": local}, oak.secret)["start"] == utc
    answer = api.problem(422, "value-refused", "POST", path, {**body, "start": "2026-03-29T02:30:00"}, oak.secret)
    assert answer["detail"] == "start: 2026-03-29 02:30 does not exist there: clocks are put forward"
    assert answer["pointer"] == "/start"


VERSIONS = {
    "founding": {"resources": [{"type": "core", "count": 1}], "task": {"command": ["true"]}},
    "nextgen": {"resources": {"w": {"type": "core"}}, "tasks": [{"command": ["true"], "resources": "w"}]},
    "rfc14": {key: value for key, value in bag(1).items() if key != "version"},
}


@pytest.mark.parametrize("dialect", VERSIONS)
def test_an_unknown_version_is_a_warning_in_every_dialect(api, oak, dialect):
    for version, warned in ((1, False), (9, True)):
        answer = api.good("POST", "/v1/match", {"jobspec": {"version": version, **VERSIONS[dialect]}}, oak.token)
        text = "/version 9 is unknown; the jobspec is read as version 1"
        assert (text in answer.get("warnings", [])) is warned
