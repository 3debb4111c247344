"""What the next step would do with other jobs, settings and workers; nothing is changed by asking."""

import threading
from contextlib import suppress
from dataclasses import replace

from rainbow.service.live_state.mirror import Mirrors, mirrored
from rainbow.service.scheduler.step import step
from tests.service.scheduler.test_service_priority import submit, switch
from tests.support.agent_by_hand import Agent
from tests.support.asking import api, cluster

__all__ = ["api", "cluster"]  # fixtures


def plan(api, cluster, status=200, **options):
    answer = api("POST", "/v1/clusters/one/plan", cluster["secret"], **({"json": options} if options else {}))
    assert answer.status_code == status, answer.get_data(as_text=True)
    return answer.json


def started(result):
    return [one["task"] for one in result["orders"] if one["order"] == "start"]


def spec(cores, slots=1, duration=100):
    resources = [{"type": "slot", "count": slots, "label": "s", "with": [{"type": "core", "count": cores}]}]
    task = {"command": ["true"], "slot": "s", "count": {"per_slot": 1}}
    return {
        "version": 1,
        "resources": resources,
        "tasks": [task],
        "attributes": {"system": {"duration": duration}},
    }


def test_a_plan_supposes_jobs_settings_and_workers_and_leaves_no_trace(api, service, cluster):
    Agent(api, cluster["secret"]).say("heartbeat")
    switch(api, cluster, "priority")
    real = submit(api, cluster, 4, 2)
    before = plan(api, cluster)
    assert started(before) == [f"{real}-0"]
    first = plan(api, cluster, jobs=[{"jobspec": spec(4), "count": 3, "priority": 5}])
    assert started(first) == ["supposed-1-0", "supposed-2-0"]
    assert {wait["job"] for wait in first["waits"]} == {"supposed-3", real}
    without = plan(api, cluster, workers={"node0": "OFFLINE"})
    assert started(without) == []
    assert without["waits"][0]["job"] == real
    cut = plan(api, cluster, jobs=[{"jobspec": spec(2)}], settings={"discipline": "fcfs"}, workers={"node0": "LOST"})
    assert started(cut) == []
    assert plan(api, cluster) == before
    assert step(service, "one")
    assert api("GET", f"/v1/jobs/{real}", cluster["token"]).json["tasks"][0]["state"] == "ASSIGNED"


def test_a_supposition_is_refused_with_its_pointer(api, cluster):
    switch(api, cluster, "priority")
    assert plan(api, cluster, 422, settings={"discipline": "quick"})["pointer"] == "/settings/discipline"
    assert plan(api, cluster, 422, workers={"n9": "READY"})["pointer"] == "/workers/n9"
    assert plan(api, cluster, 422, jobs=[{"jobspec": {"version": 1}}])["pointer"].startswith("/jobs/0/jobspec")
    assert plan(api, cluster, 400, job=[])["pointer"] == "/job"
    assert plan(api, cluster, 400, jobs=[{"jobspec": spec(1), "count": 0}])["pointer"] == "/jobs/0/count"


def test_a_refused_supposition_throws_nothing_of_the_cluster_away(api, service, cluster):
    switch(api, cluster, "priority")
    plan(api, cluster)
    stored = dict(service.state(Mirrors))
    plan(api, cluster, 422, jobs=[{"jobspec": spec(1)}, {"jobspec": {"version": 1}}])
    plan(api, cluster, 422, settings={"discipline": "quick"})
    assert dict(service.state(Mirrors)) == stored
    assert not any(mirror.placing.gangs for mirror in stored.values())


def test_who_waits_for_a_mirror_that_is_thrown_away_gets_the_next_one(service, cluster):
    """Else two have a cluster at a time: one the old mirror, the other what is made after it."""
    entry, held, results = service.catalogue["one"], threading.Event(), []

    def wait():
        held.wait()
        with mirrored(service, entry) as mirror:
            results.append(service.state(Mirrors).get(entry.id) is mirror)

    waiting = threading.Thread(target=wait)
    waiting.start()
    with suppress(ZeroDivisionError), mirrored(service, entry):
        held.set()
        threading.Event().wait(0.2)  # it waits for the lock by now
        raise ZeroDivisionError
    waiting.join(10)
    assert results == [True]


def test_job_whose_tasks_all_have_a_place_waits_for_nothing(api, service, cluster):
    """A reader may ask between the step that places the last task and the one that forgets the job."""
    Agent(api, cluster["secret"]).say("heartbeat")
    switch(api, cluster, "priority")
    placed = submit(api, cluster, 2)
    assert step(service, "one")
    with mirrored(service, service.catalogue["one"]) as mirror:
        job = mirror.jobs[placed]
        job.order, job.record = type(job.order)((), {}), replace(job.record, id="placed")
        assert mirror.wait_of(job) is None
