"""Metrics of this process, in Prometheus' text format.

METRICS lists their names and meanings; a test compares it with the documentation. Counters and histograms are
prometheus-client's; what is counted at a scrape is written as gauges.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METRICS = {  # name → kind, labels, meaning
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


Row = tuple[tuple[str, ...], float]  # the values of its labels, and its own
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
disable_created_metrics()  # type: ignore[no-untyped-call]  # each name would have a second gauge
_KINDS: Mapping[str, Callable[..., Any]] = {"counter": Counter, "histogram": partial(Histogram, buckets=BUCKETS)}
_metrics = {
    name: _KINDS[kind](name, text, label.split(), registry=REGISTRY)
    for name, (kind, label, text) in METRICS.items()
    if kind in _KINDS
}
_gauges: dict[str, Callable[[], Mapping[str, float]]] = {  # name → {label: value now}
    "rainbow_connections": dict,
    "rainbow_steps_overdue": dict,
    "rainbow_forecast_age_seconds": dict,
    "rainbow_thread_cpu_seconds": thread_seconds,
}


def count(name: str, label: str, amount: float = 1) -> None:
    """Add to a counter; `name` is without its _total."""
    _labeled(f"{name}_total", label).inc(amount)


def observe(name: str, label: str, seconds: float) -> None:
    """Add one time to a histogram; label "" of one that has no labels."""
    _labeled(name, label).observe(seconds)


@lru_cache(maxsize=4_096)  # the client checks each label again
def _labeled(name: str, label: str) -> Any:
    return _metrics[name].labels(label) if METRICS[name][1] else _metrics[name]


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


def family(name: str, text: str, labels: Iterable[str], rows: Iterable[Row]) -> GaugeMetricFamily:
    """Make a gauge of the values that it has now."""
    found = GaugeMetricFamily(name, text, labels=list(labels))
    for values, value in rows:
        found.add_metric(values, value)
    return found


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one scrape reads: the metrics of this process, and gauges that are counted for it."""

    gauges: Sequence[GaugeMetricFamily]

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its samples."""
        yield from REGISTRY.collect()
        yield from self.gauges


def exposition(counted: Mapping[str, Iterable[Row]], figures: Iterable[GaugeMetricFamily] = ()) -> bytes:
    """Write the metrics of this process, the gauges of METRICS that were counted, and figures."""
    here = {name: [((label,), value) for label, value in read().items()] for name, read in _gauges.items()}
    gauges = [
        family(name, METRICS[name][2], filter(None, METRICS[name][1].split(",")), rows)
        for name, rows in {**counted, **here}.items()
    ]
    return generate_latest(Scrape([*gauges, *figures]))
