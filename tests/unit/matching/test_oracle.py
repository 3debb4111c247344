"""Both backends against a second opinion that tries every way to serve a request (oracle.py)."""

from dataclasses import replace

import pytest

import rainbow
from rainbow.jobspec import Condition, Constraint, Count, Need, Request, Resource
from rainbow.matching import backends, smallest_change
from rainbow.matching.model.verdict import Why
from rainbow.matching.workers.occupancy import Occupancy
from tests.support import strategies
from tests.support.oracle import Oracle, TooLargeError, Used
from tests.support.oracle_cases import case

MOST_TAKES = 12
MOST_PROBES = 40
BACKENDS = ("networkx", "index")


def judged(cluster, request, **more):
    return any(Oracle(cluster, request.constraint, **more).matches(variant) for variant in request.variants)


def said(verdict):
    """What a verdict says, the reason with its numbers."""
    return verdict.matched, verdict.fits, verdict.exact, dict(verdict.totals), verdict.reason


def check(number):
    """Compare one generated case, see `compare`."""
    return compare(*case(number))


def compare(cluster, request):
    """Compare a case in everything that is answered; return the verdict, None if the oracle finds it too large."""
    try:
        expected = judged(cluster, request)
    except TooLargeError:
        return None
    plain, index = (rainbow.match(request, [cluster], name, rainbow.Budget())[0] for name in BACKENDS)
    assert plain.matched == expected, f"networkx says {plain.matched}: {plain.reason}"
    assert index.matched == expected, f"index says {index.matched}: {index.reason}"
    assert said(plain) == said(index)
    assert plain.take == index.take
    try:
        if expected:
            check_takes(cluster, request, index)
        else:
            check_refusal(cluster, request, index)
    except TooLargeError:
        pass
    return expected


def check_takes(cluster, request, verdict):
    """Take copies until none is left: each is one, there are as many as is said, and no more."""
    occupancy, used, copies = Occupancy(cluster), Used(), 0
    while copies < MOST_TAKES and (holding := occupancy.take(request)) is not None:
        if not copies:
            assert dict(holding.vertices) == dict(verdict.take.vertices)
        assert judged(cluster, request, used=used, only=holding.vertices), f"copy {copies}: {holding.take}"
        check_slots(holding.take, request)
        used.add(holding.vertices, Oracle(cluster).graph)
        copies += 1
        if not any(holding.vertices.values()):
            return  # it takes nothing, as often as one likes
    if copies < MOST_TAKES:
        assert not judged(cluster, request, used=used), f"one more than {copies} fits"
        assert verdict.fits <= copies
    if verdict.exact:
        assert verdict.fits == copies if copies < MOST_TAKES else verdict.fits >= copies


def check_slots(take, request):
    """Every slot of the request is placed, by its label."""
    requirements = {}

    def count(r, times):
        times *= r.count.min
        if r.is_slot:
            requirements[r.label] = requirements.get(r.label, 0) + times
        for child in r.children:
            count(child, times)

    for resource in request.resources:
        count(resource, 1)
    placed = [label for label, _ in take.placed if label]
    assert all(placed.count(label) <= times for label, times in requirements.items())


def check_refusal(cluster, request, verdict):
    """A refusal about one part is true of that part alone; what is proposed instead matches."""
    if verdict.reason.why not in (Why.TOTAL_TOO_SMALL, Why.SIBLINGS_COLLIDE, Why.UNDECIDED):
        alone = [replace(request, variants=((part,),)) for part in request.resources]
        assert not all(judged(cluster, part) for part in alone), verdict.reason
    plain, index = (smallest_change(cluster, request, backends.get(name), probes=MOST_PROBES) for name in BACKENDS)
    assert (plain and plain.text) == (index and index.text)
    if plain:
        assert judged(cluster, plain.request), plain.text


CORES = Resource("core", Count(4, 4))
GCC = (Need("sw", (Condition("match", {"field": "name", "value": "gcc"}),)),)
HAS_GCC = ("sw", "lib", "gcc", "12.1")
UNEQUAL = [("node", ["core"] * 2), ("node", ["core"] * 2), ("node", ["core"] * 4)]
TWO_SLOTS = (
    Resource("slot", label="a", children=(Resource("node", children=(CORES,)),)),
    Resource("slot", label="b", children=(Resource("node", Count(2, 2), children=(Resource("core"),)),)),
)
EXCLUSIVE = Resource("core", Count(1, 1), "", True)
# what is asked for: shape, what hangs where, requests, constraint, the answer
REPORTED = {
    "an answer inherited by address": (UNEQUAL, [], TWO_SLOTS, None, True),
    "an answer inherited by address, hosts named": (UNEQUAL, [], TWO_SLOTS, "node[0-2]", True),
    "counted as fitting, not found": (
        [("rack", [("node", ["core"])])],
        [(2, HAS_GCC)],
        (Resource("slot", label="a", needs=GCC, children=(Resource("rack"),)),),
        None,
        True,
    ),
    "fits without a slot's needs": (
        [("node", ["core"] * 5)] * 2,
        [(1, HAS_GCC)],
        (Resource("slot", label="a", needs=GCC, children=(Resource("node", children=(Resource("core"),)),)),),
        None,
        True,
    ),
    "two slots on one exclusive vertex": (
        [("node", ["core:2"])],
        [],
        (Resource("slot", Count(2, 2), label="a", children=(EXCLUSIVE,)),),
        None,
        False,
    ),
    "amounts with units": (
        [("node", ["core:2", "memory:4:GB"])],
        [],
        (Resource("slot", label="a", children=(Resource("memory", Count(500, 500), "MB"),)),),
        None,
        True,
    ),
}


@pytest.mark.parametrize("reported", REPORTED)
def test_what_was_answered_wrongly_is_answered_as_trying_every_way_does(reported):
    shape, hung, forest, hosts, expected = REPORTED[reported]
    constraint = Constraint("hostlist", (hosts,)) if hosts else None
    for _ in range(20):  # a memory may be right by chance
        assert compare(strategies.cluster(shape, hung), Request((forest,), (), constraint=constraint)) is expected


SEVERAL_QUANTITIES = 13_032  # four of memory without a unit, of leaves in bytes and of one that only counts


def test_memory_of_several_quantities_is_counted_in_whole_units_of_each():
    assert check(SEVERAL_QUANTITIES) is True


@pytest.mark.parametrize("tens", range(10))
def test_backends_agree_with_trying_every_way(tens):
    answers = [check(number) for number in range(tens * 50, tens * 50 + 50)]
    assert answers.count(None) < 5


@pytest.mark.soak
@pytest.mark.parametrize("thousand", range(1, 21))
def test_backends_agree_with_trying_every_way_at_length(thousand):
    answers = [check(number) for number in range(thousand * 1000, thousand * 1000 + 1000)]
    assert answers.count(None) < 10
