"""A history as it is read from its file: what was asked and answered, and what was there in quiet at the end.

One line of JSON for each operation, `{"f", "client", "call", "return", "ask", "status", "answer"}`, with times of one
monotonic clock in seconds; no answer is a `status` of null. The lines of the end have `f` and `answer`. Nothing of
Rainbow is imported here: the judge must not share a fault with the judged.

| `f` | `ask` | `answer` |
|---|---|---|
| `setup` | `nemeses`: those that must act; `unserved`: clusters without an agent; `seed`, `topology` | |
| `nemesis` | `kind` | what it did |
| `submit` | `name`, `key` | `id` |
| `batch` | `jobs`: of each its `name`; `key` | `answers`: of each `status`, and `id` or `outcome` |
| `read`, `cancel` | `job` | `state` of the job, or of its only task; `tasks`: {task: state} |
| `put-state`, `get-state` | `cluster`, `key` and `value`, or `values` | `value`, or `values` |
| `open`, `rotate`, `revoke` | `token`, `generation`: which of its values is tried, or is made | |
| `register` | `name` | |
| `figures` | `cluster`, `total` | `free` |
| `final-jobs` | | jobs: `id`, `name`, `state`, `cluster`, `account`, `cores`, `retries`, `lost`; a line a reader |
| `final-events` | `stream`: whose numbers they have | events: `id`, `kind`, `data`; a line a reader |
| `runs` | | {task: [[start, last sign of life, whether it ran to its end, exit code], ...]} |
| `followed` | `stream`, `after` | the ids of the events that a follower was sent |
| `final-free` | | {cluster: [free, total]} |
| `final-clusters` | | {cluster: whether its secret opens it} |
| `final-usage` | | {account: core seconds} |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any, Self

DONE, NONE, UNKNOWN = "done", "none", "unknown"  # the three outcomes of an answer
OF_THE_END = frozenset({"final-jobs", "final-events", "runs", "followed"}) | {
    "final-free",
    "final-clusters",
    "final-usage",
}
NEEDED = {  # of what was asked
    "nemesis": ("kind",),
    "submit": ("name",),
    "batch": ("jobs",),
    "read": ("job",),
    "cancel": ("job",),
    "open": ("token", "generation"),
    "rotate": ("token", "generation"),
    "revoke": ("token",),
    "register": ("name",),
}
ENDED = frozenset({"COMPLETED", "FAILED", "TIMED_OUT", "CANCELED"})
BEGUN = frozenset({"RUNNING", "SUSPENDED", "STOPPING"})


class Unreadable(Exception):
    """A line that is no part of a history."""


@dataclass(frozen=True)
class Operation:
    """What a client asked and was answered."""

    f: str
    client: str = ""
    call: float = 0.0
    end: float = inf  # without an answer it may take effect whenever it likes
    ask: Mapping[str, Any] = field(default_factory=dict)
    status: int | None = None
    answer: Any = None

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Self:
        """Read an operation from its line."""
        end = line.get("return")
        return cls(
            line["f"],
            line.get("client") or "",
            line.get("call") or 0.0,
            inf if end is None else end,
            line.get("ask") or {},
            line.get("status"),
            line.get("answer"),
        )

    @property
    def outcome(self) -> str:
        """Whether it was done, as far as its answer says."""
        return outcome(self.status, self.answer)

    def __str__(self) -> str:
        text = "no answer" if self.status is None else self.status
        query = " ".join(f"{key} {value}" for key, value in self.ask.items() if isinstance(value, (str, int, float)))
        return f"{self.f} {query}: {text}, by {self.client} at {self.call:.3f} to {self.end:.3f}"


def outcome(status: int | None, answer: Any) -> str:
    """Return the outcome that an answer states.

    >>> outcome(201, {}), outcome(409, {}), outcome(503, {"outcome": "none"}), outcome(500, {}), outcome(None, None)
    ('done', 'none', 'none', 'unknown', 'unknown')
    """
    if status is None:
        return UNKNOWN
    if status >= 500:
        stated = answer.get("outcome") if isinstance(answer, Mapping) else None
        return NONE if stated == NONE else UNKNOWN
    return DONE if status < 400 else NONE


@dataclass(frozen=True)
class Attempt:
    """One try to submit one job: a submit, or a part of a batch."""

    name: str
    key: str | None
    outcome: str
    job: str | None
    operation: Operation

    @property
    def identity(self) -> str:
        """What all tries of one job share."""
        return f"key {self.key}" if self.key else f"name {self.name}"


class History:
    """The operations of clients, the acts of nemeses and what was there at the end."""

    def __init__(self, lines: Iterable[Mapping[str, Any]]) -> None:
        self.setup: dict[str, Any] = {}
        self.operations: list[Operation] = []
        self.nemeses: list[Operation] = []
        self.finals: dict[str, list[Operation]] = {}
        for line in lines:
            each = Operation.of(line)
            if each.f == "setup":
                self.setup |= each.ask
            elif each.f in OF_THE_END:
                self.finals.setdefault(each.f, []).append(each)
            else:
                (self.nemeses if each.f == "nemesis" else self.operations).append(each)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the lines of a file; Unreadable names the first that is none."""
        lines = []
        for number, row in enumerate(text.splitlines(), 1):
            try:
                line = json.loads(row)
            except ValueError as fault:
                raise Unreadable(f"line {number} is not JSON: {fault}") from None
            if not isinstance(line, Mapping) or not isinstance(line.get("f"), str):
                raise Unreadable(f"line {number} must be an object with f")
            request = line.get("ask") or {}
            if absent := [key for key in NEEDED.get(line["f"], ()) if key not in request]:
                raise Unreadable(f"line {number}: {line['f']} must have {' and '.join(absent)} in ask")
            lines.append(line)
        return cls(lines)

    def of(self, *kinds: str) -> list[Operation]:
        """Return the operations of these kinds."""
        return [each for each in self.operations if each.f in kinds]

    def final(self, kind: str) -> list[Operation]:
        """Return what was noted at the end, by each reader."""
        return self.finals.get(kind, [])

    @cached_property
    def answered(self) -> list[Operation]:
        """The operations that were answered."""
        return [each for each in self.operations if each.status is not None]

    @cached_property
    def attempts(self) -> list[Attempt]:
        """Each try to submit a job."""
        return [attempt for each in self.of("submit", "batch") for attempt in _attempts(each)]

    def stream(self, kind: str) -> dict[Any, list[Operation]]:
        """Return the lines of a kind by the stream that their numbers are of."""
        results: dict[Any, list[Operation]] = {}
        for each in self.final(kind):
            results.setdefault(each.ask.get("stream"), []).append(each)
        return results

    @cached_property
    def events(self) -> list[Mapping[str, Any]]:
        """The events of all streams, each as its first reader was told it."""
        return [event for readers in self.stream("final-events").values() for event in readers[0].answer]

    @cached_property
    def jobs(self) -> dict[str, Mapping[str, Any]]:
        """{id: job} as the first reader was told them."""
        return {job["id"]: job for each in self.final("final-jobs")[:1] for job in each.answer}

    @cached_property
    def paths(self) -> dict[str, list[Mapping[str, Any]]]:
        """{task: the data of its events, in their order}."""
        results: dict[str, list[Mapping[str, Any]]] = {}
        for event in self.events:
            if event["kind"] == "task":
                results.setdefault(event["data"]["task"], []).append(event["data"])
        return results

    @cached_property
    def tasks(self) -> dict[str, list[str]]:
        """{job: its tasks, as far as events name them}."""
        results: dict[str, list[str]] = {}
        for task in self.paths:
            results.setdefault(job_of(task), []).append(task)
        return results

    @cached_property
    def job_events(self) -> dict[str, list[Mapping[str, Any]]]:
        """{job: its events and those of its tasks, in their order}."""
        results: dict[str, list[Mapping[str, Any]]] = {}
        for event in self.events:
            if event["kind"] in ("job", "task"):
                data = event["data"]
                results.setdefault(data.get("job") or job_of(data["task"]), []).append(event)
        return results


def _attempts(each: Operation) -> Iterator[Attempt]:
    if each.f == "submit":
        job = each.answer.get("id") if isinstance(each.answer, Mapping) else None
        yield Attempt(each.ask.get("name", ""), each.ask.get("key"), each.outcome, job, each)
        return
    key = each.ask.get("key")
    parts = each.answer.get("answers", []) if each.outcome == DONE and isinstance(each.answer, Mapping) else []
    for at, request in enumerate(each.ask["jobs"]):
        answer = parts[at] if at < len(parts) else {}
        stated = each.outcome if each.outcome != DONE else outcome(answer.get("status"), answer)
        yield Attempt(request["name"], f"{key}/{at}" if key else None, stated, answer.get("id"), each)


def job_of(task: str) -> str:
    """Return the job of a task.

    >>> job_of("7f3a-2")
    '7f3a'
    """
    return task.rpartition("-")[0]


def state_of(tasks: Iterable[str]) -> str:
    """Return the state of a job whose tasks are in these states.

    >>> state_of(["COMPLETED", "RUNNING"]), state_of(["ASSIGNED"]), state_of(["COMPLETED", "TIMED_OUT"])
    ('RUNNING', 'WAITING', 'FAILED')
    """
    states = set(tasks)
    if states <= ENDED:
        return "FAILED" if states & {"FAILED", "TIMED_OUT"} else "CANCELED" if "CANCELED" in states else "COMPLETED"
    return "RUNNING" if states & (ENDED | BEGUN) else "WAITING"
