"""The fair-share policy: what its founding text says, and what must hold whatever comes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.jobs import WorkerState
from rainbow.scheduling import Elastic, FairShare, JobProgress, Start, Stop, check_plan
from rainbow.scheduling.fair_share import epoch
from rainbow.scheduling.fair_share.apportion import apportion, entity
from rainbow.scheduling.fair_share.caps import Growth, Load, job_cap
from rainbow.scheduling.fair_share.quanta import job_order, machine_order, share_counts, total_quanta
from rainbow.scheduling.fair_share.tables import Tables
from tests.epochs import Cluster, shuffled
from tests.scenarios import scenario
from tests.small_clusters import EAGER, FAIR, FIXED, RESERVE, cluster, counts, held, job, put

# ── what the text says ──


def test_table_of_the_text():
    assert Tables([0, 2, 0, 1, 4], [0, 1, 2, 0, 0]).s == [0, 26, 11, 5, 4]


def test_one_machine_of_order_5_is_one_of_several_alternatives():
    assert share_counts([0, 0, 0, 0, 0, 1]) == [0, 5, 2, 1, 1, 1]


def test_allocation_of_3_makes_of_a_machine_of_5_a_virtual_one_of_2():
    tables = Tables.of([(5, 5)], 5)
    assert tables.book(3, 5, 5) == 2
    assert (tables.n, tables.v) == ([0] * 6, [0, 0, 1, 0, 0, 0])


@pytest.mark.parametrize(("memory", "quantum", "job", "machine"), [(45, 15, 3, 3), (46, 15, 4, 3), (14, 15, 1, 0)])
def test_jobs_round_up_and_machines_round_down(memory, quantum, job, machine):
    assert (job_order(memory, quantum), machine_order(memory, quantum)) == (job, machine)


def test_fragmentation_example_of_the_text():
    """A holds 5 shares of order 1, spread so that B finds room for only one of its 2 shares of order 2."""
    there = cluster([3, 3, 3], {"c": EAGER}, [job(1, "a", "c", 1, max_shares=5), job(2, "b", "c", 2, max_shares=2)])
    put(there, 1, "m0", "m0", "m1", "m1", "m2")
    put(there, 2, "m2")
    _, plan = there.step()
    assert {name: j["counted"] for name, j in plan.figures["jobs"].items()} == {"j0001": 5, "j0002": 2}
    stops = [order for order in plan.orders if isinstance(order, Stop)]
    assert [(stop.task[:5], stop.why) for stop in stops] == [("j0001", "defragmentation")]
    for _ in range(4):
        there.step()
    assert counts(there) == {1: 5, 2: 2}


CHAIN = Growth(initialization_cap=2, expand_by_doubling=True, use_prediction=True, prediction_fudge=60_000)
BUSY = Load(most=50, items_left=100, threads=4)


@pytest.mark.parametrize(
    ("load", "current", "growth", "cap", "why"),
    [
        (replace(BUSY, completed=True), 3, CHAIN, 3, "completed"),
        (BUSY, 20, CHAIN, 25, "work-left"),  # 100 items, 4 at a time
        (replace(BUSY, items_left=4), 20, CHAIN, 20, "work-left"),  # winding down shrinks nobody early
        (replace(BUSY, most=10), 20, CHAIN, 10, "maximum"),
        (replace(BUSY, initialising=True), 0, CHAIN, 2, "initialization-cap"),
        (replace(BUSY, initialising=True), 0, replace(CHAIN, initialization_cap=0), 25, "work-left"),
        (BUSY, 3, CHAIN, 6, "doubling"),
        (BUSY, 3, replace(CHAIN, expand_by_doubling=False), 25, "work-left"),
        (BUSY, 0, CHAIN, 2, "initialization-cap"),  # pushed out: doubling starts anew
        (replace(BUSY, items_left=1), 0, CHAIN, 1, "work-left"),
        # 70 s + 30 s from now, 8 items at a time, 20 s each: 40 will be done and 60 left, 4 to a share
        (
            replace(BUSY, time_per_item=20_000, init_times=(30_000,)),
            2,
            replace(CHAIN, expand_by_doubling=False),
            15,
            "prediction",
        ),
    ],
)
def test_cap_chain_of_the_text(load, current, growth, cap, why):
    assert job_cap(growth, load, current) == (cap, why)


def test_original_sends_a_running_job_of_unknown_rate_back_to_its_initialization_cap():
    assert job_cap(CHAIN, BUSY, 6)[0] == 12
    assert job_cap(CHAIN, BUSY, 6, classic=True)[0] == 2


def test_second_user_shrinks_the_first_to_half():
    doubling = {**EAGER, "expand-by-doubling": True, "initialization-cap": 1}
    there = cluster([4] * 8, {"c": doubling}, [job(1, "ann", "c"), job(2, "bob", "c", arrive=10)])
    seen = []
    for _ in range(24):
        there.step()
        seen.append(counts(there))
    assert [one.get(1, 0) for one in seen[:8]] == [1, 2, 4, 8, 16, 32, 32, 32]
    assert seen[9] == {1: 32}
    assert seen[-1] == {1: 16, 2: 16}
    assert seen.index({1: 16, 2: 16}) <= 20


# ── what must hold whatever comes ──

sizes = st.lists(st.integers(0, 6), min_size=1, max_size=8).map(lambda table: [0, *table])
wishes = st.lists(st.tuples(st.sampled_from([1, 50, 100, 400]), st.lists(st.integers(0, 20), max_size=8)), max_size=6)


@given(sizes, wishes)
def test_apportioned_shares_are_wanted_and_there_and_nothing_of_use_is_left(table, wanted):
    longest = len(table) - 1
    claims = [entity(f"e{k}", w, [0, *wants[:longest]], longest) for k, (w, wants) in enumerate(wanted)]
    asked = [list(claim.wanted) for claim in claims]
    left = list(table)
    apportion(claims, left)
    assert sum(total_quanta(claim.given) for claim in claims) + total_quanta(left) == total_quanta(table)
    for claim, wish in zip(claims, asked, strict=True):
        assert all(0 <= given <= want for given, want in zip(claim.given, wish, strict=True))
        missing = {o for o, want in enumerate(wish) if claim.given[o] < want}
        assert not missing & {o for o, count in enumerate(share_counts(left)) if count}


@given(st.lists(st.integers(1, 8), min_size=1, max_size=8), st.data())
def test_tables_equal_a_recomputation_after_any_bookings(orders, data):
    free = list(orders)
    tables = Tables.of(zip(orders, free, strict=True), 8)
    for _ in range(data.draw(st.integers(0, 12))):
        open_ = [k for k, left in enumerate(free) if left]
        if not open_:
            break
        k = data.draw(st.sampled_from(open_))
        free[k] = tables.book(data.draw(st.integers(1, free[k])), orders[k], free[k])
    again = Tables.of(zip(orders, free, strict=True), 8)
    assert (tables.n, tables.v, tables.s) == (again.n, again.v, again.s)
    assert total_quanta(tables.free) == sum(free)


def counted(there):
    plan = FairShare().plan(there.view())
    return {int(name[1:]): figures["counted"] for name, figures in plan.figures["jobs"].items()}


users = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=12)
machines = st.lists(st.integers(1, 6), min_size=1, max_size=10)


@settings(deadline=None)
@given(machines, users)
def test_users_of_a_class_differ_by_one_share_at_most(orders, owners):
    there = cluster(orders, {"c": EAGER}, [job(k + 1, user, "c") for k, user in enumerate(owners)])
    found = counted(there)
    by_user = {user: sum(found[k + 1] for k, owner in enumerate(owners) if owner == user) for user in owners}
    assert max(by_user.values()) - min(by_user.values()) <= 1
    assert sum(by_user.values()) == sum(orders)


@settings(deadline=None)
@given(machines, users, st.integers(1, 6))
def test_another_empty_machine_never_lowers_what_is_counted(orders, owners, more):
    jobs = [job(k + 1, user, "c", max_shares=3 + k) for k, user in enumerate(owners)]
    fewer = sum(counted(cluster(orders, {"c": FAIR | EAGER}, jobs)).values())
    assert sum(counted(cluster([*orders, more], {"c": EAGER}, jobs)).values()) >= fewer


@settings(deadline=None)
@given(machines, users, users, st.integers(1, 4))
def test_better_priority_never_suffers_from_a_worse_one(orders, best, worse, order):
    classes = {"best": EAGER, "worse": {**EAGER, "priority": 12}}
    first = [job(k + 1, user, "best", 1 + k % order, max_shares=4) for k, user in enumerate(best)]
    others = [job(k + 100, user, "worse", 1 + k % 3) for k, user in enumerate(worse)]
    alone, together = counted(cluster(orders, classes, first)), counted(cluster(orders, classes, [*first, *others]))
    assert {number: together[number] for number in alone} == alone


@settings(deadline=None)
@given(machines, users, st.permutations(range(12)))
def test_names_of_machines_do_not_change_counts(orders, owners, turn):
    jobs = [job(k + 1, user, "c", 1 + k % 3) for k, user in enumerate(owners)]
    mixed = [orders[k] for k in turn if k < len(orders)]
    assert counted(cluster(orders, {"c": EAGER}, jobs)) == counted(cluster(mixed, {"c": EAGER}, jobs))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
def test_order_of_users_machines_and_jobs_changes_nothing(seed, turn):
    there = play(Cluster(scenario(seed)), 3)
    view = there.view()
    assert FairShare().plan(shuffled(view, turn)) == FairShare().plan(view)


# ── kinds of work ──


def play(there, epochs=8):
    for _ in range(epochs):
        there.step()
    return there


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
    told = {wait.job: wait.reason for wait in plan.waits}
    assert (told["j0001"], told["j0002"]) == ("too-large", "no-single-host")
    assert counts(there) == {3: 1}


# ── machines ──


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


def reconfigured(there, **settings):
    there.settings = FairShare().check({**there.settings, **settings})
    return there


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


# ── jobs that are not simply elastic ──


def seen(there, **changes):
    """The view, every job of it changed."""
    view = there.view()
    return replace(view, jobs=[replace(one, **changes) for one in view.jobs])


def orders(view):
    plan = FairShare().plan(view)
    check_plan(view, plan)
    return plan


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

    how_much = epoch.how_much
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
