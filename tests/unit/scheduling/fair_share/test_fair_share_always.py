"""What must hold of the fair-share policy whatever comes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.scheduling import FairShare
from rainbow.scheduling.fair_share.apportionment import apportion
from rainbow.scheduling.fair_share.share_tables import Tables, share_counts, total_quanta
from tests.conformance.ducc import entity
from tests.conftest import examples
from tests.support.policies.epochs import Cluster, shuffled
from tests.support.policies.scenarios import scenario
from tests.support.policies.small_clusters import EAGER, FAIR, cluster, job, play

sizes = st.lists(st.integers(0, 6), min_size=1, max_size=8).map(lambda table: [0, *table])
wishes = st.lists(st.tuples(st.sampled_from([1, 50, 100, 400]), st.lists(st.integers(0, 20), max_size=8)), max_size=6)


@given(sizes, wishes)
def test_apportioned_shares_are_wanted_and_there_and_nothing_of_use_is_left(table, wanted):
    longest = len(table) - 1
    claims = [entity(f"e{k}", w, [0, *wants[:longest]], longest) for k, (w, wants) in enumerate(wanted)]
    requests = [list(claim.wanted) for claim in claims]
    remaining = list(table)
    apportion(claims, remaining)
    assert sum(total_quanta(claim.given) for claim in claims) + total_quanta(remaining) == total_quanta(table)
    for claim, wish in zip(claims, requests, strict=True):
        assert all(0 <= options <= want for options, want in zip(claim.given, wish, strict=True))
        missing = {o for o, want in enumerate(wish) if claim.given[o] < want}
        assert not missing & {o for o, count in enumerate(share_counts(remaining)) if count}


@settings(max_examples=examples(200))
@given(st.data())
def test_nobody_of_equal_weight_has_nothing_while_another_holds_more_than_a_largest_share(data):
    """Where there are as many machines as claims, each of which wants shares of any sizes that fit one."""
    size = data.draw(st.sampled_from([2, 4, 8, 16]))
    some = st.lists(st.tuples(st.integers(1, size), st.sampled_from([1, 7, 1000])), min_size=1, max_size=3)
    requirement = data.draw(st.lists(some, min_size=2, max_size=7))
    claims = []
    for k, wants in enumerate(requirement):
        by_order = dict(wants)
        claims.append(entity(f"e{k}", 1, [by_order.get(o, 0) for o in range(size + 1)], size))
    table = [0] * size + [data.draw(st.integers(len(claims), 80))]
    apportion(claims, table)
    given_ = [total_quanta(claim.given) for claim in claims]
    assert min(given_) > 0 or max(given_) <= size


def test_sizes_of_shares_do_not_decide_who_gets_half():
    claims, table = [entity("a", 1, [0] * 4 + [1000], 8), entity("b", 1, [0] * 8 + [1000], 8)], [0] * 8 + [64]
    apportion(claims, table)
    assert [total_quanta(claim.given) for claim in claims] == [256, 256]


@given(st.lists(st.integers(1, 8), min_size=1, max_size=8), st.data())
def test_tables_equal_a_recomputation_after_any_bookings(orders, data):
    free = list(orders)
    tables = Tables.of(zip(orders, free, strict=True), 8)
    for _ in range(data.draw(st.integers(0, 12))):
        open_ = [k for k, remaining in enumerate(free) if remaining]
        if not open_:
            break
        k = data.draw(st.sampled_from(open_))
        free[k] = tables.book(data.draw(st.integers(1, free[k])), orders[k], free[k])
    again = Tables.of(zip(orders, free, strict=True), 8)
    assert tables == again
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
    result = counted(there)
    by_user = {user: sum(result[k + 1] for k, owner in enumerate(owners) if owner == user) for user in owners}
    assert max(by_user.values()) - min(by_user.values()) <= 1
    assert sum(by_user.values()) == sum(orders)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 8)), min_size=2, max_size=8), st.integers(8, 64))
def test_users_of_a_class_with_shares_of_any_sizes_all_get_some(wanted, count):
    there = cluster([8] * count, {"c": EAGER}, [job(k + 1, user, "c", o) for k, (user, o) in enumerate(wanted)])
    result = counted(there)
    by_user = {user: 0 for user, _ in wanted}
    for k, (user, o) in enumerate(wanted):
        by_user[user] += result[k + 1] * o
    assert min(by_user.values()) > 0


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
