"""A claim about routing: the simulator beside recorded answers of the HTTP replay, and what it does not know."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from rainbow.errors import SelectionError
from rainbow.forecast import Length
from rainbow.simulation import Arrival, Outcome, World, machine, read_trace, simulate
from rainbow.simulation.simulate import Recorded, Simulation
from tests.conftest import SHARED

ROUTE = SHARED / "inputs/whynow/route"


def by(*steps: dict[str, str]) -> dict[str, Any]:
    return {"priorities": [{"priority": 1, "steps": [*steps, {"select": "first"}]}]}


class Faster(Recorded):
    """Recorded lengths on a cluster of some speed."""

    def __init__(self, recorded: Recorded, speed: float) -> None:
        self.of_job, self.speed = recorded.of_job, speed

    def of(self, job: Any, gang: Any) -> Length:
        arrival = self.of_job[job.id]
        return Length.exactly(min(arrival.run / self.speed, arrival.limit), "recorded")


@pytest.mark.skipif(not ROUTE.exists(), reason="needs the shared traces")
def test_the_shortest_queue_is_routed_as_the_replay_over_http_did() -> None:
    answer = json.loads((ROUTE / "shortest-queue.json").read_text())
    arrivals = list(read_trace(ROUTE / "window0.swf"))[: len(answer["jobs"])]
    clusters = [machine(int(cores), name) for name, (cores, _) in answer["clusters"].items()]
    world = World(clusters, selector="constraint", options=by({"sort_ascending": "queue.waiting_tasks"}))
    run = Simulation(world, arrivals[0].submit, 0, lambda view, plan: None)
    for name, (_, speed) in answer["clusters"].items():
        run.sites[name].virtual.lengths = Faster(run.lengths, speed)
    for one in arrivals:
        run.advance(one.submit)
        run.arrive(one)
    run.advance(float("inf"))
    ran = {one.id: one for one in run.outcome().ran}
    wrong = [
        one["id"]
        for one in answer["jobs"]
        if ran[one["id"]].cluster != one["cluster"]
        or abs(ran[one["id"]].start - ran[one["id"]].submit - one["wait"]) > 0.051  # recorded in tenths
    ]
    assert len(answer["jobs"]) == 300
    assert wrong == []


def two(options: dict[str, Any], arrivals: list[Arrival]) -> Outcome:
    world = World([machine(8, "ash"), machine(8, "elm")], selector="constraint", options=options)
    return simulate(world, arrivals)


def long_and_short() -> list[Arrival]:
    short = [Arrival(str(k), 60.0 * k, 8, 50.0, 100.0, "1") for k in range(2, 20)]
    return [Arrival("1", 0.0, 8, 10_000.0, 20_000.0, "1"), *short]


@pytest.mark.parametrize("variable", ["eta.finish", "eta.wait", "eta.start", "queue.waiting_tasks"])
def test_nobody_waits_beside_an_idle_cluster(variable: str) -> None:
    options = by({"sort_ascending": variable}, {"sort_descending": "cores_free"})
    if variable.startswith("eta"):
        options = by({"sort_ascending": variable})
    assert {
        one.id: one.start - one.submit for one in two(options, long_and_short()).ran if one.start > one.submit
    } == {}


@pytest.mark.parametrize("variable", ["nodes_free", "account.left", "cost_per_node_hour", "queue.idle_workers"])
def test_a_variable_that_nothing_gives_is_named_with_its_place(variable: str) -> None:
    with pytest.raises(SelectionError) as caught:
        two(by({"filter": "cores > 0"}, {"sort_ascending": variable}), long_and_short())
    assert caught.value.pointer == "/priorities/0/steps/1/sort_ascending"
    assert caught.value.message == f"{variable} is not known here"


def test_what_a_calc_computes_and_what_matching_found_are_known() -> None:
    steps = ({"calc": "x = cores_free - matched.cores"}, {"sort_descending": "x"})
    assert two(by(*steps), long_and_short()).ran


def test_jobs_of_one_instant_are_placed_one_after_the_plan_of_the_other() -> None:
    jobs = [Arrival(str(k), 0.0, 8, 100.0, 100.0) for k in range(2)]
    outcome = two(by({"sort_ascending": "queue.running_tasks"}), jobs)
    assert [(one.cluster, one.start) for one in outcome.ran] == [("ash", 0.0), ("elm", 0.0)]
    later = [*jobs, Arrival("2", 100.0, 8, 50.0, 50.0)]  # it arrives as both end: they have ended before
    ran = two(by({"sort_ascending": "queue.running_tasks"}), later).ran
    assert [one.start for one in ran] == [0.0, 0.0, 100.0]
    assert all(a.submit <= b.submit for a, b in pairwise(ran))
