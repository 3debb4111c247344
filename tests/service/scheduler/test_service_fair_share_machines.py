"""fair_share over real stores: machines come and go, settings change, and what need not move stays."""

from rainbow.service.scheduler.step import step
from tests.conftest import Api, grid, open_service_at, snapshot
from tests.support.growing import FAIR, FIXED, bag, elastic, settings, site, states, there

__all__ = ["there"]  # fixtures


def beat(there, *workers):
    running = [{"id": task, "attempt": attempt} for task, attempt in there.runs]
    return there.cluster.say("heartbeat", workers=list(workers), running=running)


def on(there, job):
    return sorted(worker for task in there.job(job)["tasks"] for worker in task["placement"])


def test_machine_whose_heartbeats_stop_is_lost_and_its_work_goes_elsewhere(there, clock):
    ann = there.submit("ann", elastic(1, 8))
    web = there.submit("bob", bag(1, service=True))
    there.settle()
    gone = on(there, web)[0]
    rest, stopped = [f"n{k}" for k in range(4) if f"n{k}" != gone], []
    for run, job in list(there.runs.items()):
        task = next(task for task in there.job(job)["tasks"] if task["id"] == run[0])
        if gone in task["placement"]:
            del there.runs[run]
            stopped.append({"task": run[0], "attempt": run[1], "event": "ended", "result": "stopped"})
    beat(there, *rest)
    there.step()
    there.cluster.say("events", events=stopped)
    clock.now += 1  # what was lost rests for a second
    there.settle()
    assert there.held() == {ann: 8, web: 1}
    assert gone not in on(there, ann) + on(there, web)
    beat(there, *rest, gone)
    workers = {
        one["name"]: one
        for one in there.api.good("GET", "/v1/clusters/one/workers", None, there.cluster.secret)["workers"]
    }
    assert workers[gone]["state"] == "READY"


def test_missed_heartbeats_are_recorded_and_a_lease_of_them_is_the_threshold(there, clock):
    def missed():
        result = there.api.good("GET", "/v1/clusters/one/workers", None, there.cluster.secret)["workers"]
        return {(one["missed"], one["state"]) for one in result}

    lease = there.api.service.settings.lease
    ann = there.submit("ann", elastic(1, 4))
    there.settle()
    clock.now += lease  # so that the service has been there for a lease itself
    beat(there, "n0", "n1", "n2", "n3")
    assert missed() == {(0, "READY")}
    clock.now += lease * 2 / 3
    step(there.api.service, "one")
    assert missed() == {(2, "READY")}
    assert there.held() == {ann: 4}
    clock.now += lease / 2
    step(there.api.service, "one")
    assert missed() == {(3, "LOST")}
    clock.now += there.api.service.settings.grace
    step(there.api.service, "one")
    assert states(there, ann) == ["WAITING"] * 4


def test_varied_off_machine_loses_what_can_be_preempted_and_is_used_again_when_it_is_back(there):
    ann, fixed = there.submit("ann", elastic(1, 16)), there.submit("bob", bag(2))
    there.settle()
    off = on(there, fixed)[0]
    there.api.good("POST", f"/v1/clusters/one/workers/{off}:offline", None, there.cluster.secret)
    before = on(there, fixed)
    there.settle()
    assert on(there, fixed) == before
    assert off not in on(there, ann)
    assert there.held() == {ann: 12, fixed: 2}
    beat(there, "n0", "n1", "n2", "n3")
    assert not there.step(), "a heartbeat does not bring back what was taken away"
    there.api.good("POST", f"/v1/clusters/one/workers/{off}:reinstate", None, there.cluster.secret)
    there.settle()
    assert there.held() == {ann: 14, fixed: 2}


def put(there, **more):
    body = {"policy": "fair_share", "settings": settings(**more)}
    return there.api.good("PUT", "/v1/clusters/one/scheduler", body, there.cluster.secret)


POOLS = {"most": {}, "few": {"nodes": ["n3"]}}


def test_settings_that_say_the_same_again_disturb_nothing(there):
    there.submit("ann", elastic(1, 16))
    there.submit("bob", bag(3))
    there.settle()
    before = set(there.runs)
    put(there)
    assert not there.step()
    put(there, nodepools={"default": {}})
    assert not there.step()
    assert set(there.runs) == before


def test_machine_that_changes_its_nodepool_is_closed_until_the_work_of_others_has_left(there):
    ann, fixed = there.submit("ann", elastic(1, 16)), there.submit("bob", bag(4))
    there.settle()
    put(
        there, nodepools=POOLS, classes={"fair": {**FAIR, "nodepool": "most"}, "fixed": {**FIXED, "nodepool": "most"}}
    )
    there.settle()
    assert there.held()[fixed] == 4
    assert "n3" not in on(there, ann)
    strangers = on(there, fixed).count("n3")
    closed = there.figures()["machines"].get("n3", {}).get("closed", "")
    assert closed == ("blacklisted" if strangers else "")
    put(there)
    there.settle()
    assert there.held() == {ann: 12, fixed: 4}


def test_work_whose_class_is_gone_is_blacklisted_and_welcome_again_when_the_class_is_back(there):
    ann = there.submit("ann", elastic(1, 8, **{"class": "fair"}))
    fixed = there.submit("bob", bag(2, **{"class": "fixed"}))
    there.settle()
    put(there, classes={"other": FAIR})
    there.settle()
    assert there.held() == {fixed: 2}, "what may come and go has left, what is fixed is waited for"
    assert {one["closed"] for one in there.figures()["machines"].values()} == {"blacklisted"}
    assert there.job(ann)["wait"]["reason"] == "no-class"
    put(there)
    there.settle()
    assert there.held() == {ann: 8, fixed: 2}


def change(there, graph):
    there.api.good("PUT", "/v1/clusters/one/graph", graph, there.cluster.secret)
    beat(there, *(f"n{k}" for k in range(5)))


def test_machine_that_arrives_is_used_and_one_that_shrinks_is_not_overfilled(there):
    ann = there.submit("ann", elastic(1, 30))
    there.settle()
    assert there.held() == {ann: 16}
    change(there, grid(5, 4))
    there.settle()
    assert there.held() == {ann: 20}
    smaller = grid(5, 4)["graph"]
    lost = {"n0c2", "n0c3"}
    nodes = {name: node for name, node in smaller["nodes"].items() if name not in lost}
    change(there, {"graph": {"nodes": nodes, "edges": [e for e in smaller["edges"] if e["target"] not in lost]}})
    there.submit("bob", elastic(1, 30))
    there.settle()
    machines = there.figures()["machines"]
    assert all(one["used"] <= one["order"] or name == "n0" for name, one in machines.items())
    assert sum(there.held().values()) >= 18


def test_refused_settings_change_nothing(there):
    ann = there.submit("ann", elastic(1, 8))
    there.settle()
    body = {"settings": settings(classes={"fair": {**FAIR, "nodepool": "nowhere"}})}
    answer = there.api.problem(422, "policy-invalid", "PUT", "/v1/clusters/one/scheduler", body, there.cluster.secret)
    assert answer["pointer"] == "/settings/classes/fair/nodepool"
    assert not there.step()
    assert there.held() == {ann: 8}


def test_restart_disturbs_nothing_that_runs(database, clock):
    service = open_service_at(database, clock)
    there = site(Api(service))
    ann, bob = there.submit("ann", elastic(1, 16)), there.submit("bob", elastic(1, 16))
    fixed = there.submit("eve", bag(2))
    there.settle()
    before = set(there.runs)
    service.close()
    there.api = there.cluster.api = Api(open_service_at(database, clock))
    beat(there, "n0", "n1", "n2", "n3")
    assert not there.step()
    assert set(there.runs) == before
    assert there.held() == {ann: 7, bob: 7, fixed: 2}
    there.api.service.close()


def test_cluster_at_rest_remembers_nothing_and_is_left_alone(there):
    ann = there.submit("ann", elastic(1, 2))
    there.settle()
    for run in list(there.runs):
        there.end(run)
    there.step()
    assert there.job(ann)["state"] == "COMPLETED"
    there.step()
    assert snapshot(there.api.service, "one").record.memory == {}
    assert there.api.service.poll_every_tick == set()
