"""The fair-share policy: what its founding text says."""

from dataclasses import replace

import pytest

from rainbow.scheduling import Stop
from rainbow.scheduling.fair_share.caps import job_cap
from rainbow.scheduling.fair_share.model import JobWork
from rainbow.scheduling.fair_share.settings import Growth
from rainbow.scheduling.fair_share.share_tables import Tables, job_order, machine_order, share_counts
from tests.support.policies.small_clusters import EAGER, cluster, counts, job, put


def test_table_of_the_text():
    assert share_counts(Tables([0, 2, 0, 1, 4], [0, 1, 2, 0, 0]).free) == [0, 26, 11, 5, 4]


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
BUSY = JobWork(most=50, items_left=100, threads=4)


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
