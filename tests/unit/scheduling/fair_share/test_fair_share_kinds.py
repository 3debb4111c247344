"""Kinds of work under the fair-share policy, and jobs that are not simply elastic."""

from dataclasses import replace

import pytest

from rainbow.scheduling import Elastic, JobProgress, Stop
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
    seen,
)


def nested(jobs, classes, orders=((4, "top"), (4, "low"))):
    machines = [{"name": f"m{k}", "mem_gb": o, "order": o, "pool": pool} for k, (o, pool) in enumerate(orders)]
    pools = [{"name": "top", "parent": None, "search_order": 1}, {"name": "low", "parent": "top", "search_order": 1}]
    return cluster([], classes, jobs, machines=machines, pools=pools)


def test_fair_shares_go_down_into_child_nodepools_and_fixed_ones_do_not():
    there = play(nested([job(1, "a", "fair")], {"fair": EAGER}))
    assert held(there) == {1: {"m0": 4, "m1": 4}}
    there = play(nested([job(1, "a", "fixed")], {"fixed": FIXED}))
    assert held(there) == {1: {"m0": 4}}


def test_equal_classes_share_nested_nodepools_by_half_where_they_can():
    low = {**EAGER, "nodepool": "low"}
    jobs = [job(1, "a", "low"), job(2, "b", "top")]
    assert counts(play(nested(jobs, {"low": low, "top": EAGER}, ((4, "top"), (12, "low"))))) == {1: 8, 2: 8}
    assert counts(play(nested(jobs, {"low": low, "top": EAGER}, ((12, "top"), (4, "low"))))) == {1: 4, 2: 12}


def test_reservation_empties_a_machine_of_exactly_its_order_and_waits_for_it():
    classes = {"fair": EAGER, "whole": RESERVE}
    jobs = [job(1, "a", "fair"), job(2, "b", "whole", 3, type="Reservation", max_shares=1, arrive=2)]
    there = play(cluster([4, 3], classes, jobs), 2)
    _, plan = there.step()
    assert [(o.task[:5], o.why) for o in plan.orders if isinstance(o, Stop)] == [("j0001", "reservation")] * 3
    assert held(play(there, 3)) == {1: {"m0": 4}, 2: {"m1": 1}}


def test_reservation_of_an_order_nobody_has_says_so():
    there = cluster([4, 4], {"whole": RESERVE}, [job(1, "b", "whole", 3, type="Reservation", max_shares=1)])
    _, plan = there.step()
    assert [(wait.reason, wait.facts["order"]) for wait in plan.waits] == [("no-machine-of-order", 3)]


def test_instances_of_a_service_stand_on_different_machines_and_then_together():
    jobs = [job(k, "a", "fixed", type="Service", max_shares=1, service_id=7) for k in (1, 2, 3)]
    there = play(cluster([4, 4], {"fixed": FIXED}, jobs))
    assert sorted(len(on) for on in held(there).values()) == [1, 1, 1]
    on = [machine for shares in held(there).values() for machine in shares]
    assert sorted(on.count(machine) for machine in set(on)) == [1, 2]


def test_allotment_stops_what_cannot_be_preempted_and_nothing_else():
    jobs = [job(1, "a", "fixed"), job(2, "a", "fair")]
    there = play(cluster([8], {"fixed": FIXED, "fair": EAGER}, jobs, user_allotment_gb={"a": 3}))
    assert counts(there) == {1: 3, 2: 5}
    _, plan = there.step()
    wait = next(wait for wait in plan.waits if wait.job == "j0001")
    assert (wait.reason, wait.facts["held"], wait.facts["allotment"]) == ("allotment", 3, 3)


def test_job_that_names_machines_is_counted_no_more_than_they_hold():
    jobs = [job(1, "a", "c", machines=["m0"]), job(2, "b", "c")]
    assert counts(play(cluster([2, 8], {"c": EAGER}, jobs))) == {1: 2, 2: 8}


def test_job_too_large_for_everything_waits_and_holds_nobody_up():
    machines = [{"name": "m0", "mem_gb": 7, "order": 1, "pool": "top"}]
    jobs = [job(1, "a", "c", 5), job(2, "a", "c", 9), job(3, "b", "c", 4)]  # 5 would fit, but not in quanta of 4
    there = cluster([], {"c": EAGER}, jobs, machines=machines, quantum_gb=4)
    _, plan = there.step()
    answer = {wait.job: wait.reason for wait in plan.waits}
    assert (answer["j0001"], answer["j0002"]) == ("too-large", "no-single-host")
    assert counts(there) == {3: 1}


def test_job_with_a_minimum_starts_with_it_or_not_at_all():
    there = cluster([4], {"c": EAGER}, [job(1, "a", "c"), job(2, "b", "c")])
    plan = orders(seen(there, elastic=Elastic(3, 10)))
    assert {o.task[:5] for o in plan.orders} == {"j0001"}
    assert len(plan.orders) == 4
    assert [(w.job, w.reason) for w in plan.waits if w.job == "j0002"] == [("j0002", "below-minimum")]


def test_job_that_waits_for_its_minimum_says_so_only_if_it_is_not_counted_it():
    there = cluster([4], {"c": EAGER}, [job(1, "a", "c"), job(2, "b", "c", min_shares=2, arrive=2)])
    play(there, 2)
    _, plan = there.step()
    assert [(wait.reason, wait.facts["counted"]) for wait in plan.waits if wait.job == "j0002"] == [
        ("preemptions", 2)
    ]
    assert counts(play(there, 2)) == {1: 2, 2: 2}


def test_defragmentation_serves_jobs_with_a_minimum_above_the_threshold_too():
    jobs = [job(1, "a", "c", 1, max_shares=6), job(2, "b", "c", 2, max_shares=3, min_shares=3)]
    there = cluster([3, 3, 3, 3], {"c": EAGER}, jobs)
    put(there, 1, "m0", "m0", "m1", "m1", "m2", "m2")
    assert counts(play(there, 4)) == {1: 6, 2: 3}


def test_job_that_is_not_elastic_goes_to_the_default_fixed_class():
    there = cluster([4], {"fair": EAGER, "fixed": FIXED}, [job(1, "a", "fair", max_shares=2)])
    plan = orders(seen(there, elastic=None, job_class=""))
    assert plan.figures["jobs"]["j0001"]["class"] == "fixed"
    assert len(plan.orders) == 2
    assert orders(seen(there, job_class="")).figures["jobs"]["j0001"]["class"] == "fair"


def test_memory_of_another_policy_is_not_read():
    there = cluster([4], {"c": EAGER}, [job(1, "a", "c")])
    plan = orders(replace(there.view(), memory={"trees": 7, "known": [1]}))
    assert len(plan.orders) == 4
    assert set(plan.memory) == {"fair_share"}


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_impossible_rate_predicts_nothing(seconds):
    there = cluster([4], {"c": {**EAGER, "use-prediction": True}}, [job(1, "a", "c")])
    assert len(orders(seen(there, progress=JobProgress(10, 0, seconds, True))).orders) == 4


def test_class_with_a_list_of_users_refuses_others():
    there = cluster([4], {"c": EAGER}, [job(1, "a", "c"), job(2, "b", "c")])
    reconfigured(there, classes={"c": {**there.settings["classes"]["c"], "users": ["a"]}})
    plan = orders(there.view())
    assert {o.task[:5] for o in plan.orders} == {"j0001"}
    assert [w.reason for w in plan.waits if w.job == "j0002"] == ["not-authorised"]


@pytest.mark.parametrize(("cls", "key"), [(EAGER, "cap"), (FIXED, "max_processes")])
def test_class_holds_no_more_than_its_cap(cls, key):
    there = cluster([8], {"c": cls}, [job(1, "a", "c"), job(2, "b", "c")])
    reconfigured(there, classes={"c": {**there.settings["classes"]["c"], key: 3}})
    assert sum(counts(play(there)).values()) == 3


def test_jobs_of_a_class_that_has_its_cap_are_told_so():
    """A fair class at its cap said `fair-share`, as if others had what it lacks."""
    jobs = [job(1, "a", "fair"), job(2, "b", "fair"), job(3, "c", "other")]
    there = cluster([8, 8], {"fair": EAGER, "other": EAGER}, jobs)
    classes = there.settings["classes"]
    reconfigured(there, classes={name: {**classes[name], "cap": cap} for name, cap in (("fair", 3), ("other", 2))})
    play(there)
    waits = {wait.job: wait for wait in there.step()[1].waits}
    assert {wait.reason for wait in waits.values()} == {"class-cap"}
    assert sorted(wait.text for wait in waits.values()) == [
        "class fair has its limit of 3 shares",
        "class fair has its limit of 3 shares",
        "class other has its limit of 2 shares",
    ]


def test_cluster_without_memory_counts_cores():
    view = cluster([4, 4], {"c": EAGER}, [job(1, "a", "c"), job(2, "b", "c", 2)]).view()
    cores = replace(
        view,
        workers=[replace(w, capacity={"core": 4}, free={"core": 4}) for w in view.workers],
        place=lambda demand, workers: _in_cores(view.place(demand, workers)),
    )
    assert {name: one["counted"] for name, one in orders(cores).figures["jobs"].items()} == {"j0001": 4, "j0002": 2}


def _in_cores(take):
    if take is None:
        return None
    placed = tuple((label, {w: {"core": held["memory"]} for w, held in on.items()}) for label, on in take.placed)
    return replace(take, placed=placed)


def test_tiny_quantum_is_coarsened_rather_than_tables_made_endless():
    there = cluster([1], {"c": EAGER}, [job(1, "a", "c", 10**9)])
    there.row["machines"][0]["mem_gb"] = 10**12
    assert len(orders(there.view()).orders) > 0


def test_job_of_two_sizes_is_two_parts():
    there = cluster([4], {"c": EAGER}, [job(1, "a", "c", max_shares=1), job(2, "a", "c", 2, max_shares=1)])
    view = there.view()
    other = replace(view.jobs[1].gangs[0], job="j0001", number=1)
    both = replace(view.jobs[0], elastic=None, gangs=(view.jobs[0].gangs[0], other))
    plan = orders(replace(view, jobs=[both]))
    assert set(plan.figures["jobs"]) == {"j0001/1", "j0001/2"}
    assert len(plan.orders) == 2


def test_figures_sum_by_class_and_user():
    there = play(cluster([4, 4], {"c": EAGER}, [job(1, "a", "c"), job(2, "b", "c", 2)]))
    _, plan = there.step()
    assert plan.figures["users"] == {
        "a": {"jobs": 1, "deserved": 4, "counted": 4, "held": 4},
        "b": {"jobs": 1, "deserved": 4, "counted": 4, "held": 4},
    }
    assert plan.figures["classes"]["c"]["held"] == 8
    assert sum(one["used"] for one in plan.figures["machines"].values()) == 8
