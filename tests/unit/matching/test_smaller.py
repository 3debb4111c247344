"""The smallest change: what it says holds, whatever the cluster and the request."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rainbow
from rainbow.matching import backends
from rainbow.matching.explain.edits import MILD, edited, edits_of
from rainbow.matching.explain.smallest_change import DEAR, PROBES, cost, smallest_change
from rainbow.testing.backends import cluster
from tests.conftest import examples
from tests.support.hard_inputs import hard_cluster
from tests.support.oracle_cases import OWN_BACKENDS
from tests.unit.matching.test_matching import document, requests, shapes

levels = st.sampled_from(["any", "any", "strict"])
INDEX = backends.get("index")


class Counting:
    """A backend that counts how often it is asked."""

    def __init__(self):
        self.asked = 0

    def match(self, request, cluster):
        self.asked += 1
        return INDEX.match(request, cluster)


@given(shapes, requests, levels)
@settings(deadline=None, max_examples=examples(200))
def test_change_when_made_matches_and_without_it_does_not(shape, request, levels):
    built = rainbow.read_cluster(document(shape), name="c", levels=levels)
    change = smallest_change(built, request, INDEX)
    if rainbow.match(request, [built])[0].matched:
        assert change is None
    elif change:
        assert edited(request, change.edits) == change.request
        assert all(rainbow.match(change.request, [built], backend=name)[0].matched for name in ("networkx", "index"))


@given(shapes, requests)
@settings(deadline=None, max_examples=examples(100))
def test_no_edit_of_a_change_can_be_left_out(shape, request):
    built = rainbow.read_cluster(document(shape), name="c")
    change = smallest_change(built, request, INDEX)
    for edit in change.edits if change else ():
        rest = edited(request, [other for other in change.edits if other is not edit])
        assert rest is None or not rainbow.match(rest, [built])[0].matched


def test_probes_are_bounded():
    kinds = [{"type": f"kind{n}", "count": 2} for n in range(60)]
    job = rainbow.parse_jobspec({"resources": {"all": {"type": "node", "replicas": 5, "with": kinds}}})
    counting = Counting()
    assert smallest_change(cluster("cluster(node*4(core*4))"), job, counting) is None
    assert 20 < counting.asked <= PROBES + 1


def test_count_of_a_change_is_the_largest_that_matches():
    built = cluster("cluster(node*10(core*36))")
    cores = {"type": "core", "count": 40}
    job = rainbow.parse_jobspec({"resources": {"all": {"type": "node", "replicas": 2, "with": [cores]}}})
    (edit,) = smallest_change(built, job, INDEX).edits
    assert (edit.text, edit.count) == ("core ≤ 36", 36)
    assert edited(job, [replace(edit, count=37)]) is not None
    assert not rainbow.match(edited(job, [replace(edit, count=37)]), [built])[0].matched


def test_a_job_of_thousands_of_requests_costs_few_probes():
    kinds = [{"type": "core", "count": 2} for n in range(5_000)]
    job = rainbow.parse_jobspec({"resources": {"all": {"type": "node", "replicas": 5, "with": kinds}}})
    counting = Counting()
    smallest_change(cluster("cluster(node*4(core*4))"), job, counting)
    assert counting.asked < 10


def test_without_a_level_as_much_is_asked_as_before():
    core = {"type": "core", "count": 2}
    node = {"type": "node", "count": 3, "with": [core]}
    job = rainbow.parse_jobspec({"resources": {"all": {"type": "rack", "count": 2, "with": [node]}}})
    change = smallest_change(cluster("cluster(node*6(core*2))"), job, INDEX)
    assert change.text == "level rack not asked"
    (slot,) = change.request.resources
    assert [(part.type, part.count.min) for part in slot.walk()] == [("slot", 1), ("node", 6), ("core", 2)]
    assert smallest_change(cluster("cluster(node*5(core*2))"), job, INDEX).text == "node ≤ 2; level rack not asked"


def test_searches_that_give_up_are_dear():
    slots = {f"s{k}": {"type": "core", "replicas": 1, "count": 34 + k} for k in range(9)}
    job = rainbow.parse_jobspec({"resources": slots})
    built = hard_cluster([{"core": (100 + k, {"pu": 1})} for k in range(8)])  # each is taken whole, by one slot
    given_up = INDEX.match(job, built)
    assert given_up.matched is None
    assert cost(job, given_up) == DEAR
    assert smallest_change(built, job, INDEX, probes=5) is None


# ── issue 16, 7: the smallest change is found where three edits are needed ──

NVME = {"type": "node", "with": [{"type": "core", "count": 40}, {"type": "gpu", "count": 1}]}
NVME["requires"] = [{"name": "io", "field": "type", "match": "nvme"}]


@pytest.mark.parametrize("backend", OWN_BACKENDS)
def test_three_edits_are_found(backend):
    hung = [{"at": f"node{k}", "subsystem": "io", "type": "shm"} for k in range(3)]
    built = cluster("cluster(node*10(core*4))", hung=hung)
    job = rainbow.parse_jobspec({"resources": {"all": NVME}})
    change = smallest_change(built, job, backends.get(backend))
    assert change.text == "core ≤ 4; gpu not asked; without match on io.type"
    assert rainbow.match(change.request, [built], backend=backend)[0].matched


def fewest(request, built, edits):
    """Return how many of the edits are needed at least, three at most, by trying all sets of them."""
    for many in range(1, 4):
        for some in combinations(edits, many):
            changed = edited(request, some)
            if changed is not None and INDEX.match(changed, built).matched:
                return many
    return None


@given(shapes, requests)
@settings(deadline=None, max_examples=60)
def test_a_change_has_as_few_edits_as_trying_all_sets_finds(shape, request):
    built = rainbow.read_cluster(document(shape), name="c")
    edits = list(edits_of(request))
    assume(len(edits) <= 9)
    assume(not INDEX.match(request, built).matched)
    mild = fewest(request, built, [edit for edit in edits if edit.kind in MILD])
    expected = mild or fewest(request, built, edits)
    change = smallest_change(built, request, INDEX)
    if expected is not None:
        assert change is not None
        assert len(change.edits) == expected
