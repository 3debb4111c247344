"""`unit: core`: workers are shared by capacity, and percents count cores."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rainbow
from rainbow.errors import PolicyError
from rainbow.matching import worker_kinds
from rainbow.scheduling import GangView, JobView, LoadBased, RunView, Start, View, WorkerView, check_plan, gangs
from rainbow.scheduling.load_based import entitlements
from rainbow.scheduling.load_based.entitlements import divide, targets
from rainbow.service.live_state.matcher_cache import MatcherCache
from rainbow.state_machine import WorkerState
from tests.conftest import examples, grid

HALVES = {
    "classes": {"a": 50, "b": 50},
    "default_class": "b",
    "requestors": [{"match": "ann", "class": "a"}],
    "unit": "core",
}


def bag(count, cores=1, nodes=0):
    """Independent tasks of so many cores each, or of whole nodes."""
    inside = {"type": "node", "count": nodes} if nodes else {"type": "core", "count": cores}
    return {
        "version": 1,
        "resources": [{"type": "slot", "count": count, "label": "w", "with": [inside]}],
        "tasks": [{"command": ["true"], "slot": "w", "count": {"per_slot": 1}}],
        "attributes": {"system": {"scatter": True}},
    }


def gang(slots, cores):
    """One parallel program."""
    return {**bag(slots, cores), "attributes": {"system": {}}}


@pytest.fixture
def oak(api):
    """Two nodes of four cores, shared."""
    oak = api.register("oak", grid(2, 4), policy={"name": "load_based", "settings": HALVES})
    oak.say("heartbeat", running=[])
    return oak


def submit(api, oak, spec, requestor="bob"):
    return api.good("POST", "/v1/jobs", {"jobspec": spec, "requestor": requestor}, oak.token)["id"]


def cores(offers):
    """How many cores each worker gives to these tasks."""
    results = {}
    for offer in offers:
        for worker, amounts in offer["placement"].items():
            results[worker] = results.get(worker, 0) + amounts["core"]
    return results


def test_workers_are_filled_by_many_tasks(api, oak):
    submit(api, oak, bag(10))
    assert cores(oak.take()) == {"n0": 4, "n1": 4}


def test_classes_share_cores(api, oak):
    for requestor in ("ann", "bob"):
        submit(api, oak, bag(10), requestor)
    started = [offer["job"] for offer in oak.take()]
    assert sorted(started.count(job) for job in set(started)) == [4, 4]
    answer = api.good("GET", "/v1/clusters/oak/scheduler", None, oak.secret)["figures"]
    assert (answer["unit"], answer["units"], answer["idle"]) == ("core", 8, 0)
    assert {name: row["held"] for name, row in answer["classes"].items()} == {"a": 4, "b": 4}


def test_cores_that_are_freed_are_used_again(api, oak):
    submit(api, oak, bag(10))
    first = oak.take()
    oak.end(first[0])
    assert cores(oak.take()) == {next(iter(first[0]["placement"])): 1}


def test_whole_node_waits_for_a_whole_node_and_gets_it(api, oak):
    submit(api, oak, bag(6))
    running = oak.take()
    submit(api, oak, bag(1, nodes=1), "ann")
    submit(api, oak, bag(20))  # whoever comes later does not take the cores that are kept
    for offer in running:
        oak.end(offer)
        if whole := [new for new in oak.take() if new["placement"] and "node" in str(new["placement"])]:
            break
    assert next(offer["placement"] for offer in whole) in (
        {"n0": {"node": 1, "core": 4}},
        {"n1": {"node": 1, "core": 4}},
    )


def test_gang_starts_together_or_not_at_all(api, oak):
    submit(api, oak, bag(5))
    running = oak.take()
    job = submit(api, oak, gang(2, 2))
    assert oak.take() == []
    why = api.good("GET", f"/v1/jobs/{job}/why", None, oak.token)["wait"]
    assert (why["reason"], why["facts"]["wanted"]) == ("cores-busy", 4)
    for offer in running:
        oak.end(offer)
    assert [offer["job"] for offer in oak.take()] == [job]


def test_rebalance_frees_no_more_cores_than_will_be_used(api, oak, clock):
    api.good(
        "PATCH",
        "/v1/clusters/oak/scheduler",
        {"settings": {"rebalance_threshold": 10, "rebalance_minimum_duration": 1}},
        oak.secret,
    )
    submit(api, oak, bag(20))
    assert len(oak.take()) == 8
    submit(api, oak, bag(3), "ann")
    assert oak.take() == []
    clock.now += 50
    oak.say("heartbeat", running=[])
    clock.now += 20
    oak.take()
    assert len(oak.say("heartbeat", running=[])["stop"]) == 3


def test_node_of_another_kind_is_asked_for_its_own_amounts(api):
    graph = grid(1, 2)
    large = grid(2, 4)["graph"]
    graph["graph"]["nodes"] |= {key: value for key, value in large["nodes"].items() if key.startswith("n1")}
    graph["graph"]["edges"] += [edge for edge in large["edges"] if edge["target"].startswith("n1")]
    elm = api.register("elm", graph, policy={"name": "load_based", "settings": HALVES})
    elm.say("heartbeat", running=[])
    submit(api, elm, bag(3, nodes=1))
    assert cores(elm.take()) == {"n0": 2, "n1": 4}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"unit": 3}, "unit must be a text, got 3"),
        ({"unit": ""}, "unit must be a text that is not empty"),
        ({"unit": "x" * 101}, "unit has 101 characters, more than 100"),
        ({"unit": "core", "rounding": "classic"}, "classic counts whole workers"),
    ],
)
def test_units_that_are_none(settings, said):
    with pytest.raises(PolicyError, match=said) as refused:
        LoadBased().check(settings)
    assert refused.value.pointer == "/unit"


class Machine:
    """A cluster, its queue and what runs, without a store: the matcher and the checks are the host's own."""

    def __init__(self, nodes, cores):
        self.cluster = rainbow.read_cluster(grid(nodes, cores), name="c")
        self.capacity = {f"n{k}": {"node": 1, "core": cores} for k in range(nodes)}
        self.jobs, self.runs, self.number = {}, {}, 0

    def submit(self, requestor, spec):
        self.number += 1
        results = {f"j{self.number}-{g.number}": g for g in gangs(rainbow.parse_jobspec(spec))}
        self.jobs[f"j{self.number}"] = (requestor, results)

    def view(self):
        placing = MatcherCache(self.cluster, "index")
        jobs = []
        for number, (job, (requestor, waiting)) in enumerate(self.jobs.items()):
            views = [GangView(job, g.number, (task,), placing.demand(job, g, [task])) for task, g in waiting.items()]
            if views:
                jobs.append(JobView(job, requestor, float(number), tuple(views)))
        workers = [
            WorkerView(name, "k", whole, self.free(name), WorkerState.READY, 0.0, len(self.on(name)))
            for name, whole in self.capacity.items()
        ]
        kinds = set(worker_kinds(self.cluster).values())
        workers = [replace(worker, kind=next(iter(kinds))) for worker in workers]
        return View(
            0.0, HALVES, workers, jobs, list(self.runs.values()), placing.place, placing.hosts, placing.divide
        )

    def on(self, name):
        return [run.placement[name] for run in self.runs.values() if name in run.placement]

    def free(self, name):
        whole = self.capacity[name]
        return {kind: most - sum(held.get(kind, 0) for held in self.on(name)) for kind, most in whole.items()}

    def start(self, orders):
        for order in orders:
            job = order.task.partition("-")[0]
            gang = self.jobs[job][1].pop(order.task)
            self.runs[order.task] = RunView(order.task, job, self.jobs[job][0], gang.number, order.placement, 0.0)


@pytest.mark.parametrize("wide", [False, True], ids=["one core each", "of all sizes"])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_nothing_is_booked_twice_and_nothing_stays_idle_that_fits(wide, data):
    machine = Machine(nodes=3, cores=4)
    for _ in range(6):
        spec = bag(data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4)) if wide else 1)
        spec = gang(data.draw(st.integers(1, 3)), 2) if wide and data.draw(st.booleans()) else spec
        machine.submit(data.draw(st.sampled_from(["ann", "bob"])), spec)
        plan = LoadBased().plan(machine.view())
        check_plan(machine.view(), plan)
        assert LoadBased().plan(machine.view()) == plan
        machine.start([order for order in plan.orders if isinstance(order, Start)])
        idle = sum(machine.free(name)["core"] for name in machine.capacity)
        waiting = sum(len(tasks) for _, tasks in machine.jobs.values())
        assert wide or not (idle and waiting)
        for task in data.draw(st.lists(st.sampled_from(sorted(machine.runs) or ["none"]), max_size=4)):
            machine.runs.pop(task, None)
    for _ in range(60):  # what is large is not starved by what is small
        machine.runs.clear()
        plan = LoadBased().plan(machine.view())
        machine.start([order for order in plan.orders if isinstance(order, Start)])
    assert not any(tasks for _, tasks in machine.jobs.values())


@settings(max_examples=examples(200), deadline=None)
@given(seed=st.integers(0, 10**6))
def test_many_units_are_divided_in_bulk_as_one_by_one(seed):
    rng = random.Random(seed)
    names = "abcdef"[: rng.randint(1, 6)]
    weights = {name: rng.choice([0, 1, 3.5, 10, rng.uniform(0.1, 90)]) for name in names}
    held = {name: rng.randint(0, 2000) for name in names}
    most = {name: rng.choice([0, 10, 500, 3000]) for name in names}
    free = rng.randint(1001, 4000)
    in_bulk = divide(free, weights, held, most)
    many, entitlements.MANY = entitlements.MANY, 10**9
    try:
        assert divide(free, weights, held, most) == in_bulk
    finally:
        entitlements.MANY = many


def test_bytes_are_divided_as_fast_as_cores():
    assert divide(10**12, {"a": 70.0, "b": 30.0}, {}, {"a": 10**12, "b": 10**8}) == {"a": 10**12 - 10**8, "b": 10**8}
    assert sum(targets(10**12 + 7, {"a": 33.33331, "b": 66.66669}).values()) == 10**12 + 7
