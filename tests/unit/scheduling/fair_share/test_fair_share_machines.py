"""Machines under the fair-share policy: that come and go, are reserved whole, or stand in nodepools of their own."""

import pytest

from rainbow.scheduling import Start
from rainbow.scheduling.fair_share import epoch
from rainbow.scheduling.fair_share import how_much as fair_share_how_much
from rainbow.state_machine import WorkerState
from tests.support.policies.epochs import Cluster
from tests.support.policies.scenarios import scenario
from tests.support.policies.small_clusters import (
    EAGER,
    FIXED,
    RESERVE,
    cluster,
    counts,
    held,
    job,
    orders,
    play,
    put,
    reconfigured,
)


@pytest.mark.parametrize(
    ("state", "fair"), [(WorkerState.OFFLINE, 0), (WorkerState.DRAINING, 4), (WorkerState.LOST, 4)]
)
def test_machine_that_closes_keeps_what_cannot_be_preempted(state, fair):
    classes = {"fair": EAGER, "fixed": FIXED}
    there = play(cluster([6], classes, [job(1, "a", "fair"), job(2, "b", "fixed", max_shares=2)]))
    assert counts(there) == {1: 4, 2: 2}
    there.states["m0"] = state
    _, plan = there.step()
    assert counts(there).get(1, 0) == fair
    assert counts(there)[2] == 2
    assert not any(isinstance(order, Start) for order in plan.orders)


def test_machine_that_comes_back_is_used_again():
    there = play(cluster([2, 2], {"c": EAGER}, [job(1, "a", "c")]))
    there.states["m0"] = WorkerState.OFFLINE
    assert held(play(there, 3)) == {1: {"m1": 2}}
    there.states["m0"] = WorkerState.READY
    assert held(play(there, 3)) == {1: {"m0": 2, "m1": 2}}


def test_same_settings_again_disturb_nothing():
    there = play(cluster([4, 4], {"c": EAGER}, [job(1, "a", "c"), job(2, "b", "c", 2)]))
    before = held(there)
    assert held(play(reconfigured(there), 3)) == before
    there.memory = {}
    assert held(play(there, 3)) == before


def test_work_whose_class_is_gone_leaves_and_keeps_its_machine_closed_until_then():
    there = play(cluster([4], {"old": EAGER, "new": {**EAGER, "weight": 1}}, [job(1, "a", "old", max_shares=2)]), 3)
    new = {**there.settings["classes"]["new"], "default": True}
    reconfigured(there, classes={"new": new})
    there.row["jobs"].append(job(2, "b", "new"))
    there.jobs[2] = there.row["jobs"][1]
    _, plan = there.step()
    assert {(o.task[:5], o.why) for o in plan.orders} == {("j0001", "blacklisted")}
    assert plan.figures["machines"]["m0"]["closed"] == "blacklisted"
    assert counts(play(there, 3)) == {2: 4}
    assert {w.reason for w in orders(there.view()).waits if w.job == "j0001"} == {"no-class"}


def test_reservation_whose_class_is_gone_is_waited_for():
    jobs = [job(1, "a", "whole", 4, type="Reservation", max_shares=1), job(2, "b", "fair", arrive=4)]
    there = play(cluster([4, 2], {"whole": RESERVE, "fair": EAGER}, jobs), 3)
    reconfigured(there, classes={"fair": there.settings["classes"]["fair"]})
    assert held(play(there, 4)) == {1: {"m0": 1}, 2: {"m1": 2}}


TWO = [{"name": "top", "parent": None, "search_order": 1}, {"name": "other", "parent": None, "search_order": 1}]


def two_trees(jobs, classes, **more):
    machines = [{"name": f"m{k}", "mem_gb": 4, "order": 4, "pool": pool} for k, pool in enumerate(("top", "other"))]
    return cluster([], classes, jobs, machines=machines, pools=TWO, **more)


def test_top_level_nodepools_have_machines_and_quanta_of_their_own():
    classes = {"here": EAGER, "there": {**EAGER, "nodepool": "other"}}
    there = two_trees([job(1, "a", "here"), job(2, "a", "there")], classes)
    pools = {**there.settings["nodepools"], "other": {"nodes": [], "quantum": 2}}
    assert held(play(reconfigured(there, nodepools=pools))) == {1: {"m0": 4}, 2: {"m1": 2}}


def test_allotment_counts_over_all_top_level_nodepools():
    classes = {"here": FIXED, "there": {**FIXED, "nodepool": "other"}}
    there = two_trees([job(1, "a", "here"), job(2, "a", "there")], classes, user_allotment_gb={"a": 5})
    assert sum(counts(play(there)).values()) == 5


def test_fault_in_one_tree_stops_no_other(monkeypatch):
    def faulty(world, top, grants):
        if top.name == "top":
            raise IndexError("Index 9 out of bounds for length 5")
        return how_much(world, top, grants)

    how_much = fair_share_how_much.how_much
    monkeypatch.setattr(epoch, "how_much", faulty)
    classes = {"here": EAGER, "there": {**EAGER, "nodepool": "other"}}
    plan = orders(two_trees([job(1, "a", "here"), job(2, "a", "there")], classes).view())
    assert {order.task[:5] for order in plan.orders} == {"j0002"}
    assert plan.figures["failed"] == {"top": "IndexError: Index 9 out of bounds for length 5"}
    assert [wait.reason for wait in plan.waits if wait.job == "j0001"] == ["failed"]


def test_reserved_machine_may_be_a_little_larger_if_that_is_allowed():
    reservation = job(1, "b", "whole", 3, type="Reservation", max_shares=1)
    there = cluster([5, 4], {"whole": RESERVE}, [reservation])
    assert counts(play(there, 3)) == {}
    assert held(play(reconfigured(there, reserve_overage=1), 2)) == {1: {"m1": 1}}


def test_reservation_keeps_to_the_machine_that_is_being_emptied():
    classes = {"fair": EAGER, "whole": RESERVE}
    reservation = job(2, "b", "whole", 4, type="Reservation", max_shares=1)
    there = cluster([4, 4], classes, [job(1, "a", "fair"), reservation], exit_delay=3)
    put(there, 1, "m0", "m0", "m0", "m1", "m1", "m1", "m1")
    there.step()
    leaving = {run.machine for run in there.runs.values() if run.stopped is not None}
    assert leaving == {"m0"}
    gone = [task for task, run in there.runs.items() if run.machine == "m1"][:3]
    there.runs = {task: run for task, run in there.runs.items() if task not in gone}
    there.jobs[1]["items"] = 1
    there.step()
    assert {run.machine for run in there.runs.values() if run.stopped is not None} == {"m0"}


def test_machines_of_one_request_are_of_one_order():
    there = play(cluster([3, 4, 4], {"whole": RESERVE}, [job(1, "b", "whole", 3)]))
    assert held(there) == {1: {"m0": 1}}
    there = play(reconfigured(cluster([4, 4, 3], {"whole": RESERVE}, [job(1, "b", "whole", 4)]), reserve_overage=1))
    assert held(there) == {1: {"m0": 1, "m1": 1}}


@pytest.mark.parametrize("seed", range(40))
def test_classic_counting_makes_plans_the_host_carries_out(seed):
    there = reconfigured(Cluster(scenario(seed)), mode="classic")
    play(there, 12)
