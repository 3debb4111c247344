"""Counters and histograms of this process, for /metrics.

METRICS lists their names and meanings; a test compares it with the documentation.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METRICS = {
    "rainbow_requests_total": ("counter", "status", "Requests answered, by status"),
    "rainbow_submits_total": (
        "counter",
        "outcome",
        "Jobs submitted, by outcome: placed, unplaced, or the code of the refusal",
    ),
    "rainbow_matches_total": (
        "counter",
        "verdict",
        "Clusters matched with a jobspec: matched, undecided, why not, or refused where that was not worked out",
    ),
    "rainbow_phase_seconds": ("histogram", "phase", "Time of a submit's phases: parse, match, select, store, answer"),
    "rainbow_phase_cpu_seconds": (
        "histogram",
        "phase",
        "CPU of a submit's phases, of the thread that carries them out",
    ),
    "rainbow_step_seconds": (
        "histogram",
        "outcome",
        ("Duration of scheduling cycles, by outcome: ordered, idle or failed"),
    ),
    "rainbow_step_faults_total": ("counter", "cluster", "Scheduling steps that failed"),
    "rainbow_forecast_seconds": (
        "histogram",
        "outcome",
        "CPU of forecasts of a cluster, by outcome: made or failed",
    ),
    "rainbow_forecast_age_seconds": ("gauge", "cluster", "Seconds since a cluster's last forecast"),
    "rainbow_forecast_ratio": (
        "histogram",
        "",
        "Actual over expected wait of jobs that started, a minute added to both",
    ),
    "rainbow_forecast_covered_total": (
        "counter",
        "band",
        "Jobs that started inside, before or after the band of their first forecast (8 in 10 are to be inside)",
    ),
    "rainbow_promises_broken_total": ("counter", "why", "Promised starts that were not kept, by reason"),
    "rainbow_store_seconds": (
        "histogram",
        "kind",
        "Duration of database operations: read, write (including lock wait) and commit (part of write)",
    ),
    "rainbow_jobs_unplaced": ("gauge", "", "Jobs that wait for a cluster to take them"),
    "rainbow_jobs": ("gauge", "cluster,state", "Jobs that have not ended"),
    "rainbow_tasks": ("gauge", "cluster,state", "Tasks that have not ended: waiting, or holding workers"),
    "rainbow_workers": ("gauge", "cluster,state", "Workers by state"),
    "rainbow_connections": ("gauge", "kind", "Open connections: with a known credential, of strangers, or set aside"),
    "rainbow_steps_overdue": ("gauge", "cluster", "Seconds that a step has taken which does not come back"),
    "rainbow_clusters": ("gauge", "", "Registered clusters"),
    "rainbow_thread_cpu_seconds": ("gauge", "thread", "CPU that the threads of each kind have used since they began"),
}


def thread_seconds() -> dict[str, float]:
    """Return the CPU of the threads there are, by the kind that their names begin with (Linux)."""
    found: dict[str, float] = defaultdict(float)
    for one in threading.enumerate():
        with suppress(OSError):  # it has ended, or this is another system
            used = Path(f"/proc/self/task/{one.native_id}/schedstat").read_text().split()[0]
            found[one.name.partition("_")[0]] += int(used) / 1e9
    return found


_lock = threading.Lock()
_gauges: dict[str, Callable[[], Mapping[str, float]]] = {  # name → {label: value now}
    "rainbow_connections": dict,
    "rainbow_steps_overdue": dict,
    "rainbow_forecast_age_seconds": dict,
    "rainbow_thread_cpu_seconds": thread_seconds,
}
_counters: dict[tuple[str, str], float] = {}
_histograms: dict[tuple[str, str], list[float]] = {}  # a count for each bucket, all, and the sum


def count(name: str, label: str, amount: float = 1) -> None:
    """Add to a counter; `name` is without its _total."""
    with _lock:
        key = (f"{name}_total", label)
        _counters[key] = _counters.get(key, 0) + amount


def observe(name: str, label: str, seconds: float) -> None:
    """Add one time to a histogram."""
    with _lock:
        row = _histograms.setdefault((name, label), [0.0] * (len(BUCKETS) + 2))
        row[bisect_left(BUCKETS, seconds)] += 1
        row[-1] += seconds


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Observe a phase of a submit: how long it takes, and what of that is work."""
    start, cpu = time.perf_counter(), time.thread_time()
    try:
        yield
    finally:
        observe("rainbow_phase_seconds", name, time.perf_counter() - start)
        observe("rainbow_phase_cpu_seconds", name, time.thread_time() - cpu)


def gauge(name: str, read: Callable[[], Mapping[str, float]]) -> None:
    """Let a gauge be read now and later: {label: value}."""
    _gauges[name] = read


def gauges_here() -> dict[str, list[tuple[tuple[str, ...], float]]]:
    """Return {name: its labels and values} of the gauges of this process."""
    return {name: [((label,), value) for label, value in read().items()] for name, read in _gauges.items()}


def counters() -> dict[tuple[str, str], float]:
    """Return {(name, label): value}."""
    with _lock:
        return dict(_counters)


def histograms() -> dict[tuple[str, str], list[float]]:
    """Return {(name, label): a count for each bucket, one for what is above them all, and the sum}."""
    with _lock:
        return {key: list(row) for key, row in _histograms.items()}
