"""Equal workers are asked about once, and only where they are equal in all that the request asks for."""

import pytest

import rainbow
from rainbow.matching import backends
from rainbow.scheduling import gangs
from rainbow.service.live_state.matcher_cache import MatcherCache
from tests.conftest import grid

PLAIN = {"type": "node", "replicas": 1, "with": [{"type": "core", "count": 1}]}


def placing(resource, copies=4, levels="any", system=None):
    """Return what places a bag of copies of one task on four equal nodes, and how often the matcher was asked."""
    spec = {"resources": {"w": resource}, "tasks": [{"command": ["true"], "resources": "w", "replicas": copies}]}
    request = rainbow.parse_jobspec({**spec, **({"attributes": {"system": system}} if system else {})})
    made = MatcherCache(rainbow.read_cluster(grid(4, 2), name="c", levels=levels), "index")
    requests = []
    inner = made.backend

    class Counting:
        def take(self, *arguments):
            requests.append(arguments)
            return inner.take(*arguments)

    made.backend = Counting()
    names = [made.demand("j", gang, [f"j-{gang.number}"]) for gang in gangs(request)]
    return made, names, requests


def test_copies_on_equal_workers_are_asked_about_once():
    made, names, request = placing(PLAIN)
    takes = [made.place(name, [f"n{k}"]) for k, name in enumerate(names)]
    assert [set(held) for take in takes for _, held in take.placed] == [{f"n{k}"} for k in range(4)]
    assert len(request) == 1


@pytest.mark.parametrize("worker", ["n0", "n1", "n2", "n3"])
def test_answer_is_what_the_matcher_itself_would_say(worker):
    made, names, _ = placing(PLAIN)
    made.place(names[0], ["n0"])
    gang = made.gangs[names[1]][0]
    own = backends.get("index").take(gang.request, made.cluster, frozenset([worker]))
    assert made.place(names[1], [worker]).placed == own.placed


def test_what_no_worker_can_host_is_asked_about_once():
    made, names, request = placing({"type": "node", "replicas": 1, "with": [{"type": "core", "count": 9}]})
    assert [made.place(name, [f"n{k}"]) for k, name in enumerate(names)] == [None] * 4
    assert len(request) == 1


@pytest.mark.parametrize(
    ("resource", "more"),
    [
        ({"type": "cluster", "replicas": 1, "with": [PLAIN]}, {}),
        (PLAIN, {"levels": "strict"}),
        (PLAIN, {"system": {"constraints": {"hostlist": ["n[0-3]"]}}}),
    ],
    ids=["a level above the workers", "strict levels", "a constraint by name"],
)
def test_what_is_more_than_kind_is_asked_about_every_worker(resource, more):
    made, names, request = placing(resource, **more)
    for k, name in enumerate(names):
        made.place(name, [f"n{k}"])
    assert {name for arguments in request for name in arguments[2]} == {"n0", "n1", "n2", "n3"}
