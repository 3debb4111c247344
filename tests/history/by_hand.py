"""A right history made by hand, and the faults that each rule must find in it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

Lines = list[dict[str, Any]]
JOBS = 70  # each with a submit and two reads: more operations than a history must have


def op(f: str, call: float, ask: Any, status: int | None, answer: Any = None, client: str = "c") -> dict[str, Any]:
    line = {"f": f, "client": client, "call": call, "return": call + 0.5, "ask": ask, "status": status}
    return {**line, "answer": answer}


def _asked(k: int, at: float) -> Lines:
    """How job k is submitted; job 5 is with job 4."""
    name, job = f"n{k}", f"j{k}"
    if k == 0:
        return [op("submit", at, {"name": name}, 503, {"outcome": "none"})]
    if k == 3:
        request = {"name": name, "key": "one"}
        first, again = (
            op("submit", at, request, 201, {"id": job}, "d"),
            op("submit", at + 1, request, 200, {"id": job}),
        )
        return [op("submit", at, request, None), first, again]
    if k == 4:
        parts = [{"status": 201, "id": "j4"}, {"status": 201, "id": "j5"}, {"status": 422}]
        batch = {"jobs": [{"name": "n4"}, {"name": "n5"}, {"name": "odd"}], "key": "all"}
        return [op("batch", at, batch, 200, {"answers": parts})]
    return [] if k == 5 else [op("submit", at, {"name": name}, 201, {"id": job})]


def right() -> Lines:
    """A history in which all is right and every rule has something to judge.

    Job 0 is refused, job 1 is canceled while it waits, job 2 fails once and is tried again, job 3 was submitted three
    times under one key, job 4 and 5 in a batch whose third part was refused; the others complete.
    """
    lines: Lines = [{"f": "setup", "ask": {"nemeses": ["kill"], "unserved": ["idle"]}}]
    lines.append(op("nemesis", 1, {"kind": "kill"}, 200, "server"))
    jobs: Lines = []
    events: Lines = []
    runs: dict[str, list[Any]] = {}

    def tell(kind: str, **data: Any) -> None:
        events.append({"id": 10 + 2 * len(events), "kind": kind, "data": {**data, "at": float(len(events))}})

    for k in range(JOBS):
        name, job, at = f"n{k}", f"j{k}", 10.0 * k
        lines += _asked(k, at)
        if k == 0:
            continue
        tell("job", job=job, state="WAITING")
        task, end, tries = f"{job}-0", "CANCELED" if k == 1 else "COMPLETED", (1, 2) if k == 2 else (1,)
        lines.append(op("read", at + 2, {"job": job}, 200, {"state": "WAITING", "tasks": {task: "WAITING"}}))
        jobs.append({"id": job, "name": name, "state": end, "account": "bio", "cores": 2, "retries": 1})
        for attempt in () if k == 1 else tries:
            if attempt == 2:
                tell("task", job=job, task=task, state="WAITING", attempt=1)
                tell("job", job=job, state="WAITING")
            for state in ("ASSIGNED", "ACCEPTED", "RUNNING"):
                tell("task", job=job, task=task, state=state, attempt=attempt)
            tell("job", job=job, state="RUNNING")
            begun = at + 3 * attempt
            runs.setdefault(task, []).append([begun, begun + 1, True, int(attempt < tries[-1])])
        tell(
            "task", job=job, task=task, state=end, attempt=0 if k == 1 else tries[-1], exit_code=None if k == 1 else 0
        )
        tell("job", job=job, state=end)
        verb = "cancel" if k == 1 else "read"
        lines.append(op(verb, at + 8, {"job": job}, 200, {"state": end, "tasks": {task: end}}))
    lines.append(op("submit", 1, {"name": "idle1"}, 201, {"id": "i1"}))
    jobs.append({"id": "i1", "name": "idle1", "state": "WAITING", "cluster": "idle"})
    lines += [
        op("put-state", 1, {"cluster": "oak", "key": "load", "value": 1}, 200),
        op("put-state", 2, {"cluster": "oak", "key": "load", "value": 2}, None),
        op("put-state", 3, {"cluster": "oak", "key": "load", "value": 3}, 409),
        op("get-state", 4, {"cluster": "oak"}, 200, {"values": {"load": 1}}),
        op("get-state", 5, {"cluster": "oak", "key": "load"}, 200, {"value": 2}),
        op("open", 1, {"token": "t", "generation": 0}, 200),
        op("rotate", 2, {"token": "t", "generation": 1}, 200),
        op("open", 3, {"token": "t", "generation": 0}, 401),
        op("open", 3, {"token": "t", "generation": 1}, 200),
        op("revoke", 4, {"token": "t"}, 204),
        op("open", 5, {"token": "t", "generation": 1}, 401),
        op("register", 1, {"name": "oak"}, 201, {}),
        op("register", 2, {"name": "elm"}, None),
        op("register", 3, {"name": "fir"}, 422),
        op("figures", 1, {"cluster": "oak", "total": 8}, 200, {"free": 0}),
        op("figures", 2, {"cluster": "oak", "total": 8}, 200, {"free": 8}),
    ]
    held = JOBS - 2 + 1  # attempts, each of which held two cores from its RUNNING to its end, two events later
    numbers = [event["id"] for event in events]
    lines += [{"f": "final-jobs", "client": server, "answer": copy.deepcopy(jobs)} for server in ("one", "two")]
    lines += [{"f": "final-events", "client": server, "answer": copy.deepcopy(events)} for server in ("one", "two")]
    lines += [
        {"f": "runs", "answer": runs},
        {"f": "followed", "client": "f", "ask": {"after": 0}, "answer": numbers},
        {"f": "followed", "client": "late", "answer": numbers[9:]},
        {"f": "final-free", "answer": {"oak": [8, 8]}},
        {"f": "final-clusters", "answer": {"oak": True, "elm": True}},
        {"f": "final-usage", "answer": {"bio": held * 2.0 * 2}},
    ]
    return lines


# ── how each fault is made of the right history ──


def line(lines: Lines, f: str, at: int = 0, **request: Any) -> dict[str, Any]:
    """Return one line of a kind, of those that ask this."""
    return [each for each in lines if each["f"] == f and request.items() <= (each.get("ask") or {}).items()][at]


def told(lines: Lines, **data: Any) -> dict[str, Any]:
    """Return the event with these data, as the first reader has it."""
    events = line(lines, "final-events")["answer"]
    return next(event for event in events if data.items() <= event["data"].items())


def everywhere(lines: Lines, change: Callable[[list[Any]], Any]) -> None:
    """Change the events for all who were told them."""
    for each in lines:
        if each["f"] == "final-events":
            change(each["answer"])
    numbers = [event["id"] for event in line(lines, "final-events")["answer"]]
    line(lines, "followed")["answer"], line(lines, "followed", 1)["answer"] = numbers, numbers[9:]


def drop(**data: Any) -> Callable[[list[Any]], None]:
    def change(events: list[Any]) -> None:
        events[:] = [event for event in events if not data.items() <= event["data"].items()]

    return change


def tell_again(after: dict[str, Any], **data: Any) -> Callable[[list[Any]], None]:
    """Let another event follow the one with the data of `after`."""

    def change(events: list[Any]) -> None:
        at = next(k for k, event in enumerate(events) if after.items() <= event["data"].items())
        events.insert(at + 1, {**events[at], "id": events[at]["id"] + 1, "data": {**events[at]["data"], **data}})

    return change


def jobs_everywhere(lines: Lines, change: Callable[[list[Any]], Any]) -> None:
    for each in lines:
        if each["f"] == "final-jobs":
            change(each["answer"])


def both(*changes: Callable[[Lines], Any]) -> Callable[[Lines], Any]:
    def change(lines: Lines) -> None:
        for each in changes:
            each(lines)

    return change


def without(name: str) -> Callable[[list[Any]], None]:
    return lambda jobs: jobs.remove(next(job for job in jobs if job["name"] == name))


def put(lines: Lines, f: str, at: int = 0, request: Any = None, **values: Any) -> None:
    line(lines, f, at, **(request or {})).update(values)


def reader_two(lines: Lines, change: Callable[[list[Any]], Any]) -> None:
    change(line(lines, "final-jobs", 1)["answer"])


def twin(name: str, other: str) -> Callable[[list[Any]], None]:
    return lambda jobs: jobs.append({**next(job for job in jobs if job["name"] == name), "id": other})


def named(job: str, **values: Any) -> Callable[[list[Any]], None]:
    """Change what a reader was told of one job."""
    return lambda jobs: next(one for one in jobs if one["id"] == job).update(values)


def final(f: str, **answer: Any) -> Callable[[Lines], Any]:
    return lambda lines: line(lines, f)["answer"].update(answer)


OWN = {"task": "j7-0"}
COMPLETED = {**OWN, "state": "COMPLETED"}
FAULTS: dict[str, dict[str, Callable[[Lines], Any]]] = {
    "answers": {
        "a read is 500": lambda lines: put(lines, "read", status=500, answer={}),
        "a 503 has no outcome": lambda lines: put(lines, "figures", status=503, answer={"detail": "busy"}),
        "a part is 500": lambda lines: line(lines, "batch")["answer"]["answers"][2].update(
            status=500, outcome="none"
        ),
        "a part is 503 alone": lambda lines: line(lines, "batch")["answer"]["answers"][2].update(status=503),
        "a part has no answer": lambda lines: line(lines, "batch")["answer"]["answers"].pop(),
        "a gateway's 502": lambda lines: put(lines, "read", status=502, answer={}),
    },
    "submits": {
        "a job is lost": lambda lines: jobs_everywhere(lines, without("n9")),
        "a job is lost for one reader": lambda lines: reader_two(lines, without("n9")),
        "a part is lost": lambda lines: jobs_everywhere(lines, without("n5")),
        "a job is there twice": lambda lines: jobs_everywhere(lines, twin("idle1", "i2")),
        "a refused job is there": lambda lines: put(
            lines, "submit", request={"name": "n9"}, status=409, answer={"code": "conflict"}
        ),
        "a refused part is there": lambda lines: line(lines, "batch")["answer"].update(
            answers=[{"status": 201, "id": "j4"}, {"status": 503, "outcome": "none"}, {"status": 422}]
        ),
        "one key has two jobs": lambda lines: put(lines, "submit", 2, {"key": "one"}, answer={"id": "j8"}),
        "a key is known by two names": both(
            lambda lines: line(lines, "submit", 2, key="one")["ask"].update(name="n3b"),
            lambda lines: jobs_everywhere(lines, lambda jobs: jobs.append({**jobs[-1], "name": "n3b", "id": "i3"})),
        ),
        "nobody's job": lambda lines: jobs_everywhere(
            lines, lambda jobs: jobs.append({**jobs[-1], "id": "i9", "name": "strange"})
        ),
    },
    "reads": {
        "a state that never was": lambda lines: put(lines, "read", 8, answer={"state": "FAILED"}),
        "the end is seen, then the wait": lambda lines: line(lines, "read", job="j7").update(
            {"call": 79, "return": 80}
        ),
        "a task goes back": lambda lines: lines.append(
            op("read", 79, {"job": "j7"}, 200, {"state": "COMPLETED", "tasks": {"j7-0": "RUNNING"}})
        ),
        "a cancel is undone": both(
            lambda lines: lines.append(op("cancel", 73, {"job": "j7"}, 200, {"state": "CANCELED"})),
            lambda lines: lines.remove(line(lines, "read", 1, job="j7")),
        ),
        "a cancel reaches no task": lambda lines: lines.append(
            op("cancel", 72.6, {"job": "j7"}, 200, {"state": "RUNNING", "tasks": {"j7-0": "STOPPING"}})
        ),
        "a cancel lets a task be": lambda lines: lines.append(
            op("cancel", 71, {"job": "j7"}, 200, {"state": "WAITING", "tasks": {"j7-0": "WAITING"}})
        ),
        "an acknowledged job is not found": lambda lines: put(lines, "read", request={"job": "j7"}, status=404),
    },
    "ends": {
        "a job does not end": both(
            lambda lines: everywhere(lines, drop(job="j7", state="COMPLETED")),
            lambda lines: jobs_everywhere(lines, named("j7", state="RUNNING")),
            lambda lines: lines.remove(line(lines, "read", 1, job="j7")),
        ),
        "it ends twice": lambda lines: everywhere(lines, tell_again(COMPLETED)),
        "it ends otherwise": lambda lines: everywhere(lines, tell_again(COMPLETED, state="FAILED")),
        "it begins after its end": lambda lines: everywhere(lines, tell_again(COMPLETED, state="RUNNING")),
        "an event is dropped": lambda lines: everywhere(lines, drop(**OWN, state="ASSIGNED")),
        "its last event is dropped": both(
            lambda lines: everywhere(lines, drop(job="j7", state="COMPLETED")),
            lambda lines: lines.remove(line(lines, "read", 1, job="j7")),
        ),
        "an attempt is left out": lambda lines: everywhere(
            lines,
            lambda events: [event["data"].update(attempt=3) for event in events if event["data"].get("attempt") == 2],
        ),
        "the job says otherwise": lambda lines: reader_two(lines, named("j7", state="FAILED")),
    },
    "runs": {
        "two at one time": lambda lines: line(lines, "runs")["answer"]["j2-0"][1].__setitem__(0, 23.5),
        "one within another": lambda lines: line(lines, "runs")["answer"].update(
            {"j2-0": [[20, 29, True, 1], [22, 23, True, 0]]}
        ),
        "more runs than attempts": lambda lines: line(lines, "runs")["answer"]["j7-0"].append([75, 76, False]),
        "completed without a run": lambda lines: line(lines, "runs")["answer"].pop("j7-0"),
        "completed without its end": lambda lines: line(lines, "runs")["answer"].update({"j7-0": [[73, 74, False]]}),
        "another exit code": lambda lines: line(lines, "runs")["answer"].update({"j7-0": [[73, 74, True, 3]]}),
        "a retry too many": lambda lines: jobs_everywhere(lines, named("j2", retries=0)),
    },
    "registers": {
        "a read is stale": lambda lines: put(lines, "get-state", 1, answer={"value": None}),
        "it goes back": lambda lines: lines.append(
            op("get-state", 6, {"cluster": "oak", "key": "load"}, 200, {"value": 1})
        ),
        "a refused write is seen": lambda lines: put(lines, "get-state", 1, answer={"value": 3}),
        "a revoked token opens": lambda lines: put(lines, "open", 3, status=200),
        "an old value opens": lambda lines: put(lines, "open", 1, status=200),
        "a good token is refused": lambda lines: put(lines, "open", 2, status=401),
    },
    "events": {
        "a follower misses one": lambda lines: line(lines, "followed")["answer"].pop(20),
        "a follower misses the first": lambda lines: line(lines, "followed")["answer"].pop(0),
        "a follower misses the last": lambda lines: line(lines, "followed", 1)["answer"].pop(),
        "a follower is told twice": lambda lines: line(lines, "followed")["answer"].insert(5, 18),
        "out of order": lambda lines: line(lines, "followed")["answer"].insert(
            3, line(lines, "followed")["answer"].pop(9)
        ),
        "a follower is told of more": lambda lines: line(lines, "followed")["answer"].insert(1, 11),
        "numbers fall": lambda lines: everywhere(
            lines, lambda events: [events[k].update(id=events[1 - k]["id"]) for k in (0, 1)] and None
        ),
        "two readers are told other events": lambda lines: line(lines, "final-events", 1)["answer"].pop(0),
    },
    "bookings": {
        "more is free than all": lambda lines: put(lines, "figures", answer={"free": 9}),
        "less is free than nothing": lambda lines: put(lines, "figures", answer={"free": -1}),
        "not all is free at the end": final("final-free", oak=[7, 8]),
        "more than all at the end": final("final-free", oak=[9, 8]),
    },
    "usage": {
        "too little": final("final-usage", bio=10.0),
        "too much": final("final-usage", bio=1e4),
        "negative": final("final-usage", bio=-1.0),
        "an account without jobs": final("final-usage", physics=3.0),
    },
    "registrations": {
        "it is not there": lambda lines: line(lines, "final-clusters")["answer"].pop("oak"),
        "its secret opens nothing": final("final-clusters", oak=False),
        "a refused one is there": final("final-clusters", fir=True),
    },
}
