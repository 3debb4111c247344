"""fair_share over real stores: elastic jobs grow and shrink, services keep their number, machines come and go."""

import pytest

from rainbow.service.steps.freezing import freeze
from rainbow.service.steps.stepping import step
from rainbow.service.submits.instances import SOON, STARTS
from tests.conftest import Api, grid, open_service_at
from tests.growing import FAIR, FIXED, Site, bag, elastic, settings


def site(api, nodes=4, cores=4, **more):
    policy = {"name": "fair_share", "settings": settings(**more)}
    return Site(api, api.register("one", grid(nodes, cores), policy=policy))


@pytest.fixture
def there(api):
    return site(api)


def states(there, job):
    return sorted(task["state"] for task in there.job(job)["tasks"])


# ── elastic jobs ──


def test_second_user_shrinks_the_first_to_half_and_gives_it_back(there):
    ann = there.submit("ann", elastic(2, 16))
    there.settle()
    assert there.held() == {ann: 16}
    bob = there.submit("bob", elastic(1, 20))
    assert there.settle() <= 3
    assert there.held() == {ann: 8, bob: 8}
    for run in [run for run, job in there.runs.items() if job == bob]:
        there.end(run)
    there.api.good("DELETE", f"/v1/jobs/{bob}", None, there.cluster.token)
    there.settle()
    assert there.held() == {ann: 16}


def test_job_holds_no_more_than_its_max_and_no_less_than_its_min(there):
    ann = there.submit("ann", elastic(2, 5))
    there.settle()
    assert there.held() == {ann: 5}
    there.submit("bob", elastic(15, 16))
    there.settle()
    assert there.held() == {ann: 5}, "bob works with no fewer than 15 shares"


def test_space_is_booked_until_the_end_is_confirmed_and_the_stop_is_never_taken_back(there, clock):
    ann = there.submit("ann", elastic(1, 16))
    there.settle()
    bob = there.submit("bob", elastic(1, 16))
    there.step(confirm=False)
    assert states(there, ann).count("STOPPING") == 8
    assert not there.step(confirm=False), "nothing starts before what was stopped has ended, nothing is stopped twice"
    there.api.good("DELETE", f"/v1/jobs/{bob}", None, there.cluster.token)
    assert not there.step(confirm=False)
    assert states(there, ann).count("STOPPING") == 8
    assert there.confirm() == 8
    assert states(there, ann).count("WAITING") == 8
    there.settle()
    assert there.held() == {ann: 16}
    assert sorted(task["attempt"] for task in there.job(ann)["tasks"]) == [1] * 8 + [2] * 8


def test_work_that_was_stopped_is_done_in_the_end_and_used_no_retry(there):
    ann, bob = there.submit("ann", elastic(1, 16)), there.submit("bob", elastic(1, 16))
    done = 0
    while there.step() or there.runs:
        for run in sorted(there.runs)[:3]:
            there.end(run)
            done += 1
    assert done == 32
    assert [there.job(job)["state"] for job in (ann, bob)] == ["COMPLETED", "COMPLETED"]


def test_last_items_of_a_job_run_although_they_are_fewer_than_its_minimum(there):
    ann = there.submit("ann", elastic(3, 5))
    there.settle()
    for run in sorted(there.runs)[:3]:
        there.end(run)
    lost = sorted(there.runs)[0]
    there.end(lost, "stopped")
    there.settle()
    assert there.held() == {ann: 2}


def test_shares_that_have_not_begun_go_first_and_then_those_with_least_invested(there, clock):
    ann = there.submit("ann", elastic(1, 16))
    there.settle()
    old = set(there.runs)
    for run in sorted(old)[:4]:
        there.end(run, "stopped")
    clock.now += 100
    there.cluster.say("heartbeat", running=[{"id": i, "attempt": a} for i, a in there.runs])
    there.settle()
    young = set(there.runs) - old
    assert len(young) == 4
    there.submit("bob", elastic(1, 16))
    there.step(confirm=False)
    stopped = {task["id"] for task in there.job(ann)["tasks"] if task["state"] == "STOPPING"}
    assert len(stopped) == 8
    assert {task for task, _ in young} <= stopped


# ── what the policy is told ──


def test_policy_is_told_class_service_progress_nodepool_and_of_jobs_that_only_run(api, clock):
    graph = grid(3, 2)
    graph["graph"]["nodes"]["n0"]["metadata"]["nodepool"] = "big"
    graph["graph"]["nodes"]["n1"]["metadata"]["properties"] = {"nodepool=wide": ""}
    policy = {"name": "fair_share", "settings": settings()}
    there = Site(api, api.register("one", graph, policy=policy))
    ann = there.submit("ann", elastic(1, 3, elastic={"threads": 4}, **{"class": "fair"}))
    web = there.submit("bob", bag(2, service="web"))
    own = there.submit("bob", bag(1, service=True))
    step(api.service, "one")
    clock.now += 5
    there.start()
    there.end(next(run for run, job in there.runs.items() if job == ann))
    clock.now += 20
    view = freeze(api.service, api.service.catalogue["one"]).view
    jobs = {job.id: job for job in view.jobs}
    assert list(jobs) == [ann, web, own]
    assert [jobs[one].job_class for one in (ann, web)] == ["fair", ""]
    assert [jobs[one].service for one in (ann, web, own)] == ["", "web", own]
    assert (jobs[ann].elastic.least, jobs[ann].elastic.most, jobs[ann].elastic.threads) == (1, 3, 4)
    progress = jobs[ann].progress
    assert (progress.items_left, progress.items_done, progress.initialised) == (8, 4, True)
    assert [(len(job.gangs), job.running) for job in view.jobs] == [(0, 2), (0, 2), (0, 1)]
    told = {(r.progress.initialised, r.progress.seconds_initialising, r.progress.seconds_invested) for r in view.runs}
    assert told == {(True, 5.0, 20.0)}
    assert {worker.id: worker.pool for worker in view.workers} == {"n0": "big", "n1": "wide", "n2": ""}


def test_share_that_no_agent_runs_yet_is_not_ready(there):
    there.submit("ann", elastic(1, 4))
    step(there.api.service, "one")
    view = freeze(there.api.service, there.api.service.catalogue["one"]).view
    assert {run.progress.initialised for run in view.runs} == {False}
    assert [job.progress.initialised for job in view.jobs] == [False]


def test_job_starts_with_the_initialization_cap_and_doubles_once_it_runs(api):
    there = site(api, classes={"fair": {"policy": "FAIR_SHARE", "default": True}})
    ann = there.submit("ann", elastic(1, 16))
    seen = []
    for _ in range(6):
        step(there.api.service, "one")
        seen.append(sum(task["state"] in ("ASSIGNED", "RUNNING") for task in there.job(ann)["tasks"]))
        if len(seen) > 2:
            there.start()
    assert seen == [2, 2, 2, 4, 8, 16]


# ── kinds of work ──


def test_service_is_kept_at_its_number_of_instances_on_machines_of_their_own(there, clock):
    web = there.submit("ann", bag(3, service="web"))
    there.settle()
    shown = there.job(web)["tasks"]
    assert len({worker for task in shown for worker in task["placement"]}) == 3
    clock.now += SOON
    there.cluster.say("heartbeat", running=[{"id": i, "attempt": a} for i, a in there.runs])
    for code in (0, 3):
        there.end(sorted(there.runs)[0], code=code)
        assert states(there, web) == ["RUNNING", "RUNNING", "WAITING"]
        there.settle()
        assert states(there, web) == ["RUNNING"] * 3
    there.api.good("DELETE", f"/v1/jobs/{web}", None, there.cluster.token)
    there.confirm()
    assert there.job(web)["state"] == "CANCELED"


def test_instance_that_keeps_ending_soon_fails_and_the_others_go_on(there, clock):
    web = there.submit("ann", bag(2, service=True))
    there.settle()
    first = f"{web}-0"
    for _ in range(STARTS + 1):
        there.end(next(run for run in there.runs if run[0] == first), code=9)
        there.settle()
    assert states(there, web) == ["FAILED", "RUNNING"]


def test_instance_that_lasted_may_end_soon_as_often_as_before(there, clock):
    web = there.submit("ann", bag(1, service=True))
    there.settle()
    for _ in range(STARTS):
        there.end(*there.runs, code=9)
        there.settle()
    clock.now += SOON
    there.cluster.say("heartbeat", running=[{"id": i, "attempt": a} for i, a in there.runs])
    there.end(*there.runs, code=9)
    there.settle()
    assert states(there, web) == ["RUNNING"]
    assert there.job(web)["tasks"][0]["retries_left"] == STARTS


def test_fixed_jobs_and_services_are_not_shrunk_for_anybody(there):
    fixed = there.submit("ann", bag(8))
    web = there.submit("ann", bag(4, service="web"))
    there.settle()
    ann = there.submit("ann", elastic(1, 16))
    bob = there.submit("bob", elastic(1, 16))
    there.settle()
    assert there.held() == {fixed: 8, web: 4, ann: 2, bob: 2}


def test_reservation_is_a_whole_machine_of_its_order_and_a_managed_one_a_share(api):
    whole = {"policy": "RESERVE", "default": True}
    there = site(api, 2, 4, classes={"fair": FAIR, "fixed": FIXED, "whole": whole})
    ann = there.submit("ann", elastic(1, 8))
    there.settle()
    reserved = bag(1, **{"class": "whole"})
    reserved["resources"][0]["with"][0]["count"] = 4
    machine = there.submit("bob", reserved)
    managed = there.submit("eve", bag(1, **{"class": "fixed"}))
    there.settle()
    assert there.held() == {ann: 3, machine: 1, managed: 1}
    machines = there.figures()["machines"].values()
    assert sorted([sorted(one["jobs"]) for one in machines]) == sorted([[machine], sorted([ann, managed])])
    assert there.figures()["jobs"][machine]["order"] == 4


def test_class_nobody_knows_and_class_that_is_not_for_everybody(api):
    there = site(api, classes={"fair": {**FAIR, "users": ["ann"]}, "fixed": FIXED})
    jobs = [there.submit("bob", elastic(1, 4, **{"class": name})) for name in ("fair", "none")]
    there.settle()
    assert [there.job(job)["wait"]["reason"] for job in jobs] == ["not-authorised", "no-class"]


# ── machines ──


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
    rest = [f"n{k}" for k in range(4) if f"n{k}" != gone]
    for run, job in list(there.runs.items()):
        task = next(task for task in there.job(job)["tasks"] if task["id"] == run[0])
        if gone in task["placement"]:
            del there.runs[run]
    beat(there, *rest)
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
        found = there.api.good("GET", "/v1/clusters/one/workers", None, there.cluster.secret)["workers"]
        return {(one["missed"], one["state"]) for one in found}

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
    told = there.api.problem(422, "policy-invalid", "PUT", "/v1/clusters/one/scheduler", body, there.cluster.secret)
    assert told["pointer"] == "/settings/classes/fair/nodepool"
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
    assert freeze(there.api.service, there.api.service.catalogue["one"]) is None
