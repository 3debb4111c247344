"""Metrics of this process and its siblings, in Prometheus' text format.

METRICS lists their names and meanings; a test compares it with the documentation. Counters and histograms are
prometheus-client's; what is counted at a scrape is written as gauges.
"""

from __future__ import annotations

import json
import operator
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
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
from prometheus_client.samples import Sample

from rainbow.service.core.memory import IMMUTABLE, Table, shared

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
    "rainbow_certificates_total": (
        "counter",
        "result",
        "Starts by their certificate: verified, refused, or none where vertices are not known",
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
        "Jobs that started inside, before or after the band of their first forecast (80 % are to be inside)",
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
    "rainbow_thread_failures_total": (
        "counter",
        "thread",
        "Threads of the server that ended by an exception, and were started again",
    ),
    "rainbow_clusters": ("gauge", "", "Registered clusters"),
    "rainbow_memory_entries": ("gauge", "memory", "Values in each memory that the server declares"),
    "rainbow_memory_hits": ("gauge", "memory", "Values that a table had, since the server began"),
    "rainbow_memory_misses": ("gauge", "memory", "Values that a table had not, or that were no longer true"),
    "rainbow_thread_cpu_seconds": ("gauge", "thread", "CPU that the threads of each kind have used since they began"),
}


def thread_seconds() -> dict[str, float]:
    """Return the CPU of the threads there are, by the kind that their names begin with (Linux)."""
    result: dict[str, float] = defaultdict(float)
    for one in threading.enumerate():
        with suppress(OSError):  # it has ended, or this is another system
            used = Path(f"/proc/self/task/{one.native_id}/schedstat").read_text().split()[0]
            result[one.name.partition("_")[0]] += int(used) / 1e9
    return result


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
    "rainbow_memory_entries": dict,
    "rainbow_memory_hits": dict,
    "rainbow_memory_misses": dict,
}


def count(name: str, label: str, amount: float = 1) -> None:
    """Add to a counter; `name` is without its _total."""
    _labeled(f"{name}_total", label).inc(amount)


def observe(name: str, label: str, seconds: float) -> None:
    """Add one time to a histogram; label "" of one that has no labels."""
    _labeled(name, label).observe(seconds)


class Labeled(
    Table[tuple[str, str], Any],
    name="labels",
    most=4_096,
    valid=IMMUTABLE,
    key="metric and label",
):
    """Samples of metrics by their label."""


_by_label = shared(Labeled)


def _labeled(name: str, label: str) -> Any:
    known = _by_label.get((name, label))
    if known is None:
        known = _by_label.put((name, label), _metrics[name].labels(label) if METRICS[name][1] else _metrics[name])
    return known


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
    result = GaugeMetricFamily(name, text, labels=list(labels))
    for values, value in rows:
        result.add_metric(values, value)
    return result


def _here() -> list[Metric]:
    """Return the metrics of this process."""
    read = {name: [((label,), value) for label, value in read().items()] for name, read in _gauges.items()}
    return [*REGISTRY.collect(), *_of_metrics(read)]


def _of_metrics(rows: Mapping[str, Iterable[Row]]) -> list[GaugeMetricFamily]:
    named = ((name, METRICS[name], of) for name, of in rows.items())
    return [family(name, text, filter(None, labels.split(",")), of) for name, (_, labels, text), of in named]


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one scrape reads."""

    metrics: Sequence[Metric]

    def collect(self) -> Sequence[Metric]:
        """Return each metric with its samples."""
        return self.metrics


def exposition(counted: Mapping[str, Iterable[Row]], figures: Iterable[GaugeMetricFamily] = ()) -> bytes:
    """Write the metrics of this process and its siblings, the gauges of METRICS that were counted, and figures."""
    here = _here() if _siblings is None else _siblings.summed()
    return generate_latest(Scrape([*here, *_of_metrics(counted), *figures]))


# ── several workers of one server ──

LIVES = 5.0  # seconds after which a worker has ended that has left no figures
LEAST = frozenset({"process_start_time_seconds", "rainbow_forecast_age_seconds"})  # of all workers, not the sum
Figures = dict[str, list[tuple[str, list[tuple[str, str]], float]]]  # metric → samples: name, labels, value


class Siblings:
    """The metrics of all workers: each leaves its own as a file, and the one that is asked adds them up.

    It leaves its own first and reads files alone, so that no counter ever falls, although another one was asked
    before. A worker counts from where the one before it in its place has ended.
    """

    def __init__(self, folder: Path, place: int) -> None:
        self._folder, self._mine = folder, folder / f"{place}.json"
        self._before: Figures = json.loads(self._mine.read_text()) if self._mine.exists() else {}
        self._writing = threading.Lock()

    def leave(self) -> None:
        """Leave the metrics of this process for the others."""
        with self._writing:
            whole = [_sum(each, [self._before] if each.type != "gauge" else [], each.samples) for each in _here()]
            answer = {
                each.name: [(one.name, [*one.labels.items()], one.value) for one in each.samples] for each in whole
            }
            new = self._mine.with_suffix(".new")
            new.write_text(json.dumps(answer))
            new.replace(self._mine)

    def summed(self) -> list[Metric]:
        """Return the metrics of all workers."""
        self.leave()
        files, since = [*self._folder.glob("*.json")], time.time() - LIVES
        every = [(file.stat().st_mtime >= since, json.loads(file.read_text())) for file in files]
        living = [answer for lives, answer in every if lives]
        return [_sum(each, living if each.type == "gauge" else [answer for _, answer in every]) for each in _here()]


def _sum(metric: Metric, figures: Iterable[Figures], more: Iterable[Sample] = ()) -> Metric:
    """Return a metric with the samples that were told of it, and more; those of the same name and labels as one."""
    values: dict[Any, float] = {}
    add = min if metric.name in LEAST else operator.add
    parts = [*(part for each in figures for part in each.get(metric.name, ()))]
    for name, labels, value in [*parts, *((one.name, one.labels.items(), one.value) for one in more)]:
        key = name, tuple(map(tuple, labels))
        values[key] = add(values[key], value) if key in values else value
    whole = Metric(metric.name, metric.documentation, metric.type)
    for (name, labels), value in values.items():
        whole.add_sample(name, dict(labels), value)
    return whole


_siblings: Siblings | None = None


def share(folder: str, place: int) -> None:
    """Add up from now on the metrics of all processes that share a folder, "" for none."""
    global _siblings
    _siblings = Siblings(Path(folder), place) if folder else None


def leave() -> None:
    """Leave the metrics of this process for its siblings, if there are any."""
    if _siblings is not None:
        _siblings.leave()
