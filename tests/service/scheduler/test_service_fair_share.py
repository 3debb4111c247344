"""fair_share over real stores: elastic jobs grow and shrink, by what the policy is told of them."""

from rainbow.service.scheduler.step import step
from tests.conftest import grid, snapshot
from tests.support.growing import Site, bag, elastic, settings, site, states, there

__all__ = ["there"]  # fixtures


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
    view = snapshot(api.service, "one").view
    jobs = {job.id: job for job in view.jobs}
    assert list(jobs) == [ann, web, own]
    assert [jobs[one].job_class for one in (ann, web)] == ["fair", ""]
    assert [jobs[one].service for one in (ann, web, own)] == ["", "web", own]
    assert (jobs[ann].elastic.least, jobs[ann].elastic.most, jobs[ann].elastic.threads) == (1, 3, 4)
    progress = jobs[ann].progress
    assert (progress.items_left, progress.items_done, progress.initialised) == (8, 4, True)
    assert [(len(job.gangs), job.running) for job in view.jobs] == [(0, 2), (0, 2), (0, 1)]
    answers = {
        (r.progress.initialised, r.progress.seconds_initialising, r.progress.seconds_invested) for r in view.runs
    }
    assert answers == {(True, 5.0, 20.0)}
    assert {worker.id: worker.pool for worker in view.workers} == {"n0": "big", "n1": "wide", "n2": ""}


def test_share_that_no_agent_runs_yet_is_not_ready(there):
    there.submit("ann", elastic(1, 4))
    step(there.api.service, "one")
    view = snapshot(there.api.service, "one").view
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
