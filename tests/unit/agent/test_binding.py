"""Tasks of the executor `local` are bound to the cores that they hold, seen from inside them."""

import json
import os
import socket
import sys

import pytest

from rainbow.agent.executors import local
from rainbow.agent.executors.local import LocalExecutor, cores_here, cpus_of
from rainbow.agent.executors.run import Run
from rainbow.agent.messages import run_of
from rainbow.client import Client
from rainbow.matching import Occupancy, numbered
from rainbow.service.scheduler.step import step
from rainbow.testing import backends as shapes
from tests.conftest import ADMIN, REGISTRATION, grid
from tests.scenarios.test_end_to_end import until
from tests.support.live import agent_of, rainbow_at

HERE = socket.gethostname()
SEES = (
    "import json, os; names = ('RAINBOW_CPUS', 'OMP_NUM_THREADS', 'CUDA_VISIBLE_DEVICES');"
    "print(json.dumps([sorted(os.sched_getaffinity(0)), *map(os.environ.get, names)]))"
)
needs_two = pytest.mark.skipif(len(cores_here()) < 2, reason="this machine has one core")


def seen(run):
    executor = LocalExecutor({"PATH": os.environ["PATH"]})
    executor.start(run)
    ended = []
    until(lambda: ended.extend(executor.poll()) or ended)
    return json.loads(ended[0].output)


def run(binding, **more):
    placement = {worker: {"core": 1} for worker in binding}
    return Run(("t", 1), "j", (sys.executable, "-c", SEES), placement=placement, binding=binding, **more)


@needs_two
def test_process_has_the_hardware_threads_of_its_cores_alone():
    threads = cores_here()[1]
    cpus, said, omp, cuda = seen(run({HERE: {"core": [1], "gpu": [0, 3]}}))
    assert cpus == threads
    assert (said, omp, cuda) == (",".join(map(str, threads)), "1", "0,3")
    assert sorted(os.sched_getaffinity(0)) == sorted(cpu for core in cores_here() for cpu in core)


@pytest.mark.parametrize("binding", [{"elsewhere": {"core": [0]}}, {HERE: {"core": [10**4]}}, {}])
def test_process_of_another_machine_or_of_cores_that_are_not_there_is_bound_to_nothing(binding):
    assert cpus_of(run(binding), next(iter(binding), "")) == ()
    assert seen(run(binding)) == [sorted(os.sched_getaffinity(0)), None, None, None]


def test_core_is_all_of_its_hardware_threads(tmp_path, monkeypatch):
    """Threads 0 and 2 are the first core's, 1 and 3 the second's, as on most machines."""
    for cpu in range(4):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text("0\n")
        (topology / "core_id").write_text(f"{cpu % 2}\n")
    monkeypatch.setattr(local, "CPUS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert cores_here() == [[0, 2], [1, 3]]
    assert cpus_of(run({HERE: {"core": [1]}}), HERE) == (1, 3)


def test_agent_may_leave_runs_unbound(monkeypatch):
    offer = {"id": "t", "attempt": 1, "job": "j", "command": ["true"], "binding": {HERE: {"core": "0,2-3"}}}
    assert run_of(offer).binding == {HERE: {"core": [0, 2, 3]}}
    monkeypatch.setenv("RAINBOW_BIND", "none")
    assert run_of(offer).binding == {}


@needs_two
def test_two_tasks_on_one_node_never_share_a_core_and_have_what_job_show_says(tmp_path):
    graph = grid(1, 2)
    graph["graph"]["nodes"]["n0"]["metadata"]["name"] = HERE
    spec = {
        "version": 1,
        "resources": [{"type": "slot", "count": 2, "label": "w", "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": [sys.executable, "-c", SEES + "; import time; time.sleep(2)"], "slot": "w"}],
        "attributes": {"system": {"scatter": True}},
    }
    spec["tasks"][0]["count"] = {"per_slot": 1}
    policy = {"name": "load_based", "settings": {"unit": "core"}}
    with rainbow_at(tmp_path) as url:
        registration = Client(url, REGISTRATION).register_cluster("here", graph, policy=policy)
        client = Client(url, registration["token"])
        with agent_of(url, "here", registration["secret"]):
            job = client.submit(spec, requestor="ann")["id"]
            until(lambda: client.job(job)["state"] == "COMPLETED", seconds=60)
            tasks = client.job(job)["tasks"]
    held = {task["held"][HERE][0]: json.loads(task["output"])[0] for task in tasks}
    assert held == {f"core{k}": cpus for k, cpus in enumerate(cores_here()[:2])}


def test_cores_are_counted_in_the_order_of_the_graph():
    cluster = shapes.cluster("cluster(node*2(socket*2(core*4 gpu memory:8)))")
    occupancy = Occupancy(cluster)
    first = occupancy.hold_amounts("node1", {"core": 5, "gpu": 2, "memory": 3})
    assert numbered(cluster, occupancy.words(occupancy.held[first])) == {"node1": {"core": "0-4", "gpu": "0-1"}}
    floats = occupancy.hold_amounts("node0", {"core": 5}, floating=True)
    assert numbered(cluster, occupancy.words(occupancy.held[floats])) == {}


def test_what_a_site_gives_is_booked_instead_of_what_was_planned(api):
    """Slurm exchanges the cores of two tasks: each has what it was given, the other one floats meanwhile."""
    oak = api.register("oak", grid(1, 2), policy={"name": "load_based", "settings": {"unit": "core"}})
    oak.say("heartbeat")
    jobs = [api.good("POST", "/v1/jobs", one_core(), oak.token)["id"] for _ in range(2)]
    offers = {offer["job"]: offer for offer in oak.take()}

    def placed(job, cores):
        answer = {"task": offers[job]["id"], "attempt": 1, "event": "placed", "binding": {"n0": {"core": cores}}}
        assert oak.say("events", events=[answer])["recorded"] == [offers[job]["id"]]
        step(api.service, "oak")  # what is kept is compared with what is stored

    def held():
        return [api.good("GET", f"/v1/jobs/{job}", None, ADMIN)["tasks"][0]["held"]["n0"] for job in jobs]

    assert held() == [["core0"], ["core1"]]
    core = held()
    placed(jobs[0], "1")
    assert held() == [core[1], []]
    placed(jobs[1], "0")
    assert held() == [core[1], core[0]]
    placed(jobs[1], "7")  # which is not in the graph
    assert held() == [core[1], []]


def one_core():
    slot = {"type": "slot", "count": 1, "label": "w", "with": [{"type": "core", "count": 1}]}
    task = {"command": ["true"], "slot": "w", "count": {"per_slot": 1}}
    return {"version": 1, "resources": [slot], "tasks": [task], "attributes": {"system": {"duration": 60}}}
