"""fair_share over real stores: services keep their number, reservations are whole machines."""

from rainbow.transitions import EARLY_END, STARTS
from tests.support.growing import FAIR, FIXED, bag, elastic, site, states, there

__all__ = ["there"]  # fixtures


def test_service_is_kept_at_its_number_of_instances_on_machines_of_their_own(there, clock):
    web = there.submit("ann", bag(3, service="web"))
    there.settle()
    shown = there.job(web)["tasks"]
    assert len({worker for task in shown for worker in task["placement"]}) == 3
    clock.now += EARLY_END
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
    clock.now += EARLY_END
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


def test_class_that_is_not_for_everybody(api):
    there = site(api, classes={"fair": {**FAIR, "users": ["ann"]}, "fixed": FIXED})
    job = there.submit("bob", elastic(1, 4, **{"class": "fair"}))
    there.settle()
    assert there.job(job)["wait"]["reason"] == "not-authorised"
