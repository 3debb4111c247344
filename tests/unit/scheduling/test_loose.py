"""Slots said by amounts: which requests are, and that amounts and the matcher agree on an idle cluster."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rainbow
from rainbow.graph import write_jgf
from rainbow.matching import consumables, worker_capacity, worker_kinds
from rainbow.scheduling import Priority, SlotsView, Start, View, WorkerView, gangs
from rainbow.scheduling.gangs import loose_slots, slots_on
from rainbow.scheduling.snapshot import GangView, JobView
from rainbow.service.live_state.matcher_cache import MatcherCache
from rainbow.state_machine import WorkerState
from rainbow.testing.backends import cluster as shaped

SHAPES = [
    "cluster(node*2(core*4,gpu*1))",
    "cluster(node*2(socket*2(core*2,gpu*1)))",
    "cluster(rack*2(node*2(core*2)))",
]


def request(slots, parts, outer=None):
    slot = {"type": "slot", "count": slots, "label": "s", "with": [{"type": t, "count": n} for t, n in parts.items()]}
    if outer == "inside":
        slot["with"] = [{"type": "node", "count": 1, "with": slot["with"]}]
    top = {"type": "node", "count": 1, "with": [slot]} if outer == "outside" else slot
    if outer == "each":
        top = {"type": "node", "count": slots, "with": [{**slot, "count": 1}]}
    task = {"command": ["a"], "slot": "s", "count": {"per_slot": 1}}
    return rainbow.parse_jobspec(
        {"version": 1, "resources": [top], "tasks": [task], "attributes": {"system": {"duration": 9}}}
    )


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (request(2, {"core": 2}), (SlotsView("s", {"core": 2}, 2, 2, (2,)),)),
        (
            request({"min": 2, "max": 8, "operator": "*", "operand": 2}, {"core": 1}),
            (SlotsView("s", {"core": 1}, 2, 8, (2, 4, 8)),),
        ),
        (
            request({"min": 2, "max": 30, "operator": "^", "operand": 2}, {"core": 1}),
            (SlotsView("s", {"core": 1}, 2, 16, (2, 4, 16)),),
        ),
        (request("4,9", {"core": 1}), (SlotsView("s", {"core": 1}, 4, 9, (4, 9)),)),
        (request({"min": 3}, {"core": 1}), (SlotsView("s", {"core": 1}, 3, 3, (3,)),)),
        (request(2, {"core": 2}, "inside"), (SlotsView("s", {"core": 2}, 2, 2, (2,), True),)),
        (request(1, {"core": 2}, "outside"), (SlotsView("s", {"core": 2}, 1, 1, (1,), True),)),
        (request(3, {"core": 2}, "each"), (SlotsView("s", {"core": 2}, 3, 3, (3,), True),)),
        (request(2, {"core": 2}, "outside"), ()),  # both slots on one node: amounts do not say that
        (request(1, {"core": 1, "licence": 2}), (SlotsView("s", {"core": 1}, 1, 1, (1,), False, {"licence": 2}),)),
        (request(1, {"licence": 2}), ()),
        (request(1, {"quantum": 1}), ()),
    ],
)
def test_request_is_said_by_amounts_where_they_say_all_of_it(given_, expected):
    assert loose_slots(given_, "node", {"core", "gpu", "node"}, {"licence", "cluster"}) == expected


def test_under_strict_levels_amounts_say_nothing_of_a_request():
    document = write_jgf(shaped(SHAPES[0], "one"))
    levels = {name: rainbow.read_cluster(document, name=name, levels=name) for name in ("any", "strict")}
    query = request(2, {"core": 2})
    assert slots_on(levels["any"], query) == (SlotsView("s", {"core": 2}, 2, 2, (2,)),)
    assert slots_on(levels["strict"], query) == ()


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2), st.sampled_from([None, "inside", "outside", "each"]))
def test_amounts_and_matcher_agree_on_an_idle_cluster(shape, slots, cores, gpus, outer):
    read = rainbow.read_cluster(write_jgf(shaped(shape, "one")), name="one")
    parts = {"core": cores, **({"gpu": gpus} if gpus else {})}
    placing = MatcherCache(read, "index")
    (gang,) = gangs(request(slots, parts, outer))
    demand = placing.demand("j", gang, ["j-0"])
    capacity, kinds = worker_capacity(read), worker_kinds(read)
    seen = [WorkerView(name, kinds[name], whole, whole, WorkerState.READY) for name, whole in capacity.items()]
    waiting = JobView("j", "user", 0.0, (GangView("j", 0, ("j-0",), demand, 9.0, placing.slots(gang.request)),))
    view = View(0.0, {}, seen, [waiting], [], placing.place, placing.hosts, placing.divide, {}, consumables(read))
    started = any(isinstance(order, Start) for order in Priority().plan(view).orders)
    assert started == (placing.place(demand, list(capacity)) is not None)
