"""What the texts of Scoot's scheduler state, at clusters under load_based."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.conftest import new_file
from tests.support.founding.door import NOW, Door, Place, bag, grid
from tests.support.live import running
from tests.support.moved_server import server_at

CONFIG = "scheduler: {name: scoot}\n"
SHARES = {"c0": 30, "c1": 25, "c2": 20, "c3": 15, "c4": 10}


def cluster(door: Door, name: str, workers: int, policy: str = "load_based", **settings: Any) -> Place:
    """Register a cluster of workers of one core, each for one task at a time; its agent lives."""
    place = door.register(name, grid(workers, 1))
    answers = place.set(policy, **{"unit": "worker", **settings})
    assert answers["status"] == 200, answers
    place.beat()
    return place


def example(door: Door, name: str, rounding: str, running: dict[str, int], waiting: dict[str, int]) -> dict[str, Any]:
    """Bring a cluster of 1,000 workers to the numbers of a worked example, then take one step."""
    classes = {**SHARES, **({"c5": 0} if "c5" in running else {})}
    requestors = [{"match": f"{job_class}-.*", "class": job_class} for job_class in classes]
    place = cluster(door, name, 1000, classes=classes, requestors=requestors, default_class="c0", rounding=rounding)
    jobs = {}
    for job_class, count in running.items():
        if count:
            place.submit(bag(count), f"{job_class}-run")
            place.take(start=False)
    before = {row: figures["running"] for row, figures in place.figures()["classes"].items()}
    for job_class, count in waiting.items():
        if count:
            jobs[place.submit(bag(count), f"{job_class}-wait")["id"]] = job_class
    figures = place.figures()
    starts = [jobs[offer["job"]] for offer in place.take(start=False)]
    return {
        "running": before,
        "targets": {row: one["target"] for row, one in figures["classes"].items()},
        "unused": {row: one["unused"] for row, one in figures["classes"].items()},
        "loaned": {row: one["loaned"] for row, one in figures["classes"].items()},
        "figures": figures,
        "starts": {job_class: starts.count(job_class) for job_class in running},
        "settings": place.shown()["settings"],
    }


RUNNING = {"c0": 200, "c1": 300, "c2": 0, "c3": 100, "c4": 110}


def first_example(door: Door) -> dict[str, Any]:
    """The text's first example, in both roundings."""
    waiting = {"c0": 290, "c1": 230, "c2": 150, "c3": 150, "c4": 90, "c5": 328}
    running = {**RUNNING, "c5": 0}
    return {
        rounding: example(door, f"one-{rounding}", rounding, running, waiting) for rounding in ("exact", "classic")
    }


def second_example(door: Door) -> dict[str, Any]:
    """The text's second example, in both roundings."""
    waiting = {"c0": 10, "c1": 230, "c3": 50, "c4": 90}
    return {
        rounding: example(door, f"two-{rounding}", rounding, RUNNING, waiting) for rounding in ("exact", "classic")
    }


def classes(door: Door) -> dict[str, Any]:
    """Classes, requestors and what is read and set of them."""
    place = cluster(door, "classes", 4)
    settings = {
        "classes": {"build": 70, "other": 30, "free": 0},
        "default_class": "other",
        "requestors": [
            {"match": "CI-.*", "class": "build"},
            {"match": "CI-slow", "class": "free"},
            {"match": "free-.*", "class": "free"},
        ],
    }
    bad = place.change(settings={"requestors": [{"match": "(", "class": "build"}]})
    answer = place.change(settings=settings)
    jobs = {who: place.submit(bag(1), who)["id"] for who in ("CI-slow", "nobody")}
    figures = place.figures()["classes"]
    changed = place.change(settings={"rebalance_threshold": 35, "rebalance_minimum_duration": 2})
    place.take()
    place.end_all()
    place.submit(bag(1), "free-ann")
    place.take()
    alone = len(place.held())
    classic = place.change(settings={"rounding": "classic"})
    for name in ("CI-a", "free-bob"):
        place.submit(bag(3), name)
    place.end_all()
    starts = [place.job(offer["job"])["requestor"] for offer in place.take()]
    restarted = place.shown()
    return {
        "bad": bad,
        "settings": answer["settings"],
        "warnings": answer["warnings"],
        "held": {name: row["held"] for name, row in figures.items()},
        "states": {who: place.job(job)["state"] for who, job in jobs.items()},
        "rebalance": {k: v for k, v in changed["settings"].items() if k.startswith("rebalance")},
        "zero_percent_alone": alone,
        "classic_status": classic["status"],
        "zero_percent_classic": [who for who in starts if who.startswith("free")],
        "stored": restarted["settings"]["requestors"],
        "changes": [one["what"] for one in place.get("scheduler/changes")["changes"]],
    }


def named(*names: str) -> dict[str, Any]:
    """A jobspec of tasks with names, on a worker each."""
    tasks = [{"name": name, "command": ["true"], "resources": "w"} for name in names]
    return {"name": "history", "resources": {"w": {"type": "core"}}, "tasks": tasks}


def order(door: Door) -> dict[str, Any]:
    """Which task of a class goes first: of the job with the fewest running, and of a job the longest."""
    place = cluster(door, "order", 3)
    place.submit(named("short", "long", "mid"))
    place.take()
    for seconds, name in ((10, "short"), (20, "mid"), (100, "long")):
        door.move(seconds)
        place.end(next(one["id"] for one in place.runs.values() if one["name"] == name))
    place.change(settings={"classes": {"all": 100}, "default_class": "all"})
    place.say("heartbeat", workers=["n0"])
    place.submit(named("short", "long", "mid"))
    names = []
    for _ in range(3):
        names += [offer["name"] for offer in place.take(1)]
        place.end_all()
    turns = cluster(door, "turns", 6)
    jobs = {who: turns.submit(bag(count), who)["id"] for who, count in (("a", 20), ("b", 20), ("c", 1))}
    turns.take()
    held = turns.held()
    return {"names": names, "held": {who: held.get(job, 0) for who, job in jobs.items()}}


def rebalance(door: Door) -> dict[str, Any]:
    """Loans that last too long are stopped, the newest first, once the spread was above the threshold."""
    settings = {
        "classes": {"a": 50, "b": 50},
        "default_class": "a",
        "requestors": [{"match": "b", "class": "b"}],
    }
    off = cluster(door, "off", 10, **settings)
    off.submit(bag(10), "a")
    off.take()
    off.submit(bag(10), "b")
    off.take(3600, confirm=False)
    stopped_off = len(off.say("receive", max=0)["stop"])
    place = cluster(door, "rebalance", 10, **settings, rebalance_threshold=35, rebalance_minimum_duration=0.05)
    ann = place.submit(bag(10), "a")["id"]
    started: list[str] = []
    for count in range(10):  # one after the other, so that there is a newest
        place.say("heartbeat", workers=[f"n{k}" for k in range(count + 1)])
        started += [offer["id"] for offer in place.take(1)]
    bob = place.submit(bag(10), "b")["id"]
    spread = place.figures()["spread"]
    place.take(confirm=False)
    early = len(place.say("receive", max=0)["stop"])
    place.take(4, confirm=False)
    stops = [ref["id"] for ref in place.say("receive", max=0)["stop"]]
    place.confirm([{"id": one, "attempt": 1} for one in stops])
    states = [task["state"] for task in place.job(ann)["tasks"]]
    place.take(1)
    return {
        "stopped_while_off": stopped_off,
        "spread": spread,
        "before_the_minimum": early,
        "stopped_are_newest": sorted(stops) == sorted(started[-5:]),
        "stopped": len(stops),
        "waiting_again": states.count("WAITING"),
        "held": {who: place.held().get(job, 0) for who, job in (("a", ann), ("b", bob))},
    }


def limits(door: Door) -> dict[str, Any]:
    """The bounds of Scoot's constants."""
    place = cluster(door, "limits", 2)

    def refused(who: str = "ann", count: int = 1, **bounds: int) -> dict[str, Any]:
        place.change(limits=bounds)
        answer = place.submit(bag(count), who)
        place.change(limits=dict.fromkeys(bounds))
        return {key: answer.get(key) for key in ("status", "code", "limit")}

    first = place.submit(bag(1), "ann")
    results = {
        "max_jobs_per_requestor": refused(max_jobs_per_requestor=1),
        "max_requestors": refused("bob", max_requestors=1),
        "max_waiting_tasks": refused(count=3, max_waiting_tasks=2),
        "throttle_0": refused(throttle=0),
        "throttle_-1": refused(throttle=-1),
        "throttle_n": refused(count=50, throttle=10),
    }
    for job in door.good("GET", "/v1/jobs", None, place.token)["jobs"]:
        place.cancel(job["id"])
    shown = place.shown()["limits"]
    place.change(limits={"max_retries": 2, "task_minutes": 1, "allowance_seconds": 5})
    job = place.submit(bag(1))["id"]
    attempts = []
    for _ in range(3):
        attempts += [offer["attempt"] for offer in place.take(10)]
        place.end(next(iter(place.runs)), code=1)
    failed = place.job(job)["state"]
    place.change(limits={"max_retries": 0})
    slow = place.submit(bag(1))["id"]
    (offer,) = place.take(10)
    place.take(64, confirm=False)
    in_time = len(place.say("receive", max=0)["stop"])
    place.take(2, confirm=False)
    overdue = len(place.say("receive", max=0)["stop"])
    place.end_all()
    return {
        "first": first["status"],
        **results,
        "defaults": shown,
        "attempts": attempts,
        "failed": failed,
        "duration": offer["duration"],
        "stopped_within_the_allowance": in_time,
        "stopped_after_it": overdue,
        "slow": place.job(slow)["state"],
    }


def work(door: Door) -> dict[str, Any]:
    """Jobs, tasks, workers, tags, kills, and what is counted of them."""
    place = cluster(door, "work", 2)
    old = place.submit(bag(1), "ann", basis="main", tag="1")["id"]
    place.take()
    new = place.submit(bag(1), "ann", basis="main", tag="2")
    place.take()
    place.take()
    states = {"old": place.job(old)["state"], "new": place.job(new["id"])["state"]}
    place.end_all()
    killed = place.submit(bag(1), "ann")["id"]
    place.take()
    cancel = place.cancel(killed)
    place.take()
    answer = place.job(killed)
    place.submit(bag(1), "ann")
    place.take()
    workers = place.get("workers")["workers"]
    place.end_all()
    door.move(0, "work")
    place.submit(bag(1), "ann")
    place.take(1)
    metrics = {}
    for seconds in (4 * 3600, 1):
        door.move(seconds)
        text = door.ask("GET", "/metrics", None, door.admin)["text"]
        name = 'rainbow_tasks_long_running{cluster="work"} '
        metrics[str(seconds)] = next(line[len(name) :] for line in text.splitlines() if line.startswith(name))
    place.say("heartbeat", workers=["n0"])
    silent = {one["name"]: one["state"] for one in place.get("workers")["workers"]}
    place.say("heartbeat", workers=None)
    return {
        "states": states,
        "cancel": cancel,
        "killed": answer,
        "workers": {one["name"]: one["state"] for one in workers},
        "occupancy": place.get("occupancy"),
        "long_running": metrics,
        "silent": silent,
        "ready_again": {one["name"]: one["state"] for one in place.get("workers")["workers"]},
        "fault": place.shown()["fault"],
        "step": place.post("step"),
    }


def priority(door: Door) -> dict[str, Any]:
    """A jobspec's own priority may only lower it."""
    place = cluster(door, "asks", 1)
    answer = {name: place.submit(slots_of(asks, name)) for name, asks in (("plain", 0), ("high", 1000))}
    first = [place.job(offer["job"])["name"] for offer in place.take()]
    place.end_all()
    low = door.register("asks-low", grid(1, 1))
    low.set("priority")
    low.beat()
    ids = {name: low.submit(slots_of(asks, name))["id"] for name, asks in (("a", 0), ("b", 1000), ("c", -1))}
    starts = []
    for _ in range(3):
        starts += [low.job(offer["job"])["name"] for offer in low.take(1)]
        low.end_all()
    return {"status": answer["high"]["status"], "first": first, "order": starts, "ids": len(ids)}


def slots_of(asks: int, name: str) -> dict[str, Any]:
    """A jobspec of one core that asks for a priority."""
    return bag(1, seconds=60, priority=asks, job={"name": name})


def tick(door: Door) -> dict[str, Any]:
    """How often steps are taken is the server's configuration."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "rainbow.yaml"
        file.write_text("scheduler: {name: often, tick: 0.5}\n")
        return {"tick": json.loads(door.run("config", "check", str(file), "-o", "json")["text"])["tick"]}


def recovered(_: Door) -> dict[str, Any]:
    """A server that ends and begins again over its store: settings, jobs and running tasks are there."""
    with TemporaryDirectory() as folder:
        config = Path(folder) / "rainbow.yaml"
        config.write_text(CONFIG)
        where = (str(new_file(Path(folder) / "rainbow.db")), str(config), NOW)
        with running(server_at(*where)) as port:
            place = cluster(Door(port), "again", 2, classes={"a": 60, "b": 40}, default_class="b")
            job = place.submit(bag(3))["id"]
            place.take()
            before = place.job(job)["counts"]
        with running(server_at(*where)) as port:
            place.door = Door(port)
            settings, after = place.shown()["settings"], place.job(job)["counts"]
            place.beat()
            place.end_all()
            place.take()
            place.end_all()
            return {
                "before": before,
                "classes": settings["classes"],
                "after": after,
                "state": place.job(job)["state"],
            }


SCENARIOS = (first_example, second_example, classes, order, rebalance, limits, work, priority, tick, recovered)
