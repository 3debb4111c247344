"""The judge of a history: ten rules, each of which says what it broke and how much it judged.

`python -m tests.history.check FILE` ends 0 where all hold, 1 where one is broken, 2 where it cannot be judged.
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from math import inf
from pathlib import Path
from typing import Any

from tests.history.linear import IS, IS_NOT, WRITE, Access, unexplained
from tests.history.model import DONE, ENDED, NONE, UNKNOWN, History, Operation, Unreadable, job_of, state_of

FEWEST = 200  # answered operations below which a history shows nothing
MOST_EXAMPLES = 5
TOLERANCE = 1.0  # seconds of a task by which usage may differ: times of events are rounded

# the moves that a task may make from one event to the next; one message of an agent may pass over some states
_FREE = frozenset({"WAITING", "STOPPING", *ENDED})
MOVES: Mapping[str, frozenset[str]] = {
    "WAITING": frozenset({"ASSIGNED", "CANCELED"}),
    "ASSIGNED": frozenset({"ACCEPTED", "WAITING", "CANCELED"}),
    "ACCEPTED": _FREE | {"RUNNING", "SUSPENDED"},
    "RUNNING": _FREE | {"SUSPENDED", "ACCEPTED"},
    "SUSPENDED": _FREE | {"RUNNING", "ACCEPTED"},
    "STOPPING": frozenset({"WAITING", *ENDED}),
    "FAILED": frozenset({"WAITING"}),
    "TIMED_OUT": frozenset({"WAITING"}),
}


@dataclass(frozen=True)
class Judgment:
    """What one rule found: how much of each kind it looked at, and each fault in words."""

    looked: Mapping[str, int]
    faults: Sequence[str]

    @property
    def judged(self) -> int:
        """How much it looked at in all."""
        return sum(self.looked.values())

    @property
    def word(self) -> str:
        """Whether the rule holds, is broken, or looked at nothing."""
        return "broken" if self.faults else "holds" if self.judged else "blind"


Rule = Callable[[History], Judgment]


def answers(history: History) -> Judgment:
    """Each answer has an outcome: none is 500, and each 503 says its own."""
    faults = []
    for each in history.answered:
        parts = each.answer.get("answers") if each.f == "batch" and isinstance(each.answer, Mapping) else None
        reported = [(each.status, each.answer), *((part.get("status"), part) for part in parts or ())]
        for at, (status, answer) in enumerate(reported):
            stated = answer.get("outcome") if isinstance(answer, Mapping) else None
            where = f"part {at - 1} of " if at else ""
            if status is None:
                faults.append(f"{where}{each}: it has no status")
            elif status >= 500 and status != 503:
                faults.append(f"{where}{each}: {status}")
            elif status == 503 and stated not in (NONE, UNKNOWN):
                faults.append(f"{where}{each}: 503 without an outcome")
        if parts is not None and len(parts) != len(each.ask["jobs"]):
            faults.append(f"{each}: {len(parts)} answers to {len(each.ask['jobs'])} jobs")
    return Judgment({"answers": len(history.answered)}, faults)


def submits(history: History) -> Judgment:
    """Acknowledged jobs are there once, refused ones are not, a key has one job, and no job is nobody's."""
    groups = defaultdict(list)
    for attempt in history.attempts:
        groups[attempt.identity].append(attempt)
    requests = {attempt.name for attempt in history.attempts}
    answered = {attempt.job for attempt in history.attempts if attempt.outcome == DONE}
    faults = []
    for identity, tries in groups.items():
        jobs = sorted({str(attempt.job) for attempt in tries if attempt.outcome == DONE})
        if len(jobs) > 1:
            faults.append(f"{identity}: {len(jobs)} jobs, {', '.join(jobs)}")
    for reader in history.final("final-jobs"):
        called = defaultdict(list)
        for job in reader.answer:
            called[job.get("name")].append(job["id"])
            if job.get("name") not in requests and job["id"] not in answered:
                faults.append(f"job {job['id']} ({job.get('name')}) is nobody's{_by(reader)}")
        for identity, tries in groups.items():
            there = [job for name in sorted({attempt.name for attempt in tries}) for job in called[name]]
            done = [attempt for attempt in tries if attempt.outcome == DONE]
            if len(there) > 1:
                faults.append(f"{identity}: there {len(there)} times, as {', '.join(there)}{_by(reader)}")
            faults += [
                f"job {attempt.job} is not there{_by(reader)}: {attempt.operation}"
                for attempt in done
                if attempt.job not in there
            ]
            if there and all(attempt.outcome == NONE for attempt in tries):
                faults.append(f"job {there[0]} is there{_by(reader)}, and was refused: {tries[-1].operation}")
    return Judgment({"submits": len(history.attempts) if history.final("final-jobs") else 0}, faults)


def reads(history: History) -> Judgment:
    """The states seen of a job and of its tasks fit the path of their events, in the order of real time."""
    faults, looked = [], Counter(reads=0, cancels=0)
    done = {attempt.job: attempt.operation.end for attempt in history.attempts if attempt.outcome == DONE}
    seen = defaultdict(list)
    for each in history.of("read", "cancel"):
        if each.status in (404, 410) and done.get(each.ask["job"], inf) < each.call:
            faults.append(f"an acknowledged job is not found: {each}")
        if each.outcome == DONE:
            seen[each.ask["job"]].append(each)
    for job, operations in seen.items() if history.final("final-events") else ():
        operations.sort(key=lambda each: each.call)
        answer = [(each, str(each.answer["state"])) for each in operations if (each.answer or {}).get("state")]
        looked.update(f"{each.f}s" for each, _ in answer)
        faults += _backward(f"job {job}", answer, _labels(history, job))
        for task in sorted({name for each in operations for name in (each.answer or {}).get("tasks") or ()}):
            states = [
                (each, each.answer["tasks"][task]) for each in operations if task in (each.answer.get("tasks") or ())
            ]
            path = [{"WAITING"}, *({data["state"]} for data in history.paths.get(task, ()))]
            faults += _backward(f"task {task}", states, path)
        faults += _undone(history, job, [each for each in operations if each.f == "cancel"])
    return Judgment(looked, faults)


def _labels(history: History, job: str) -> list[set[str]]:
    """Return what a job may be called after each of its events: before the first it waits."""
    tasks = dict.fromkeys(history.tasks.get(job, ()), "WAITING")
    labels, own = [{"WAITING", "UNPLACED"}], ""
    for event in history.job_events.get(job, ()):
        data = event["data"]
        if event["kind"] == "task":
            tasks[data["task"]] = data["state"]
        elif data["state"].isupper():  # suspended and resumed are no states of a job
            own = data["state"]
        labels.append({own} if own else {state_of(tasks.values())})
        labels[-1] |= set(tasks.values()) if len(tasks) == 1 and not own else set()
    return labels


def _backward(what: str, seen: Sequence[tuple[Operation, str]], path: Sequence[set[str]]) -> Iterator[str]:
    """Give each read the first place of the path that it fits and no earlier read has passed; say which has none."""
    returned: list[tuple[float, int]] = []  # (when an earlier read returned, the furthest place of those until then)
    for each, state in seen:
        at = bisect_left(returned, (each.call, -1))
        first = returned[at - 1][1] if at else 0
        place = next((k for k in range(first, len(path)) if state in path[k]), None)
        if place is None:
            went = " → ".join("/".join(sorted(labels)) for labels in path[first:])
            yield f"{what} is {state}, its events from there: {went}: {each}"
            continue
        returned.insert(bisect_left(returned, (each.end, -1)), (each.end, place))
        for k in range(bisect_left(returned, (each.end, -1)), len(returned)):
            returned[k] = (returned[k][0], max(place, returned[k][1], returned[k - 1][1] if k else 0))


def _undone(history: History, job: str, cancels: Sequence[Operation]) -> Iterator[str]:
    """Say which cancels that were done let a task be, or did not stay: a job that was CANCELED is so at the end."""
    there = history.jobs.get(job, {}).get("state")
    for each in cancels:
        answer = each.answer or {}
        if answer.get("state") == "CANCELED" and there not in (None, "CANCELED"):
            yield f"job {job} is {there} at the end, and its cancel was done: {each}"
        for task, state in (answer.get("tasks") or {}).items():
            if state not in ENDED and state != "STOPPING":
                yield f"task {task} is {state} after the cancel of its job: {each}"


def ends(history: History) -> Judgment:
    """Each accepted job ends once, and its last event says what the job says."""
    faults, judged = [], 0
    unserved = set(history.setup.get("unserved") or ())
    for reader in history.final("final-jobs") if history.final("final-events") else ():
        for job in reader.answer:
            if job.get("cluster") not in unserved:
                judged += 1
                faults += [f"job {job['id']} {fault}{_by(reader)}" for fault in _end_of(history, job)]
    for task, path in history.paths.items() if judged else ():
        faults += [f"task {task} {fault}" for fault in _moves_of(path)]
    return Judgment({"jobs": judged}, faults)


def _end_of(history: History, job: Mapping[str, Any]) -> Iterator[str]:
    """Say what is wrong with a job's end: none, several, or another one than its events say."""
    if job["state"] not in ENDED:
        yield f"has not ended: it is {job['state']}"
        return
    events_of_it = history.job_events.get(job["id"], ())
    own = [event["data"]["state"] for event in events_of_it if event["kind"] == "job"]
    last = [history.paths[task][-1]["state"] for task in history.tasks.get(job["id"], ())]
    if not own and not last:
        yield f"is {job['state']}, and no event says so"
    for answer in [*([state_of(last)] if last else []), *own[-1:]]:
        if answer != job["state"]:
            yield f"is {job['state']}, its last event says {answer}"
    if (count := sum(state in ENDED for state in own)) > 1:
        yield f"ended {count} times: {' → '.join(own)}"


def _moves_of(path: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Say where a task's events are no path: a move that there is not, two ends, or an attempt that was left out."""
    states = ["WAITING", *(data["state"] for data in path)]
    went = " → ".join(states)
    odd = ((early, late) for early, late in pairwise(states) if early != late and late not in MOVES.get(early, ()))
    for early, late in islice(odd, 1):
        yield f"went from {early} to {late}: {went}"
    final = [(data.get("attempt"), data["state"]) for data in path if data["state"] in ENDED]
    if len(final) > len(set(final)):
        yield f"ended twice in one attempt: {went}"
    attempts = [data["attempt"] for data in path if data["state"] == "ASSIGNED" and "attempt" in data]
    if attempts != list(range(1, len(attempts) + 1)):
        yield f"began attempts {attempts}"


def runs(history: History) -> Judgment:
    """Two runs of a task never overlap, each was started, and what completed ran to its end, with its exit code."""
    there: dict[str, list[Sequence[Any]]] = defaultdict(list)
    for noted in history.final("runs"):
        for task, some in noted.answer.items():
            there[task] += some
    faults = []
    for task in {**there, **history.paths} if history.final("runs") else ():
        some = sorted(there.get(task, ()), key=lambda run: (run[0], run[1]))
        spans = ", ".join(f"{run[0]} to {run[1]}{'' if run[2] else ' (cut off)'}" for run in some) or "it never ran"
        faults += [f"task {task} {fault}: {spans}" for fault in _runs_of(history, task, some)]
    return Judgment({"runs": sum(map(len, there.values()))}, faults)


def _runs_of(history: History, task: str, some: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Say what is wrong with a task's runs, sorted by their start."""
    last = -inf
    for run in some:
        if run[0] < last:
            yield f"runs twice from {run[0]} to {min(last, run[1])}"
        last = max(last, run[1])
    path = history.paths.get(task, [])
    attempts = max((data.get("attempt", 0) for data in path), default=0)
    if history.final("final-events") and len(some) > attempts:
        yield f"ran {len(some)} times in {attempts} attempts"
    codes = [run[3] for run in some if run[2] and len(run) > 3 and run[3] is not None]
    job = history.jobs.get(job_of(task), {})
    allowed = job.get("retries", inf) + (job.get("lost") or {}).get(task, 0)
    begun = [data["state"] for data in path if data["state"] != "STOPPING"]
    again = sum(early not in ("ASSIGNED", "WAITING") and late == "WAITING" for early, late in pairwise(begun))
    if again > allowed:
        yield f"began again {again} times, with {allowed} retries and losses"
    end = path[-1] if path else {"state": ""}
    if end["state"] == "COMPLETED" and not any(run[2] for run in some):
        yield "is COMPLETED, and no run reached its end"
    if end["state"] in ("COMPLETED", "FAILED") and codes and end.get("exit_code", codes[0]) not in (None, *codes):
        yield f"has exit code {end['exit_code']}, its runs ended with {sorted(set(codes))}"


def registers(history: History) -> Judgment:
    """Each variable of a cluster's state, and each token's rights, is as if all was done one after the other."""
    accesses: dict[tuple[Any, ...], list[Access]] = defaultdict(list)
    for each in history.of("put-state", "get-state"):
        if each.outcome == NONE or (each.f == "get-state" and each.outcome != DONE):
            continue
        answer = each.ask if each.f == "put-state" else each.answer
        one = {each.ask["key"]: (answer or {}).get("value")} if "key" in each.ask else {}
        for key, value in ((answer or {}).get("values") or one).items():
            kind = WRITE if each.f == "put-state" else IS
            accesses[each.ask.get("cluster"), key].append(_access(each, kind, value))
    firsts: dict[tuple[Any, ...], Any] = {}
    for each in history.of("open", "rotate", "revoke"):
        token = ("token", each.ask["token"])
        firsts[token] = 0
        if each.f == "open" and (each.outcome == DONE or each.status == 401):
            kind = IS if each.outcome == DONE else IS_NOT
            accesses[token].append(_access(each, kind, each.ask["generation"]))
        elif each.f != "open" and each.outcome != NONE:
            accesses[token].append(_access(each, WRITE, each.ask.get("generation")))
    faults, looked = [], {"variables": 0, "tokens": 0}
    for name, line in accesses.items():
        if all(access.kind == WRITE for access in line):
            continue  # without a read there is nothing to compare
        looked["tokens" if name in firsts else "variables"] += len(line)
        if (fault := unexplained(line, firsts.get(name))) is not None:
            called = " ".join(str(part) for part in name if part is not None)
            faults.append(f"{called} fits no order of {len(line)} accesses at {fault.text}")
    return Judgment(looked, faults)


def _access(each: Operation, kind: str, value: Any) -> Access:
    end = each.end if each.outcome != UNKNOWN else inf
    return Access(each.call, end, kind, value, f"{kind} {value}: {each}")


def events(history: History) -> Judgment:
    """Numbers rise, every reader is told the same, and a follower is sent each event once, in order."""
    faults, looked = [], {"events": 0, "followed": 0}
    followers = history.stream("followed")
    for stream, readers in history.stream("final-events").items():
        numbers = [event["id"] for event in readers[0].answer]
        for reader in readers:
            answer = [event["id"] for event in reader.answer]
            looked["events"] += len(answer)
            faults += [f"{late} follows {early}{_by(reader)}" for early, late in pairwise(answer) if late <= early]
            if answer != numbers:
                faults.append(f"other events{_by(reader)}: {_difference(numbers, answer)}")
        for follower in followers.get(stream, ()):
            looked["followed"] += len(follower.answer)
            after = follower.ask.get("after", follower.answer[0] - 1 if follower.answer else inf)
            requirements = [number for number in numbers if number > after]
            if follower.answer != requirements:
                faults.append(f"follower {follower.client}: {_difference(requirements, follower.answer)}")
    return Judgment(looked, faults)


def _difference(requirements: Sequence[int], answer: Sequence[int]) -> str:
    """Say what one was told and another was not."""
    missing, odd = sorted(set(requirements) - set(answer)), sorted(set(answer) - set(requirements))
    twice = sorted(number for number, count in Counter(answer).items() if count > 1)
    back = [late for early, late in pairwise(answer) if late < early]
    parts = {"missed": missing, "unknown": odd, "twice": twice, "out of order": back}
    return ", ".join(f"{name} {_few(result)}" for name, result in parts.items() if result)


def _few(results: Sequence[Any]) -> str:
    more = f" and {len(results) - MOST_EXAMPLES} more" if len(results) > MOST_EXAMPLES else ""
    return " ".join(map(str, results[:MOST_EXAMPLES])) + more


def bookings(history: History) -> Judgment:
    """What is free is never below 0 nor above all, and at the end all is free."""
    faults, totals = [], {}
    looked = {"figures": 0, "final figures": 0}
    for each in history.of("figures"):
        free, total = (each.answer or {}).get("free"), each.ask.get("total")
        totals[each.ask.get("cluster")] = total
        if each.outcome != DONE or free is None:
            continue
        looked["figures"] += 1
        if free < 0 or (total is not None and free > total):
            faults.append(f"{free} of {total} are free: {each}")
    for noted in history.final("final-free"):
        for cluster, result in noted.answer.items():
            free, total = result if isinstance(result, Sequence) else (result, totals.get(cluster))
            looked["final figures"] += 1
            if total is not None and free != total:
                faults.append(f"{cluster}: {free} of {total} are free at the end{_by(noted)}")
    return Judgment(looked, faults)


def usage(history: History) -> Judgment:
    """What an account used is the sum of its jobs, within a second a task, and never negative."""
    sums: dict[str, float] = defaultdict(float)
    slack: dict[str, float] = defaultdict(float)
    for job in history.jobs.values() if history.final("final-events") else ():
        for task in history.tasks.get(job["id"], ()) if job.get("account") else ():
            cores = job.get("cores", 1)
            spent, attempts = _held(history.paths[task])
            sums[job["account"]] += spent * cores
            slack[job["account"]] += TOLERANCE * attempts * cores
    faults, judged = [], 0
    tasks = sum(job_of(task) in history.jobs for task in history.paths)
    for reader in history.final("final-usage") if sums else ():
        judged += tasks
        for account in sorted({*sums, *reader.answer}):
            used = reader.answer.get(account, 0.0)
            if used < 0:
                faults.append(f"account {account} used {used} core seconds{_by(reader)}")
            elif abs(used - sums[account]) > slack[account]:
                faults.append(f"account {account} used {used:.1f}{_by(reader)}, its jobs {sums[account]:.1f}")
    return Judgment({"tasks": judged}, faults)


def _held(path: Sequence[Mapping[str, Any]]) -> tuple[float, int]:
    """Return for how many seconds a task's runs held their space, as its events say, and how many there were."""
    seconds, attempts, since = 0.0, 0, None
    for data in path:
        if data["state"] == "RUNNING" and since is None:
            since, attempts = data["at"], attempts + 1
        elif since is not None and data["state"] in {"WAITING", "ACCEPTED", *ENDED}:
            seconds, since = seconds + max(0.0, data["at"] - since), None
    return seconds, attempts


def registrations(history: History) -> Judgment:
    """A registration that was done is there and its secret opens it; one that was refused is not there."""
    outcomes = defaultdict(list)
    for each in history.of("register"):
        outcomes[each.ask["name"]].append(each)
    faults, judged = [], 0
    for reader in history.final("final-clusters"):
        judged += len(outcomes)
        for name, tries in outcomes.items():
            if any(each.outcome == DONE for each in tries):
                if name not in reader.answer:
                    faults.append(f"cluster {name} is not there{_by(reader)}: {tries[-1]}")
                elif not reader.answer[name]:
                    faults.append(f"cluster {name} is not opened by its secret{_by(reader)}: {tries[-1]}")
            elif name in reader.answer and all(each.outcome == NONE for each in tries):
                faults.append(f"cluster {name} is there{_by(reader)}, and was refused: {tries[-1]}")
    return Judgment({"registrations": judged}, faults)


def _by(reader: Operation) -> str:
    return f" for {reader.client}" if reader.client else ""


RULES: Mapping[str, tuple[Rule, str]] = {
    "answers": (answers, "no 500; each 503 has an outcome"),
    "submits": (submits, "acknowledged: there, once; refused: not there; one key: one job"),
    "reads": (reads, "states fit the path of events; a cancel stays"),
    "ends": (ends, "each accepted job ends once, as its last event says"),
    "runs": (runs, "no two runs of a task overlap; COMPLETED ran to its end"),
    "registers": (registers, "states of clusters and rights of tokens are linearizable"),
    "events": (events, "numbers rise; a follower sees each once, in order"),
    "bookings": (bookings, "free is within 0 and all; all is free at the end"),
    "usage": (usage, "accounts used what their jobs did"),
    "registrations": (registrations, "acknowledged: there, and its secret opens it"),
}


def judge(history: History) -> dict[str, Judgment]:
    """Return what each rule says."""
    return {name: rule(history) for name, (rule, _) in RULES.items()}


def unjudged(history: History, judgments: Mapping[str, Judgment]) -> list[str]:
    """Say why a history shows nothing, where it does: too little of it, or a nemesis or a rule that did nothing.

    A recorded history, one with a setup, must have something of every kind that a rule looks at.
    """
    reasons = []
    if (count := len(history.answered)) < FEWEST:
        reasons.append(f"{count} answered operations; at least {FEWEST} are needed")
    acted = {each.ask["kind"] for each in history.nemeses if each.outcome == DONE}
    reasons += [f"nemesis {kind} never acted" for kind in history.setup.get("nemeses") or () if kind not in acted]
    reasons += [f"rule {name} looked at nothing" for name, one in judgments.items() if not one.judged]
    parts = [
        (name, kind) for name, one in judgments.items() if one.judged for kind, much in one.looked.items() if not much
    ]
    return reasons + [f"rule {name} saw no {kind}" for name, kind in parts if history.setup]


def report(history: History, judgments: Mapping[str, Judgment], name: str) -> tuple[int, str]:
    """Return the exit code of a judgment, and its lines."""
    lines = []
    for rule, one in judgments.items():
        lines.append(f"{one.word:<6} {rule:<13} {one.judged:>9,} judged  {RULES[rule][1]}")
        lines += [f"         {fault}" for fault in one.faults[:MOST_EXAMPLES]]
        if (more := len(one.faults) - MOST_EXAMPLES) > 0:
            lines.append(f"         and {more:,} more")
    words = Counter(one.word for one in judgments.values())
    reasons = unjudged(history, judgments)
    text = ", ".join(f"{words[word]} rules {verb}" for word, verb in (("broken", "broken"), ("holds", "hold")))
    text = text if words["broken"] else f"{words['holds']} rules hold"
    lines += [f"it cannot be judged: {reason}" for reason in reasons]
    lines.append(f"{text}, {len(history.operations):,} operations, history in {name}")
    return 1 if words["broken"] else 2 if reasons else 0, "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge a stored history."""
    parser = argparse.ArgumentParser(prog="python -m tests.history.check", description=main.__doc__)
    parser.add_argument("file", type=Path)
    file = parser.parse_args(arguments).file
    try:
        history = History.read(file.read_text())
    except (OSError, UnicodeDecodeError, Unreadable) as fault:
        print(f"it cannot be judged: {fault}")
        return 2
    code, text = report(history, judge(history), str(file))
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
