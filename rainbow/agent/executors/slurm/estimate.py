"""What a Slurm says of waiting there → the variables that selection reads. Pure: text in, numbers out.

    expected_wait_N      seconds until a job of N cores would start (N = 1, 2, 4, ..., all of them), as Slurm plans
    expected_wait_low    the same for one core
    expected_wait_high   the most of that and of the time in which all cores work off what is queued
    expected_wait        the middle of both; selection reads the one of the job's own size
    cores_free, cores_taken, nodes_free, pending_jobs, pending_core_seconds

What is not known is left out: it is not 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

SIZE = "expected_wait_{}"
PLANNED = re.compile(r"Job \d+ to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")
CORES = "%C"  # of sinfo: allocated/idle/other/total
PENDING = "%C|%l"  # of squeue: cores and limit
LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


def sizes(cores: int) -> list[int]:
    """Return the sizes of job that are asked about.

    >>> sizes(12)
    [1, 2, 4, 8, 12]
    """
    found = [1 << k for k in range(max(cores, 1).bit_length()) if 1 << k <= cores]
    return found if not found or found[-1] == cores else [*found, cores]


def planned(said: str, now: datetime) -> float | None:
    """Return in how many seconds a job would start, by what `sbatch --test-only` says; None: it does not say.

    >>> planned("sbatch: Job 12 to start at 2026-11-22T17:30:30 using 1 processors", datetime(2026, 11, 22, 17, 30))
    30.0
    """
    found = PLANNED.search(said)
    return max(0.0, (datetime.fromisoformat(found[1]) - now).total_seconds()) if found else None


def cores(said: str) -> tuple[int, int, int]:
    """Return the cores that are free, taken, and in all, by what `sinfo -o CORES` says of each group of nodes."""
    rows = [[int(part) for part in line.split("/")] for line in said.split() if re.fullmatch(r"\d+(/\d+){3}", line)]
    taken, free, _, whole = (sum(row[k] for row in rows) for k in range(4)) if rows else (0, 0, 0, 0)
    return free, taken, whole


def backlog(said: str) -> tuple[int, float | None]:
    """Return how many jobs wait, and for how many core-seconds at most; None where one has no limit.

    >>> backlog("4|1:00:00\\n2|30:00\\n"), backlog("1|UNLIMITED\\n")
    ((2, 18000.0), (1, None))
    """
    rows = [line.partition("|")[::2] for line in said.split() if line.partition("|")[0].isdecimal()]
    limits = [_seconds(limit) for _, limit in rows]
    if None in limits:
        return len(rows), None
    return len(rows), float(sum(int(count) * (limit or 0) for (count, _), limit in zip(rows, limits, strict=True)))


def _seconds(limit: str) -> int | None:
    found = LIMIT.fullmatch(limit)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def variables(
    waits: Mapping[int, float | None], counted: tuple[int, int, int], queued: tuple[int, float | None]
) -> dict[str, float]:
    """Return the variables; `waits` are {cores: seconds}.

    >>> variables({1: 0.0, 2: None}, (1, 1, 2), (1, 60.0))["expected_wait_high"]
    30.0
    """
    free, taken, whole = counted
    jobs, work = queued
    told: dict[str, float] = {"cores_free": free, "cores_taken": taken, "pending_jobs": jobs}
    if work is not None:
        told["pending_core_seconds"] = work
    known = {size: wait for size, wait in waits.items() if wait is not None}
    told |= {SIZE.format(size): wait for size, wait in known.items()}
    if known:
        low = known[min(known)]
        high = max(low, work / whole) if work is not None and whole else low
        told |= {"expected_wait_low": low, "expected_wait_high": high, "expected_wait": (low + high) / 2}
    return told


def questions(total: int) -> Iterable[tuple[int, tuple[str, ...]]]:
    """Yield (cores, command) for every size: when would a job of an hour start that is not submitted?"""
    for size in sizes(total):
        yield size, ("sbatch", "--test-only", f"--ntasks={size}", "--time=60", "--output=/dev/null", "--wrap=true")
