"""What the text about Grid Engine's scheduler thread states, at clusters under priority."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from structlog.testing import capture_logs

from tests.support.founding.door import NOW, Door, Place, grid, machines, slots

CONFIG = "scheduler: {name: ocs}\n"
HOUR = 3600


def cluster(door: Door, name: str, graph: dict[str, Any], **settings: Any) -> Place:
    """Register a cluster under priority; its agent lives."""
    place = door.register(name, graph)
    answers = place.set("priority", **settings)
    assert answers["status"] == 200, answers
    place.beat()
    return place


def named(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Give a jobspec's job a name."""
    spec["attributes"]["system"]["job"] = {"name": name}
    return spec


def started(place: Place, seconds: float = 0) -> list[str]:
    """Step, and return the names of the jobs that start, in order."""
    return [place.job(offer["job"])["name"] for offer in place.take(seconds)]


def where(place: Place, job: str) -> dict[str, int]:
    """Return the cores that a job holds, by worker."""
    held: dict[str, int] = {}
    for one in place.runs.values():
        if one["job"] == job:
            for worker, amounts in one["placement"].items():
                if worker:
                    held[worker] = held.get(worker, 0) + amounts.get("core", 0)
    return dict(sorted(held.items()))


def printed(place: Place) -> list[str]:
    """Return what a step logs of the diagram when the server is asked to by its environment."""
    with pytest.MonkeyPatch.context() as patch, capture_logs() as logs:
        patch.setenv("RAINBOW_PRINT_TIMELINE", "1")
        place.submit(slots(1, 1, 60))
        place.door.move(0, place.name)
    return [one["event"] for one in logs if "timeline" in one["event"] or "timeline" in one]


def diagram(door: Door) -> dict[str, Any]:
    """Two nodes that are full, what is promised behind that, and how it is drawn."""
    place = cluster(door, "diagram", grid(2, 4), discipline="conservative")
    place.submit(slots(2, 4, 600))
    place.take()
    wide = place.submit(slots(2, 4, 300))["id"]
    small = place.submit(slots(1, 1, 60))["id"]
    place.take()
    answer = place.get("timeline")
    logged = printed(place)
    wait = place.wait(wide)
    line = next(one for one in answer["lines"] if one["worker"] == "n0" and one["type"] == "core")
    place.take(300)
    earlier = place.held().get(wide)
    place.end_all()
    place.take()
    return {
        "lines": sorted({(one["worker"], one["type"]) for one in answer["lines"] if one["type"] == "core"}),
        "steps": [[time - NOW, level] for time, level in line["steps"]],
        "text": answer["text"],
        "svg": answer["svg"][:4],
        "logged": logged,
        "wait": wait,
        "small": place.wait(small) if place.job(small)["state"] == "WAITING" else {"text": "started"},
        "before_its_time": earlier,
        "started_when_free": place.held().get(wide),
        "plan": place.post("plan", {}),
    }


def backfilled(door: Door) -> dict[str, Any]:
    """Reservations under the disciplines: the earliest time, and what may start before it."""
    results: dict[str, Any] = {}
    for discipline, more in (("easy", {}), ("fcfs", {}), ("tuned", {"max_reservation": 1})):
        place = cluster(door, f"disciplined-{discipline}", grid(2, 4), discipline=discipline, **more)
        place.submit(slots(1, 4, 600))
        place.take()
        specs = {"wide": slots(2, 4, 300, reserve=True), "long": slots(1, 1, 900), "short": slots(1, 1, 300)}
        ids = {name: place.submit(named(name, spec))["id"] for name, spec in specs.items()}
        names = started(place)
        results[discipline] = {"started": names, "wait": place.wait(ids["wide"])["text"]}
    back = cluster(door, "backwards", grid(1, 4), compat="grid_engine", discipline="tuned", max_reservation=5)
    results["backwards"] = back.shown()["settings"]["search"]
    return results


def queues(door: Door) -> dict[str, Any]:
    """Queues that are closed, overloaded, full, disabled, on no machine, or not for everybody."""
    tomorrow = "1.4.2026"
    known = {
        "day": {"workers": ["n0"], "calendar": {"year": "31.3.2026=0:00-17:00=off"}},
        "hot": {"workers": ["n1"], "load_thresholds": {"np_load_avg": 2}},
        "two": {"workers": ["n2"], "slots": 2},
        "off": {"workers": ["n2"], "enabled": False},
        "gone": {"workers": ["m0", "m1"]},
        "own": {"workers": ["n2"], "users": ["boss"], "slots": 4},
    }
    place = cluster(door, "queues", grid(3, 4), queues=known, discipline="conservative")
    place.say("heartbeat", load={"np_load_avg": 9.0})
    asks = {name: place.submit(slots(1, 1, 60, queue=name))["id"] for name in ("day", "hot", "off", "gone", "own")}
    full = [place.submit(slots(1, 1, 60, queue="two"))["id"] for _ in range(3)]
    place.take()
    texts = {name: place.wait(job) for name, job in asks.items()}
    counts = [place.job(job)["state"] for job in full]
    boss = place.submit(slots(1, 1, 60, queue="own"), "boss")["id"]
    place.take()
    place.say("heartbeat", load={"np_load_avg": 1.0})
    place.take()
    unknown = place.submit(slots(1, 1, 60, queue="nowhere"))
    warned = place.shown()["warnings"]
    checked = door.run("scheduler", "check", "queues", RAINBOW_SECRET=place.secret)
    return {
        "waits": texts,
        "full": counts,
        "full_text": place.wait(full[2]),
        "boss": place.job(boss)["state"],
        "cooled": place.job(asks["hot"])["state"],
        "unknown": unknown,
        "warnings": warned,
        "check": checked,
        "tomorrow": tomorrow,
    }


def zone(door: Door, name: str, before: str, window: str) -> dict[str, Any]:
    """A queue that is closed by a window of the wall clock, over a change of the clocks."""
    first = datetime.fromisoformat(before).replace(tzinfo=ZoneInfo(name)).timestamp()
    label = f"{name.rpartition('/')[2].lower().replace('_', '-')}-{before[:10]}"
    door.move(max(0.0, first - door.now))
    place = cluster(
        door,
        label,
        grid(1, 1),
        time_zone=name,
        queues={"q": {"calendar": {"week": window}}},
        discipline="conservative",
    )
    job = place.submit(slots(1, 1, 60))["id"]
    place.take()
    text = place.wait(job)
    promised = datetime.fromisoformat(text["facts"]["promised"])
    seconds = promised.timestamp() - door.now
    early = len(place.take(seconds - 60))
    return {
        "text": text["text"],
        "local": promised.astimezone(ZoneInfo(name)).isoformat(),
        "a_minute_before": early,
        "at_the_minute": len(place.take(60)),
    }


def zones(door: Door) -> dict[str, Any]:
    """Both changes of the year, and zones without any; the promise is kept to the minute."""
    window = "Mon-Sun=22:00-6:00=off"
    return {
        "kolkata": zone(door, "Asia/Kolkata", "2026-10-24T23:00", window),
        "berlin_autumn": zone(door, "Europe/Berlin", "2026-10-24T23:00", window),
        "sao_paulo": zone(door, "America/Sao_Paulo", "2026-10-25T23:00", window),
        "berlin_spring": zone(door, "Europe/Berlin", "2027-03-27T23:00", window),
        "twice": zone(door, "Europe/Berlin", "2027-10-31T01:30", "Sun=1:00-2:30=off"),
        "never": zone(door, "Europe/Berlin", "2028-03-26T01:30", "Sun=1:00-2:30=off"),
        "unknown": door.register("martian", grid(1, 1)).set("priority", time_zone="Mars/Olympus"),
    }


def users(door: Door) -> dict[str, Any]:
    """Limits of users, quotas, sets, tickets, and the order of jobs."""
    place = cluster(door, "users", grid(1, 4), max_jobs_per_user=1)
    ids = [place.submit(slots(1, 1, 60), who)["id"] for who in ("a", "a", "b")]
    place.take()
    limited = {"states": [place.job(job)["state"] for job in ids], "why": place.wait(ids[1])}
    quota = {"name": "q", "limits": [{"users": "{*}", "to": {"slots": 2}}]}
    held = cluster(door, "quota", grid(1, 4), quotas=[quota])
    mine = [held.submit(slots(1, 1, 60), "a")["id"] for _ in range(3)]
    other = held.submit(slots(1, 1, 60), "b")["id"]
    held.take()
    quotas = {
        "mine": [held.job(job)["state"] for job in mine],
        "other": held.job(other)["state"],
        "why": held.wait(mine[2]),
    }
    held.end(next(one["id"] for one in held.runs.values() if one["job"] == mine[0]))
    held.take(1)
    quotas["given_back"] = held.job(mine[2])["state"]
    sorts = cluster(door, "sorts", grid(1, 1))
    for asks in (-100, 0, -50):
        sorts.submit(named(f"p{asks}", slots(1, 1, 60, priority=asks)))
    order = []
    for _ in range(3):
        order += started(sorts, 1)
        sorts.end_all()
    tree = {"name": "root", "children": [{"name": "ann", "shares": 75}, {"name": "bob", "shares": 25}]}
    shares = cluster(
        door, "tickets", grid(1, 1), weights={"ticket": 1}, tickets={"share": 1000, "share_tree": tree, "halftime": 0}
    )
    for who in ("bob", "ann"):
        shares.submit(named(who, slots(1, 1, 60)), who)
    terms = shares.figures()["priorities"]
    first = started(shares)
    return {"limit": limited, "quota": quotas, "order": order, "tickets": terms, "first": first}


def parallel(door: Door) -> dict[str, Any]:
    """Parallel environments: their rules, slots, ranges, and those there are not."""
    environments = {
        "fill": {},
        "rr": {"rule": "round_robin", "slots": 4},
        "one": {"rule": "pe_slots"},
        "pairs": {"rule": 2},
        "fill_2": {"rule": "fill_up"},
    }
    place = cluster(door, "parallel", grid(4, 4), parallel_environments=environments)
    results: dict[str, Any] = {}
    for name in ("fill", "rr", "one", "pairs"):
        job = place.submit(slots(4, 1, 60, pe=name))["id"]
        place.take()
        results[name] = list(where(place, job).values())
        place.end_all()
    either = place.submit(slots(4, 1, 60, pe="fill*"))["id"]
    place.take()
    results["pattern"] = sum(where(place, either).values())
    place.end_all()
    place.submit(slots(4, 1, 60, pe="rr"))
    second = place.submit(slots(4, 1, 60, pe="rr"))["id"]
    place.take()
    full = place.wait(second)
    place.end_all()
    place.cancel(second)
    unknown = place.submit(slots(1, 1, 60, pe="what"))
    ranges: dict[str, Any] = {}
    for way in ("auto", "bisection", "low", "high"):
        place.change(settings={"slot_search": way})
        place.submit(slots(10, 1, 60))
        place.take()
        ranged = place.submit(slots({"min": 2, "max": 16, "operator": "+", "operand": 1}, 1, 60))["id"]
        place.take()
        ranges[way] = sum(where(place, ranged).values())
        place.end_all()
    master = cluster(door, "master", grid(2, 4), queues={"front": {"workers": ["n0"]}, "back": {"workers": ["n1"]}})
    job = master.submit(slots(3, 1, 60, master_queue="front", queue="back"))
    master.take()
    return {
        "rules": results,
        "full": full,
        "unknown": unknown,
        "ranges": ranges,
        "master": where(master, job["id"]) if job["status"] < 300 else job,
    }


def consumables(door: Door) -> dict[str, Any]:
    """Global resources, default requests, soft requests, loads of workers and what others use."""
    graph = grid(2, 4)
    graph["graph"]["nodes"]["licence"] = {"metadata": {"type": "license", "size": 3}}
    graph["graph"]["edges"].append({"source": "c", "target": "licence"})
    place = cluster(door, "licensed", graph, consumables={"license": {"per": "job", "default": 1}})
    jobs = [place.submit(slots(1, 1, 60))["id"] for _ in range(4)]
    place.take()
    states = [place.job(job)["state"] for job in jobs]
    short = place.wait(jobs[3])
    static = place.submit(slots(1, 9, 60))
    soft = cluster(
        door, "soft", machines({"n0": 4, "n1": 4}), queues={"a": {"workers": ["n0"]}, "b": {"workers": ["n1"]}}
    )
    wishes = [soft.submit(slots(1, 1, 60, soft={"queue": "b"}))["id"] for _ in range(2)]
    soft.take()
    loads = cluster(
        door,
        "loads",
        grid(2, 4),
        load_formula="np_load_avg",
        load_adjustments={"np_load_avg": 4.0},
        load_adjustment_decay_time=100,
    )
    loads.say("heartbeat", "x", workers=["n0"], load={"np_load_avg": 0.5})
    loads.say("heartbeat", "y", workers=["n1"], load={"np_load_avg": 0.9})
    spread = [loads.submit(slots(1, 1, 60))["id"] for _ in range(2)]
    offers = {}
    door.move(0, "loads")
    for agent in ("x", "y"):
        for offer in loads.say("receive", agent, max=10)["tasks"]:
            offers[offer["job"]] = [*offer["placement"]]
    outside = cluster(door, "outside", grid(1, 4))
    outside.say("heartbeat", load={"core": 1.0})
    taken = [outside.submit(slots(1, 1, 60))["id"] for _ in range(2)]
    outside.take()
    return {
        "states": states,
        "short": short,
        "static": static,
        "soft": [where(soft, job) for job in wishes],
        "loads": [offers.get(job) for job in spread],
        "outside": {"states": [outside.job(job)["state"] for job in taken], "why": outside.wait(taken[1])},
    }


def suspension(door: Door) -> dict[str, Any]:
    """A queue over its suspend threshold, and calendars that suspend: tasks are held and continue."""
    known = {"q": {"suspend_thresholds": {"np_load_avg": 2}, "suspend_interval": 60}}
    place = cluster(door, "suspension", grid(1, 2), queues=known)
    job = place.submit(slots(1, 1, 6000))["id"]
    place.take()
    (task,) = place.runs.values()
    ref = {"task": task["id"], "attempt": task["attempt"]}
    place.say("heartbeat", load={"np_load_avg": 5.0})
    door.move(0, "suspension")
    request = place.say("receive", max=0)
    place.say("events", events=[{**ref, "event": "suspended"}])
    held = place.job(job)["tasks"][0]["state"]
    place.say("heartbeat", load={"np_load_avg": 0.5})
    door.move(61, "suspension")
    again = place.say("receive", max=0)
    return {"suspend": len(request["suspend"]), "state": held, "resume": len(again["resume"])}


def advance(door: Door) -> dict[str, Any]:
    """Advance reservations: made, kept, and used by the jobs that name them."""
    place = cluster(door, "advance", grid(1, 4))
    start = datetime.fromtimestamp(door.now + HOUR, ZoneInfo("UTC")).isoformat().replace("+00:00", "Z")
    body = {"jobspec": slots(4, 1, 0), "requestor": "ann", "start": start, "duration": HOUR}
    made = place.post("reservations", body)
    long = place.submit(slots(1, 1, 2 * HOUR), "bob")["id"]
    short = place.submit(slots(1, 1, HOUR / 2), "bob")["id"]
    place.take()
    before = [place.job(job)["state"] for job in (long, short)]
    waits = place.wait(long)["text"]
    place.end_all()
    inside = place.submit(slots(1, 1, 600, reservation=made["id"]), "ann")["id"]
    place.take(HOUR)
    within = {"inside": place.job(inside)["state"], "other": place.job(long)["state"]}
    place.end_all()
    place.take(HOUR)
    return {"made": made, "before": before, "text": waits, "within": within, "after": place.job(long)["state"]}


def alike(door: Door) -> dict[str, Any]:
    """Jobs that are alike are judged once, and are told the same."""
    place = cluster(door, "alike", grid(2, 4))
    place.submit(slots(2, 4, 600))
    place.take()
    jobs = [place.submit(slots(1, 4, 60))["id"] for _ in range(20)]
    place.take()
    texts = {place.wait(job)["text"] for job in jobs[1:]}
    return {
        "texts": len(texts),
        "setting": place.shown()["settings"]["categories"],
        "verdicts": place.figures()["verdicts"],
        "orders": [one["order"] for one in place.post("plan", {})["orders"]],
        "queues": len(set(jobs)),
    }


SCENARIOS = (diagram, backfilled, queues, users, parallel, consumables, suspension, advance, alike, zones)
