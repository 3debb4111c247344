"""The worked examples of the founding texts with one number changed, against results that were worked out by hand.

An implementation that knows the texts' own results by heart fails here.
"""

import pytest

from rainbow.scheduling.load_based import classic_counts
from rainbow.scheduling.load_based.entitlements import ClassCount, starts
from rainbow.scheduling.load_based.settings import normalise
from tests.support.founding import ducc, grid_engine, rainbow, scoot
from tests.support.founding.door import NOW, Door, bag, elastic, grid, machines, slots
from tests.support.moved_server import moved_server

PERCENT = {"c0": 30, "c1": 25, "c2": 20, "c3": 15, "c4": 10, "c5": 0}
RUNNING = {"c0": 200, "c1": 300, "c2": 0, "c3": 100, "c4": 110, "c5": 0}
FIRST = {"c0": 290, "c1": 230, "c2": 150, "c3": 150, "c4": 90, "c5": 328}
SECOND = {"c0": 10, "c1": 230, "c2": 0, "c3": 50, "c4": 90, "c5": 0}
SCOOT = [
    # c0 has 20 waiting: 20, 150 and 50 are entitled; of 70 left and 60 lent 65, 39 and 26 are due, 50, 0 and 10 held
    (FIRST | {"c0": 20, "c5": 0}, {"c0": 20, "c1": 15, "c2": 150, "c3": 89, "c4": 16, "c5": 0}),
    # c2 has 300 waiting: 100 : 200 : 50 of 290 are 82.9, 165.7 and 41.4
    (FIRST | {"c2": 300, "c5": 0}, {"c0": 83, "c1": 0, "c2": 166, "c3": 41, "c4": 0, "c5": 0}),
    # c1 has 100 waiting: of 157 and 73 lent it takes 100, so c4 has all its 90, and 40 workers stay idle
    (SECOND | {"c1": 100}, {"c0": 10, "c1": 100, "c2": 0, "c3": 50, "c4": 90, "c5": 0}),
    # c3 has none waiting: 280 are left, 340 to be lent: 242.9 and 97.1, less 50 and 10, and c4 has 90
    (SECOND | {"c3": 0}, {"c0": 10, "c1": 193, "c2": 0, "c3": 0, "c4": 87, "c5": 0}),
]


@pytest.mark.parametrize(("waiting", "wanted"), SCOOT)
def test_scoots_examples(waiting, wanted):
    counts = [ClassCount(name, PERCENT[name], RUNNING[name], waiting[name]) for name in PERCENT]
    assert starts(290, 1000, counts) == wanted


@pytest.mark.parametrize(("waiting", "wanted"), [SCOOT[0], SCOOT[2]])
def test_scoots_examples_by_its_own_rounding(waiting, wanted):
    assert classic_counts.starts(290, 1000, normalise(PERCENT), RUNNING, waiting) == wanted


@pytest.fixture(scope="module")
def door():
    with moved_server("scheduler: {name: changed}\n", NOW, alone=False) as server:
        yield Door(server.port)


def test_ducc_tables_with_one_machine_of_order_3_more(door):
    sizes = {f"n{k}": size for k, size in enumerate([1] * 3 + [2] * 2 + [3] * 2 + [4] * 4)}
    orders = ducc.cluster(door, "tables", machines(sizes)).figures()["orders"]
    # 3 + 2·2 + 2·3 + 4·4; 2 + 2·1 + 4·2; 2 + 4; 4
    assert [line["nShares"] for line in orders.values()] == [29, 12, 6, 4]


def test_ducc_figures_with_shares_of_order_3(door):
    """Half of 12 quanta is two shares of 3 for B and six of 1 for A, so six of its twelve stop, no more."""
    place = ducc.cluster(door, "figures", grid(4, 3))
    a = place.submit(elastic(1, 12), "ann")["id"]
    place.settle()
    b = place.submit(elastic(1, 2, cores=3), "bob")["id"]
    place.settle()
    assert (place.held()[a], place.held()[b], len(place.stopped)) == (6, 2, 6)


def test_ducc_doubling_from_three(door):
    fair = {**ducc.FAIR, "expand_by_doubling": True, "initialization_cap": 3}
    place = ducc.cluster(door, "doubling", grid(4, 4), classes={"fair": fair, "fixed": ducc.FIXED})
    job = place.submit(elastic(1, 14), "ann")["id"]
    assert [step.get(job, 0) for step in place.settle()] == [3, 6, 12, 14, 14]


def test_rainbows_cost_at_four_dollars(door):
    places = {name: door.register(name, grid(4, 2)) for name in ("dear", "cheap")}
    for name, cost in (("dear", 4), ("cheap", 2)):
        state = {"cost_per_node_hour": cost, "nodes_free": 4, "memory_per_node": 200}
        door.good("PATCH", f"/v1/clusters/{name}/state", state, places[name].secret)
    steps = [
        {"calc": "build_cost=(cost_per_node_hour * (memory_per_node * seconds_per_gb)/60/60)"},
        {"select": "first"},
    ]
    selector = {"name": "constraint", "options": {"priorities": [{"priority": 1, "steps": steps}]}}
    body = {"jobspec": rainbow.job(), "selector": selector}
    answer = door.good("POST", "/v1/jobs", body, *(place.token for place in places.values()))
    values = answer["decision"]["selection"]["steps"][0]["values"]
    assert values == pytest.approx({"dear": 1600 / 3600, "cheap": 800 / 3600})


@pytest.mark.parametrize(("version", "fits"), [("0.5.4", 1), ("0.5.6", 0), ("0.5.5", 1), ("0.5.0", 0)])
def test_rainbows_range_with_another_version(door, version, fits):
    place = door.register(f"at-{version.replace('.', '-')}", grid(1, 2))
    data = {**rainbow.SPACK1, "version": version}
    rainbow.put(door, place, "spack", rainbow.subsystem("spack0", {"spack1": ("spack0", data)}, [("n0", "spack1")]))
    spec = rainbow.needs("spack", "range", {"field": "version", "min": "0.5.1", "max": "0.5.5"})
    result = rainbow.fits(door.match(spec, place.token))
    assert (result == 1) is bool(fits)


def test_grid_engines_environments_with_one_slot_more(door):
    """Five slots over four nodes: round robin 2, 1, 1, 1; pairs do not divide five, so they wait."""
    environments = {"rr": {"rule": "round_robin"}, "pairs": {"rule": 2}}
    place = grid_engine.cluster(door, "five", grid(4, 4), parallel_environments=environments)
    job = place.submit(slots(5, 1, 60, pe="rr"))["id"]
    place.take()
    assert sorted(grid_engine.where(place, job).values()) == [1, 1, 1, 2]
    place.end_all()
    odd = place.submit(slots(5, 1, 60, pe="pairs"))["id"]
    place.take()
    assert place.job(odd)["state"] == "WAITING"


def test_grid_engines_reservation_at_another_time(door):
    """What runs ends at 700 s; the wide job of 250 s is promised that time, and 40 s behind it wait until 950 s."""
    place = grid_engine.cluster(door, "later", grid(2, 4), discipline="conservative")
    place.submit(slots(2, 4, 700))
    place.take()
    begun = door.now
    wide = place.submit(slots(2, 4, 250))["id"]
    place.submit(slots(8, 1, 40))
    place.take()
    line = next(one for one in place.get("timeline")["lines"] if one["worker"] == "n1" and one["type"] == "core")
    assert [[time - begun, level] for time, level in line["steps"]] == [[0, 4], [990, 0]]
    assert place.wait(wide)["facts"]["promised"].endswith("00:11:40.000Z")


def test_scoots_turns_with_two_workers_less(door):
    place = scoot.cluster(door, "turns", 4)
    jobs = [place.submit(bag(count), who)["id"] for who, count in (("a", 20), ("b", 20), ("c", 1))]
    place.take()
    assert [place.held().get(job, 0) for job in jobs] == [2, 1, 1]
