"""What a search takes, where yes and no are right: slots counted, units added up, nothing too much."""

import random
import subprocess
import sys

import pytest

import rainbow
from rainbow.jobspec import Request, Resource
from rainbow.jobspec.hostlist import expand_ids
from rainbow.jobspec.version import in_range
from rainbow.matching import backends, smallest_change
from rainbow.matching.workers.occupancy import Occupancy
from tests.support.oracle_cases import case
from tests.support.trees import groups, slot, slots, some, tree

BACKENDS = ("networkx", "index")
GPU_AND_CORE = ("n0 node", "n0/gpu0 gpu", "n0/core0 core*4")
SIX = (*(f"n{k} node" for k in range(6)), "n5/core0 core*4")


def takes(cluster, request):
    """Return what each backend and a first start take; they say the same."""
    verdicts = [rainbow.match(request, [cluster], name, rainbow.Budget())[0] for name in BACKENDS]
    assert verdicts[0].matched == verdicts[1].matched
    holding = Occupancy(cluster).take(request)
    assert (holding is not None) == verdicts[0].matched
    if holding is None:
        return None
    assert verdicts[0].take == verdicts[1].take
    assert dict(holding.vertices) == dict(verdicts[0].take.vertices)
    assert holding.take.variant == verdicts[0].take.variant
    assert sorted(holding.take.rows, key=str) == sorted(verdicts[0].take.rows, key=str)
    return verdicts[0].take


@pytest.mark.parametrize(
    ("resources", "vertices"),
    [
        (
            [
                slot(2, some("gpu"), kind="or_slot"),
                slot(2, some("core", 4), kind="or_slot"),
            ],
            {"gpu0": 1, "core0": 4},
        ),
        ([slot(1, some("gpu")), slot(1, some("core"))], {"gpu0": 1, "core0": 1}),
        ([slot(1, some("gpu"), slot(1, some("core")))], {"gpu0": 1, "core0": 1}),
    ],
    ids=["or_slot", "siblings", "a slot in a slot"],
)
def test_slots_of_one_label_stay_apart(resources, vertices):
    take = takes(tree(*GPU_AND_CORE), slots(*resources))
    assert dict(take.vertices) == vertices
    assert [label for label, _ in take.placed] == ["run", "run"]


@pytest.mark.parametrize("labels", ["ab", "ba"])
def test_a_slot_on_several_workers_has_a_slot_on_each(labels):
    outer, inner = labels
    inside = slot(1, some("core"), label=inner)
    request = slots(slot(1, {"type": "node", "count": 3, "with": [inside]}, label=outer), slot(1, some("core")))
    alone = rainbow.Request((request.resources[:1],), request.tasks)
    cluster = tree("n0 node", "n0/c0 core", "n1 node", "n1/c1 core", "n2 node", "n2/c2 core")
    assert sorted(label for label, _ in takes(cluster, alone).placed) == sorted(f"{outer}{inner * 3}")
    assert sorted(label for label, _ in Occupancy(cluster).take(alone).take.placed) == sorted(f"{outer}{inner * 3}")


def test_a_slot_of_slots_alone_multiplies_them_and_starts_nothing():
    take = takes(tree(*GPU_AND_CORE), slots(slot(2, slot(2, some("core")))))
    assert [label for label, _ in take.placed] == ["run"] * 4


@pytest.mark.parametrize(("many", "each"), [(6, 1), (3, 2), (2, 3)])
def test_slots_on_vertices_whole_and_divisible_get_equally_many(many, each):
    take = takes(tree(*SIX), slots(slot(many, some("node", each))))
    assert [sum(held["node"] for held in worker.values()) for _, worker in take.placed] == [each] * many


GCC = [{"name": "sw", "field": "name", "match": "gcc"}]


@pytest.mark.parametrize("how", [{}, {"exclusive": True}, {"requires": GCC}])
@pytest.mark.parametrize(("count", "unit", "sizes"), [(1, "TB", "512GB"), (3, "GB", "1500MB"), (1, "GiB", "512MiB")])
def test_amounts_are_added_over_all_vertices_before_they_are_compared(count, unit, sizes, how):
    cluster = tree("n0 node", "n0/core0 core*8", f"n0/m0 memory*{sizes}", f"n0/m1 memory*{sizes}")
    rows = {"nodes": {"v": {"metadata": {"type": "lib", "name": "gcc"}}}, "edges": [{"source": "n0", "target": "v"}]}
    cluster = cluster.with_subsystem("sw", {"graph": rows})
    memory = some("memory", count, unit=unit, **how)
    take = takes(cluster, groups(w={"type": "node", "with": [some("core", 2), memory]}))
    assert set(take.vertices) == {"core0", "m0", "m1"}
    few = tree("n0 node", "n0/core0 core*8", f"n0/m0 memory*{sizes}")
    assert takes(few, groups(w={"type": "node", "with": [some("core", 2), memory | {"requires": []}]})) is None


NESTED = ("x node+intel", "x/y node", "x/y/z node", "x/y/z/c0 core", "w node+amd", "w/s0 socket", "w/s0/c1 core")


def test_workers_in_workers_that_fail_the_constraint_hide_nothing_else():
    assert dict(takes(tree(*NESTED), groups(["amd"], a=some("socket"))).vertices) == {"s0": 1}


def test_an_inner_worker_that_fails_the_constraint_gives_nothing():
    cluster = tree("w node+amd", "w/n node", "w/n/c0 core", "w/s0 socket", "w/s0/c1 core")
    assert dict(takes(cluster, groups(["amd"], a=some("core"))).vertices) == {"c1": 1}
    assert takes(cluster, groups(["amd"], a=some("core", 2))) is None


def test_an_exclusive_root_leaves_nothing_to_its_siblings():
    cluster = tree("n0 node", "n0/c0 core*4", "n1 node", "n1/c1 core*4")
    whole = {"type": "cluster", "exclusive": True, "with": [some("core")]}
    assert takes(cluster, groups(a=whole, b=some("core"))) is None
    assert takes(cluster, groups(b=some("core"), a=whole)) is None
    assert takes(cluster, groups(a=whole)) is not None


def test_no_vertex_is_taken_too_many():
    cluster = tree("n0 node", "n0/c0 core", "n0/c1 core*4")
    assert dict(takes(cluster, groups(a=some("core", 3, exclusive=True))).vertices) == {"c1": 4}
    cluster = tree("n0 node", "n0/g0 gpu", "n0/c0 core*2", "n0/c1 core")
    both = groups(a=some("core", 2, exclusive=True), b=some("gpu"))
    assert dict(takes(cluster, both).vertices) == {"c0": 2, "g0": 1}


def test_of_groups_one_that_takes_a_whole_vertex_books_the_smallest_as_the_verdict_does():
    cluster = tree("n0 node", "n0/c0 core*2", "n0/c1 core", "n1 node", "n1/g0 gpu")
    whole, other = ({"type": "slot", "with": [one]} for one in (some("core", exclusive=True), some("gpu")))
    assert dict(takes(cluster, groups(a=whole, b=other)).vertices) == {
        "c1": 1,
        "g0": 1,
    }


def test_the_first_start_books_what_the_verdict_takes():
    agreed = 0
    for number in range(400):
        cluster, request = case(number)
        verdict = rainbow.match(request, [cluster])[0]
        if verdict.matched:
            assert dict(Occupancy(cluster).take(request).vertices) == dict(verdict.take.vertices), number
            agreed += 1
    assert agreed > 80


def groups_that_meet(number):
    """Return a cluster, and two or three groups of slots of which one may take whole vertices."""
    rng = random.Random(number)
    lines = []
    for node in range(rng.randint(1, 3)):
        lines.append(f"n{node} node")
        leaves = [rng.choice(["core", "core*2", "core*4", "gpu", "memory*4GB"]) for _ in range(rng.randint(1, 4))]
        lines.extend(f"n{node}/x{node}{k} {leaf}" for k, leaf in enumerate(leaves))
    requirements = {
        label: slot_of(
            rng, [some(rng.choice(["core", "gpu"]), rng.choice([1, 1, 2, 3]), exclusive=rng.random() < 0.4)]
        )
        for label in "abc"[: rng.randint(2, 3)]
    }
    return tree(*lines), groups(**requirements)


def slot_of(rng, inside):
    return {"type": "slot", "replicas": rng.randint(1, 2), "with": inside}


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_verdict_and_booking_take_the_same_in_two_thousand_yes(part):
    agreed, number = 0, 10_000 + 100_000 * part
    while agreed < 2_000:
        agreed += takes(*case(number)) is not None
        agreed += takes(*groups_that_meet(number)) is not None
        number += 1


def test_groups_that_meet_are_booked_as_the_verdict_takes_them():
    answers = [takes(*groups_that_meet(number)) for number in range(300)]
    assert 50 < sum(take is not None for take in answers) < 290


def test_networkx_is_decided_at_a_process_s_first_match():
    code = (
        "import rainbow, sys; from tests.support.trees import document, groups; "
        "c = rainbow.read_cluster(document('n0 node', 'n0/c0 core'), name='c'); "
        "clock = iter(range(10**9)); "
        "import builtins; real = builtins.__import__; late = [0.0]\n"
        "def slow(name, *rest, **more):\n"
        "    late[0] += 1.0 if name == 'networkx' else 0.0\n"
        "    return real(name, *rest, **more)\n"
        "builtins.__import__ = slow\n"
        "print(rainbow.match(groups(a={'type': 'core'}), [c], 'networkx', "
        "rainbow.Budget(lambda: late[0]))[0].matched)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert said.stdout == "True\n", said.stderr


def test_a_tilde_sorts_before_the_plain_version():
    assert in_range("1.2~rc1", "1.2") is False
    assert in_range("1.2~rc1", "1.1") is True


def test_an_idset_s_range_ascends():
    assert expand_ids("1-1", 9) is None


def test_a_smallest_change_says_the_amount_that_a_vertex_has():
    cluster = tree("n0 node", "n0/m0 memory*1GB", "n0/m1 memory*1GB")
    requirement = groups(a={"type": "memory", "count": 2_000_000_001, "unit": "B"})
    change = smallest_change(cluster, requirement, backends.get("index"))
    assert change.text == "memory ≤ 2000000000 B"
    cluster = tree("n0 node", "n0/m0 memory*1GB", "n1 node", "n1/m1 memory*500MB")
    change = smallest_change(
        cluster, groups(a={"type": "memory", "count": 1_400_000_000, "unit": "B"}), backends.get("index")
    )
    assert change.text == "memory ≤ 1000000000 B"


def test_fits_says_at_least_of_what_takes_nothing():
    request = Request(((Resource("slot", label="a"),),), ())
    verdict = rainbow.match(request, [tree("n0 node", "n0/c0 core")])[0]
    assert (verdict.fits, verdict.exact) == (10**15, False)
