"""What the text of DUCC's Resource Manager states, at clusters under fair_share."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.conftest import new_file
from tests.support.founding.door import NOW, Door, Place, bag, elastic, grid, machines, slots
from tests.support.live import running
from tests.support.moved_server import server_at

CONFIG = "scheduler: {name: ducc}\n"
EAGER = {"expand_by_doubling": False, "initialization_cap": 0, "use_prediction": False}
FAIR = {"policy": "FAIR_SHARE", "default": True, **EAGER}
FIXED = {"policy": "FIXED_SHARE", "default": True}
RESERVE = {"policy": "RESERVE", "default": True}
CLASSES = {"fair": FAIR, "fixed": FIXED, "reserve": RESERVE}


def cluster(door: Door, name: str, graph: dict[str, Any], **settings: Any) -> Place:
    """Register a cluster under fair_share that counts cores; its agent lives."""
    place = door.register(name, graph)
    answers = place.set("fair_share", **{"quantum": {"type": "core"}, "classes": CLASSES, **settings})
    assert answers["status"] == 200, answers
    place.beat()
    return place


def where(place: Place, job: str) -> list[str]:
    """Return the machines that a job holds, sorted."""
    return sorted(name for one in place.runs.values() if one["job"] == job for name in one["placement"] if name)


def two_users(door: Door) -> dict[str, Any]:
    """Ann's elastic job doubles to 16 shares; Bob's takes half of them."""
    doubling = {**FAIR, "expand_by_doubling": True, "initialization_cap": 2}
    place = cluster(door, "two-users", grid(4, 4), classes={"fair": doubling, "fixed": FIXED})
    ann = place.submit(elastic(2, 32), "ann")["id"]
    alone = [story.get(ann, 0) for story in place.settle()]
    bob = place.submit(elastic(2, 32), "bob")["id"]
    place.take(confirm=False)
    still = place.figures()["machines"]
    stop = place.say("receive", max=0)["stop"]
    place.confirm(stop)
    place.settle()
    both = {who: place.held()[job] for who, job in (("ann", ann), ("bob", bob))}
    figures = place.figures()
    place.cancel(bob)
    place.settle()
    return {
        "alone": alone,
        "booked_while_stopping": sum(one["used"] for one in still.values()),
        "both": both,
        "figures": {"users": figures["users"], "classes": figures["classes"], "nodepools": figures["nodepools"]},
        "job": figures["jobs"][ann],
        "again": place.held()[ann],
        "told_to_stop": len(stop),
        "settings": place.shown()["settings"],
    }


def fragments(door: Door) -> dict[str, Any]:
    """The text's first figure: five shares of one quantum and two of two on nine quanta."""
    place = cluster(door, "fragments", grid(3, 3))
    a = place.submit(elastic(1, 9), "ann")["id"]
    place.settle()
    full = place.held()[a]
    b = place.submit(elastic(1, 2, cores=2), "bob")["id"]
    place.settle()
    return {
        "first": full,
        "held": {"a": place.held()[a], "b": place.held()[b]},
        "stopped": len(place.stopped),
        "started_again": sum(task["attempt"] > 1 for task in place.job(a)["tasks"]),
        "threshold": place.shown()["settings"]["fragmentation_threshold"],
    }


def tables(door: Door) -> dict[str, Any]:
    """The text's example of tables: quanta 1 to 4 on 3, 2, 1 and 4 machines."""
    sizes = {f"n{k}": size for k, size in enumerate([1] * 3 + [2] * 2 + [3] + [4] * 4)}
    place = cluster(door, "tables", machines(sizes))
    before = place.figures()["orders"]
    place.submit(bag(4), "ann")
    place.take()
    after = place.figures()["orders"]
    shown = door.run("scheduler", "show", "tables", RAINBOW_SECRET=place.secret)

    def column(orders: dict[str, Any], name: str) -> list[int]:
        return [0, *(line[name] for line in orders.values())]

    return {
        "nShares": column(before, "nShares"),
        "nMachines": column(before, "nMachines"),
        "vMachines": column(before, "vMachines"),
        "four_of_order_1_more": {name: column(after, name) for name in ("nMachines", "vMachines")},
        "command": shown,
        "pools": place.figures()["nodepools"],
    }


def orders(door: Door) -> dict[str, Any]:
    """A job's order is rounded up, a machine's down; the quantum is a nodepool's."""
    place = cluster(
        door,
        "orders",
        machines({"n0": 44, "n1": 64, "n2": 64}),
        quantum={"type": "core", "amount": 15},
        nodepools={"main": {}, "small": {"nodes": ["n2"], "quantum": 4}},
        classes={**CLASSES, "little": {"policy": "FAIR_SHARE", "nodepool": "small", **EAGER}},
    )
    place.submit(slots(1, 16), "ann")
    place.submit(elastic(1, 1, cores=16, **{"class": "little"}), "ann")
    place.take()
    figures = place.figures()
    return {
        "machine_44": figures["nodepools"]["main"],
        "small": figures["nodepools"]["small"],
        "jobs": sorted(one["order"] for one in figures["jobs"].values()),
    }


def kinds(door: Door) -> dict[str, Any]:
    """Services, reservations, fixed shares and allotments."""
    place = cluster(
        door,
        "kinds",
        machines({"n0": 4, "n1": 4, "n2": 4, "n3": 8}),
        allotment=10,
        users={"dan": {"max_allotment": 4}},
    )
    service = place.submit(bag(2, service=True), "eve")["id"]
    place.settle()
    on = where(place, service)
    fixed = place.submit(bag(2), "ann")["id"]
    place.settle()
    fixed_held = place.held().get(fixed)
    whole = place.submit(slots(1, 8, **{"class": "reserve"}), "bob")["id"]
    place.settle()
    reserved = where(place, whole)
    odd = place.submit(slots(1, 5, **{"class": "reserve"}), "bob")["id"]
    greedy = place.submit(bag(6), "dan")["id"]
    place.settle()
    limited = {"held": place.held().get(greedy), "why": place.wait(greedy)}
    large = place.submit(bag(1, cores=8), "ann")["id"]
    place.settle()
    figures = place.figures()["jobs"]
    ended = next(one["id"] for one in place.runs.values() if one["job"] == service)
    place.end(ended)
    door.move(2)
    place.settle()
    return {
        "orders": {"fixed": figures[fixed]["order"], "whole": figures[whole]["order"]},
        "service_apart": len(set(on)),
        "service_again": place.held().get(service),
        "fixed": fixed_held,
        "reserved": reserved,
        "exact": place.wait(odd),
        "wait_of_the_full": place.wait(large),
        "allotment": limited,
    }


def pools(door: Door) -> dict[str, Any]:
    """Nested nodepools: who descends, who does not, and machines that are varied off and on."""
    place = cluster(
        door,
        "pools",
        grid(4, 4),
        nodepools={
            "main": {"nodes": ["n0", "n1"]},
            "low": {"parent": "main", "nodes": ["n3"], "search_order": 20},
            "high": {"parent": "main", "nodes": ["n2"], "search_order": 10},
        },
    )
    fixed = place.submit(bag(12), "ann")["id"]
    place.settle()
    fixed_seen = {"held": place.held()[fixed], "why": place.wait(fixed), "where": sorted(set(where(place, fixed)))}
    few = place.submit(elastic(1, 4), "bob")["id"]
    place.settle()
    searched = sorted(set(where(place, few)))
    place.cancel(few)
    place.settle()
    fair = place.submit(elastic(1, 8), "bob")["id"]
    place.settle()
    fair_where = sorted(set(where(place, fair)))
    counted = place.figures()["nodepools"]
    place.cancel(fixed)
    place.settle()
    wide = place.submit(elastic(1, 8), "cat")["id"]
    place.settle()
    before = dict(place.held())
    off = place.post("workers/n3:offline")["status"]
    place.take(confirm=False)
    stops = place.say("receive", max=0)["stop"]
    place.confirm(stops)
    place.settle()
    after = {
        "where": sorted({name for job in (fair, wide) for name in where(place, job)}),
        "held": sum(place.held().values()),
    }
    on = place.post("workers/n3:reinstate")["status"]
    place.settle()
    story = {"off": off, "stops": len(stops), "after": after, "on": on, "again": sum(place.held().values())}
    return {
        "searched": searched,
        "fixed": fixed_seen,
        "fair": fair_where,
        "pools": counted,
        "before": sum(before.values()),
        "varied": story,
    }


def priorities(door: Door) -> dict[str, Any]:
    """Better classes first, weights, and who may use a class."""
    place = cluster(
        door,
        "priorities",
        grid(4, 4),
        classes={
            "fixed": FIXED,
            "best": {"policy": "FAIR_SHARE", "priority": 9, **EAGER},
            "fair": {**FAIR, "weight": 100},
            "half": {"policy": "FAIR_SHARE", "weight": 50, **EAGER},
            "closed": {"policy": "FAIR_SHARE", "users": ["zoe"], **EAGER},
        },
    )
    ids = {name: place.submit(elastic(1, 16, **{"class": name}), name)["id"] for name in ("fair", "half")}
    place.settle()
    weighed = {name: place.held()[job] for name, job in ids.items()}
    best = place.submit(elastic(1, 10, **{"class": "best"}), "best")["id"]
    place.settle()
    held = {name: place.held().get(job, 0) for name, job in {**ids, "best": best}.items()}
    closed = place.submit(elastic(1, 1, **{"class": "closed"}), "ann")
    place.settle()
    return {
        "weighed": weighed,
        "held": held,
        "closed": place.wait(closed["id"]) if closed["status"] < 300 else closed,
        "classes": place.figures()["classes"],
    }


def growth(door: Door) -> dict[str, Any]:
    """The steps of a job's cap: its own maximum, initialisation, doubling, work left, prediction."""
    classes = {
        "fair": {**FAIR, "initialization_cap": 2, "expand_by_doubling": True},
        "fixed": FIXED,
        "quick": {"policy": "FAIR_SHARE", **EAGER},
    }
    place = cluster(door, "growth", grid(4, 4), classes=classes)
    most = place.submit(elastic(1, 3, **{"class": "quick"}), "ann")["id"]
    place.settle()
    at_most = place.held()[most]
    place.cancel(most)
    place.settle()
    job = place.submit(elastic(1, 16), "ann")["id"]
    place.door.move(0, place.name)
    answer = place.say("receive", max=1000)["tasks"]
    place.say("accept", tasks=[{"id": one["id"], "attempt": one["attempt"]} for one in answer])
    place.runs |= {one["id"]: one for one in answer}
    place.take()
    capped = {"held": place.held()[job], "why": place.figures()["jobs"][job]}
    events = [{"task": one["id"], "attempt": one["attempt"], "event": "started"} for one in place.runs.values()]
    place.say("events", events=events)
    story = [step.get(job, 0) for step in place.settle()]
    predicted = {"use_prediction": True, "prediction_fudge": 60}
    good, bad = (
        place.change(settings={"classes": {**classes, "fair": {**classes["fair"], **predicted, **more}}})
        for more in ({}, {"prediction_fudge": -1})
    )
    fudge = {key: good["settings"]["classes"]["fair"][key] for key in predicted}
    return {"at_most": at_most, "capped": capped, "story": story, "fudge": fudge, "bad_fudge": bad}


def invested(door: Door) -> dict[str, Any]:
    """Of shares in which as much is invested the newest go first."""
    doubling = {**FAIR, "expand_by_doubling": True, "initialization_cap": 2}
    place = cluster(door, "invested", grid(2, 4), classes={"fair": doubling, "fixed": FIXED})
    place.submit(elastic(2, 8), "ann")
    started: list[str] = []
    for _ in range(3):
        started += [one["id"] for one in place.take(1)]
    place.submit(elastic(4, 8), "bob")
    place.settle()
    return {"stopped": len(place.stopped), "stopped_are_newest": sorted(place.stopped) == sorted(started[4:])}


def warm(_: Door) -> dict[str, Any]:
    """A server that begins again knows what runs."""
    with TemporaryDirectory() as folder:
        config = Path(folder) / "rainbow.yaml"
        config.write_text(CONFIG)
        at = (str(new_file(Path(folder) / "rainbow.db")), str(config), NOW)
        with running(server_at(*at)) as port:
            place = cluster(Door(port), "warm", grid(1, 4))
            job = place.submit(elastic(1, 4), "ann")["id"]
            place.settle()
            held = place.held()[job]
        with running(server_at(*at)) as port:
            place.door = Door(port)
            place.beat()
            place.settle()
            figures = place.figures()["jobs"]
            return {"held": held, "after": figures[job]["held"], "stopped": len(place.stopped)}


def needy(door: Door) -> dict[str, Any]:
    """Defragmentation: who is rich gives to who is needy; who has invested least is evicted first."""
    place = cluster(door, "needy", grid(4, 4), fragmentation_threshold=2)
    ann = place.submit(elastic(1, 16), "ann")["id"]
    place.settle()
    started = [*place.runs]
    bob = place.submit(elastic(2, 4, cores=4), "bob")["id"]
    place.settle()
    newest = set(place.stopped)
    cancelled = place.figures()["jobs"]
    return {
        "held": {"ann": place.held()[ann], "bob": place.held()[bob]},
        "figures": {"ann": cancelled[ann], "bob": cancelled[bob]},
        "stopped": len(newest),
        "of": len(started),
        "threshold": place.shown()["settings"]["fragmentation_threshold"],
    }


def reconfigured(door: Door) -> dict[str, Any]:
    """Settings that change while work runs, and settings that cannot be."""
    classes = {**CLASSES, "old": {"policy": "FAIR_SHARE", **EAGER}}
    place = cluster(door, "reconfigured", grid(1, 4), classes=classes)
    job = place.submit(elastic(1, 4, **{"class": "old"}), "ann")["id"]
    place.settle()
    put = place.set("fair_share", quantum={"type": "core"}, classes=CLASSES)["status"]
    place.take(confirm=False)
    stops = place.say("receive", max=0)["stop"]
    place.confirm(stops)
    place.take()
    bare = {name: {"policy": rule} for name, rule in (("a", "FAIR_SHARE"), ("b", "FIXED_SHARE"), ("c", "RESERVE"))}
    return {
        "put": put,
        "blacklisted": len(stops),
        "why": place.wait(job),
        "unknown_setting": place.change(settings={"quantumm": 1}),
        "unknown_pool": place.change(settings={"classes": {"a": {**FAIR, "nodepool": "nowhere"}}}),
        "no_defaults": place.change(settings={"classes": bare}),
        "no_such_machine": place.change(
            settings={"nodepools": {"default": {}, "far": {"parent": "default", "nodes": ["n0", "n00"]}}}
        ),
        "changes": len(place.get("scheduler/changes")["changes"]),
    }


def lost(door: Door) -> dict[str, Any]:
    """A machine whose heartbeats stop is unusable until it is heard of again."""
    place = cluster(door, "silent", grid(2, 2))
    job = place.submit(bag(1), "ann")["id"]
    place.settle()
    on = where(place, job)[0]
    other = "n1" if on == "n0" else "n0"
    place.say("heartbeat", workers=[other], running=[])
    door.move(1, "silent")
    workers = {one["name"]: one for one in place.get("workers")["workers"]}
    place.runs.clear()
    place.say("heartbeat", workers=None, running=[])
    again = {one["name"]: one["state"] for one in place.get("workers")["workers"]}
    return {
        "state": workers[on]["state"],
        "detail": workers[on].get("detail"),
        "worker": workers[on],
        "again": again[on],
    }


def committed(door: Door) -> dict[str, Any]:
    """A share that was told to stop stops, whatever happens meanwhile; its job then grows again."""
    place = cluster(door, "committed", grid(2, 4))
    ann = place.submit(elastic(1, 8), "ann")["id"]
    place.settle()
    bob = place.submit(elastic(1, 8), "bob")["id"]
    place.take(confirm=False)
    answer = place.job(ann)["counts"]
    place.cancel(bob)
    place.take(confirm=False)
    still = place.job(ann)["counts"]
    place.settle()
    return {"told": answer, "still": still, "again": place.held()[ann], "attempts": len(place.stopped)}


SCENARIOS = (
    committed,
    invested,
    warm,
    two_users,
    fragments,
    tables,
    orders,
    kinds,
    pools,
    priorities,
    growth,
    needy,
    reconfigured,
    lost,
)
