"""What is free after a change of the graph: capacity less placements, never negative; what is too small is closed."""

import random

import pytest

from rainbow.service.live_state.mirror import Mirrors, mirrored
from rainbow.service.scheduler.step import step
from tests.service.scheduler.test_service_located import site

CASE = {"shape": "cluster(node(core*4 memory:64), node(core*4 memory:64))"}


def run(api, there, **asks):
    """Start a job that asks for so much of a node, and return its offer."""
    slot = {"type": "slot", "count": 1, "label": "it", "with": [{"type": k, "count": n} for k, n in asks.items()]}
    task = {"command": ["true"], "slot": "it", "count": {"per_slot": 1}}
    document = {"version": 1, "resources": [slot], "tasks": [task], "attributes": {"system": {"duration": 0}}}
    api.good("POST", "/v1/jobs", {"jobspec": document, "requestor": "ann"}, there.token)
    return there.take()


def free(api, name="oak"):
    """Return what is free by worker, as this process knows it, and as one that reads the store anew does."""
    results = []
    for again in (False, True):
        if again:
            api.service.state(Mirrors).clear()
        step(api.service, name)
        step(api.service, name)  # the second reads what the first has started
        with mirrored(api.service, api.service.catalogue[name]) as mirror:
            results.append({worker: dict(mirror.occupancy.free(worker)) for worker in mirror.placing.capacity})
    assert results[0] == results[1]
    return results[0]


def resize(api, there, vertex, size):
    change = {"op": "resize", "vertex": vertex, "size": size}
    api.good("PATCH", "/v1/clusters/oak/graph", {"changes": [change]}, there.secret)


def test_a_held_vertex_that_grows_has_its_growth_free(api):
    there = site(api, CASE, "load_based")
    [offer] = run(api, there, core=1, memory=64)
    resize(api, there, "memory0", 128)
    assert free(api)["node0"]["memory"] == 64
    assert len(run(api, there, core=1, memory=64)) == 1
    assert free(api)["node0"]["memory"] in (0, 64)
    there.end(offer)
    assert all(amount >= 0 for held in free(api).values() for amount in held.values())


def test_a_vertex_that_shrinks_below_what_is_held_closes_its_worker(api):
    there = site(api, CASE, "load_based")
    [offer] = run(api, there, core=1, memory=64)
    resize(api, there, "memory0", 32)
    assert free(api)["node0"]["memory"] == 0
    [other] = run(api, there, core=1)
    assert set(other["placement"]) == {"node1"}, "node0 is closed, though it has cores"
    there.end(offer)
    assert free(api)["node0"] == {**free(api)["node0"], "core": 4, "memory": 32}
    [third] = run(api, there, core=1)
    assert set(third["placement"]) == {"node0"}


@pytest.mark.parametrize("seed", range(4))
def test_free_is_capacity_less_placements_under_random_changes(api, seed):
    rng, there = random.Random(seed), site(api, CASE, "load_based")
    running, sizes = [], {"memory0": 64, "memory1": 64, "core0": 1, "core5": 1}
    for _ in range(30):
        roll = rng.random()
        if roll < 0.45:
            running += run(api, there, core=rng.randint(1, 2), memory=rng.choice([8, 32, 64]))
        elif roll < 0.65 and running:
            there.end(running.pop(rng.randrange(len(running))))
        else:
            vertex = rng.choice(list(sizes))
            sizes[vertex] = rng.choice([1, 2, 3]) if vertex.startswith("core") else rng.choice([32, 64, 128])
            resize(api, there, vertex, sizes[vertex])
        now = free(api)
        with mirrored(api.service, api.service.catalogue["oak"]) as mirror:
            held = {task.id: task.placement for task in mirror.booked.values()}
            capacity = {worker: dict(amounts) for worker, amounts in mirror.placing.capacity.items()}
        for worker, amounts in now.items():
            for kind in ("core", "memory"):
                taken = sum(placed.get(worker, {}).get(kind, 0) for placed in held.values())
                assert amounts[kind] == max(0, capacity[worker][kind] - taken), (worker, kind)
