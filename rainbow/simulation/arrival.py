"""Jobs that arrive: from a trace in the Standard Workload Format, or from a server's own history.

What cannot be simulated is left out and counted, by reason: a job that ran no time, wanted no processor, or is a part
of another one (status 2 to 4). A line that is not of the format is a fault with its number.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from rainbow.errors import InputError
from rainbow.jobspec.yaml_reader import Limits, load

FIELDS = 18  # of a line
LARGEST = 1 << 30  # bytes of a trace, unpacked
PARTIAL = (2, 3, 4)  # statuses of parts of a checkpointed job

NO_RUN, NO_SLOTS, PART, NO_SUBMIT = "no run time", "no processors", "part of another job", "no submission time"
NO_LIMIT = "without a limit: the run time is taken"
NO_LENGTH = "never ran: a run time was drawn from jobs like it"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job as it is submitted, and how long it ran. `limit` 0: none. `jobspec` None: `slots` cores anywhere."""

    id: str
    submit: float
    slots: int
    run: float
    limit: float
    requestor: str = ""
    job_class: str = ""
    priority: int = 0
    cluster: str = ""  # where it ran
    account: str = ""
    qos: str = ""
    jobspec: str | Mapping[str, Any] | None = field(default=None, compare=False)
    runs: Mapping[int, float] = field(
        default_factory=dict
    )  # seconds of single tasks by index, where not all ran `run`

    def length(self, tasks: Iterable[int] = ()) -> float:
        """Return how long the longest of some tasks runs: at most the job's limit."""
        run = max((self.runs.get(task, self.run) for task in tasks), default=self.run)
        return min(run, self.limit or run)


# ── traces ──────────────────────────────────────────────────────────────────────────────────────────────────


def read_trace(path: Path, kind: str = "swf", notes: Counter[str] | None = None) -> Iterator[Arrival]:
    """Yield a trace's jobs by submission; InputError names the line that cannot be read.

    `notes` counts what was left out or assumed.
    """
    if kind != "swf":
        raise InputError(f"traces of kind {kind} cannot be read, only swf")
    counted, stored = Counter[str]() if notes is None else notes, list[Arrival]()
    try:
        for number, line in enumerate(_lines(path), start=1):
            text = line.strip()
            if text and not text.startswith(";") and (one := _arrival(_values(text, number), counted)):
                stored.append(one)
    except (gzip.BadGzipFile, zlib.error, EOFError) as fault:
        raise InputError(f"cannot be unpacked: {fault}; test it with gzip --test, or copy it again") from None
    return iter(_named(sorted(stored, key=lambda one: (one.submit, int(one.id)))))


def max_procs(path: Path) -> int:
    """Return the processors that a trace's header states, 0 if it states none."""
    for line in _lines(path):
        if result := re.match(r";\s*MaxProcs:\s*(\d+)", line):
            return int(result[1])
        if not line.startswith(";"):
            break
    return 0


def _lines(path: Path) -> Iterator[str]:
    size = 0
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for line in file:
            size += len(line)
            if size > LARGEST:
                raise InputError(f"more than {LARGEST:,} bytes, as many as are read")
            yield line.decode("latin-1")


def _values(text: str, number: int) -> list[float]:
    words = text.split()
    try:
        values = [float(word) for word in words]
    except ValueError:
        values = []
    if len(values) != FIELDS or not all(isfinite(value) for value in values):
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise InputError(f"line {number}: expected {FIELDS} numbers, got {shown!r}", line=number)
    return values


def _arrival(values: Sequence[float], notes: Counter[str]) -> Arrival | None:
    submit, run, slots = values[1], values[3], int(values[7] if values[7] > 0 else values[4])
    part = int(values[10]) in PARTIAL
    reasons = ((part, PART), (submit < 0, NO_SUBMIT), (run <= 0, NO_RUN), (slots <= 0, NO_SLOTS))
    left_out = next((reason for holds, reason in reasons if holds), "")
    if left_out:
        notes[left_out] += 1
        return None
    if values[8] <= 0:
        notes[NO_LIMIT] += 1
    limit = values[8] if values[8] > 0 else run
    user, queue, site = (str(int(values[k])) if values[k] >= 0 else "" for k in (11, 14, 15))
    return Arrival(str(int(values[0])), submit, slots, run, limit, user, queue, cluster=site)


def _named(arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    """Give each job an id of its own."""
    seen: Counter[str] = Counter()
    for one in arrivals:
        seen[one.id] += 1
        yield one if seen[one.id] == 1 else replace(one, id=f"{one.id}.{seen[one.id]}")


# ── a server's history ──────────────────────────────────────────────────────────────────────────────────────


def from_history(rows: Iterable[Mapping[str, Any]], notes: Counter[str] | None = None) -> Iterator[Arrival]:
    """Yield the jobs that a server shows (each with its tasks and jobspec) by submission.

    A job that never ran has no length: the median of its requestor's jobs, or of all, is taken for it.
    """
    counted = Counter[str]() if notes is None else notes
    results = [_of_row(row) for row in rows]
    lengths: dict[str, list[float]] = {}
    for one in results:
        if one.run > 0:
            lengths.setdefault(one.requestor, []).append(one.run)
            lengths.setdefault("", []).append(one.run)
    for one in sorted(results, key=lambda one: (one.submit, one.id)):
        known = lengths.get(one.requestor) or lengths.get("")
        if one.run > 0:
            yield one
        elif known is None:
            counted[NO_RUN] += 1
        else:
            counted[NO_LENGTH] += 1
            yield replace(one, run=median(known))


def _of_row(row: Mapping[str, Any]) -> Arrival:
    runs = {
        index: max(0.0, task["ended_at"] - task["started_at"])
        for index, task in enumerate(row.get("tasks", ()))
        if task.get("started_at") is not None and task.get("ended_at") is not None
    }
    jobspec = row["jobspec"]  # text, if it was submitted as text
    document = load(jobspec, Limits())[0] if isinstance(jobspec, str) else jobspec
    system = (document.get("attributes") or {}).get("system") or {}
    return Arrival(
        row["id"],
        float(row["submitted_at"]),
        max(1, len(row.get("tasks", ()))),
        max(runs.values(), default=0.0),
        0.0,
        row.get("requestor") or "",
        str(system.get("class") or ""),
        int(row.get("priority") or 0),
        row.get("cluster") or "",
        row.get("account") or "",
        row.get("qos") or "",
        jobspec,
        runs,
    )
