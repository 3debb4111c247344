"""The first that waits keeps only what it needs: others start wherever it starts no later for it."""

import random
from math import inf

import pytest

from rainbow.client import Client
from rainbow.matching import Occupancy
from rainbow.service.live_state.mirror import follow, mirrored
from rainbow.service.scheduler.view import take_snapshot
from rainbow.testing import backends as shapes
from tests.conftest import REGISTRATION
from tests.service.scheduler.test_service_located import site
from tests.support.agent_sites import until
from tests.support.live import agent_of, rainbow_at

CASE = {"shape": "cluster(node(socket*2(core*6 gpu*2)))"}


def asking(seconds, command="true", **asks):
    """A job that asks for so much of one socket."""
    inside = [{"type": kind, "count": count} for kind, count in asks.items()]
    slot = {"type": "slot", "count": 1, "label": "it", "with": [{"type": "socket", "count": 1, "with": inside}]}
    task = {"command": command.split(), "slot": "it", "count": {"per_slot": 1}}
    system = {"system": {"duration": seconds}}
    return {"version": 1, "resources": [slot], "tasks": [task], "attributes": system}


def submit(api, there, seconds, **asks):
    document = asking(seconds, **asks)
    return api.good("POST", "/v1/jobs", {"jobspec": document, "requestor": "ann"}, there.token)["id"]


def started(there):
    return {offer["job"] for _ in range(3) for offer in there.take()}


@pytest.fixture
def busy(api):
    """Two sockets of 6 cores and 2 gpus, of each 4 cores in use, for 300 s and for 3,000 s."""
    there = site(api, CASE, "load_based")
    first, second = submit(api, there, 300, core=4), submit(api, there, 3000, core=4)
    assert started(there) == {first, second}
    return there


def test_a_job_starts_that_cannot_delay_the_first(api, busy):
    head = submit(api, busy, 600, core=6)
    beside = submit(api, busy, 3000, core=1, gpu=2)
    late = submit(api, busy, 3000, core=2)
    assert started(busy) == {beside}
    why = api.good("GET", f"/v1/jobs/{head}/why", None, busy.token)["wait"]["text"]
    assert "2 cores are kept on node0 (socket0/core[4-5])" in why
    assert "fits when" in why
    other = api.good("GET", f"/v1/jobs/{late}/why", None, busy.token)["wait"]["text"]
    assert other.startswith(f"would delay job {head}, first in line")


def test_the_three_jobs_beside_a_real_agent(tmp_path):
    with rainbow_at(tmp_path) as url, Client(url, REGISTRATION) as client:
        policy = {"name": "load_based", "settings": {"unit": "core"}}
        oak = client.register_cluster("oak", shapes.document(CASE["shape"]), policy=policy)
        user, made = Client(url, oak["token"]), []

        def states():
            return [user.job(job)["state"] for job in made]

        def comes(seconds, **asks):
            made.append(user.submit(asking(seconds, "sleep 60", **asks))["id"])

        with agent_of(url, "oak", oak["secret"]):
            for seconds in (300, 3000):
                comes(seconds, core=4)
                until(lambda: set(states()) == {"RUNNING"})
            comes(600, core=6)
            comes(3000, core=1, gpu=2)
            comes(3000, core=2)
            until(lambda: states()[3] == "RUNNING")
            until(lambda: user.why(made[4])["wait"]["text"].startswith(f"would delay job {made[2]}, first in line"))
            assert states()[2:] == ["WAITING", "RUNNING", "WAITING"]
            for job in made:
                user.cancel(job)
            until(lambda: set(states()) == {"CANCELED"})


def test_a_job_that_ends_before_the_first_can_start_uses_what_is_kept(api, busy):
    submit(api, busy, 600, core=6)
    long = submit(api, busy, 3000, core=2)
    short = submit(api, busy, 200, core=2)
    assert started(busy) == {short, long}


def first_time(mirror, cluster, request, now):
    """Return when a request fits first as what runs ends one by one: (end, how many of those without one)."""
    occupancy = Occupancy(cluster)
    runs = mirror.census.runs.values()
    for run in runs:
        task = mirror.booked[run.task]
        occupancy.book(run.task, task.held, task.placement)
    ends = sorted((run.until or inf, run.started, run.task) for run in runs)
    for k in range(len(ends) + 1):
        if occupancy.take(request) is not None:
            endless = sum(end == inf for end, _, _ in ends[:k])
            return (max([now, *(end for end, _, _ in ends[:k])]), endless)
        if k < len(ends):
            occupancy.release(ends[k][2])
    return (inf, len(ends) + 1)


SHAPES = ("cluster(node*2(socket*2(core*6 gpu*2)))", "cluster(node*3(socket*2(core*4) memory:64))")


def random_jobs(api, clock, jobs, seed):
    """Let random jobs come and end; at each step the first of those that wait fits no later for what has started."""
    rng = random.Random(seed)
    shape = rng.choice(SHAPES)
    there, running, waited, moved = site(api, {"shape": shape}, "load_based"), {}, 0, []
    for _ in range(jobs):
        roll, seconds = rng.random(), rng.choice([60, 300, 900, 3000, 3000, 0])
        if roll < 0.25 and "gpu" in shape:
            submit(api, there, seconds, core=rng.randint(1, 3), gpu=rng.randint(1, 2))
        else:
            submit(
                api, there, seconds, core=rng.choice([1, 1, 2, 2, 3, 4, 4, 6] if "gpu" in shape else [1, 1, 2, 3, 4])
            )
        clock.now += rng.choice([1, 20, 60])
        for offer in [offer for offer, end in running.items() if end <= clock.now or rng.random() < 0.02]:
            there.end(dict(zip(("id", "attempt"), offer, strict=True)))
            del running[offer]
        with mirrored(api.service, api.service.catalogue["oak"]) as mirror:
            record = follow(api.service, mirror)
            view = take_snapshot(api.service, mirror).view
            head = min((job for job in view.jobs if job.gangs), key=lambda job: (job.submitted, job.id), default=None)
            if head is not None:
                request = mirror.placing.gangs[head.gangs[0].demand][0].request
                before = first_time(mirror, mirror.entry.cluster, request, clock.now)
        for offer in there.take():
            end = clock.now + offer["duration"] if offer["duration"] else clock.now + 4000
            running[offer["id"], offer["attempt"]] = end
        with mirrored(api.service, api.service.catalogue["oak"]) as mirror:
            follow(api.service, mirror)
            if head is not None and head.id in mirror.census.jobs:
                waited += 1
                after = first_time(mirror, mirror.entry.cluster, request, clock.now)
                moved += [(head.id, before, after)] if after > before else []
        assert record is not None
    assert moved == []
    return waited


@pytest.mark.parametrize("seed", range(2))
def test_no_start_lets_the_first_wait_longer(api, clock, seed):
    assert random_jobs(api, clock, 60, seed) > 10


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 18))
def test_no_start_lets_the_first_wait_longer_at_length(api, clock, seed):
    assert random_jobs(api, clock, 250, seed) > 50
