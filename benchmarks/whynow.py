"""Why not now, and what would start it sooner: what a trial of one change costs, and a list beside its plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.host import WHO, server
from benchmarks.timing import as_served, heading, once, row
from rainbow.scheduling import planner, policies
from rainbow.scheduling.sooner import LEAST, Trial, with_limit
from rainbow.service import Service
from rainbow.service.agents.protocol import accept, heartbeat, receive, record_events
from rainbow.service.clusters.registration import register
from rainbow.service.live_state.mirror import mirrored
from rainbow.service.placement.batch import Entry, submit_batch
from rainbow.service.placement.submission import Submission
from rainbow.service.queries.jobs import job_filter, listing
from rainbow.service.scheduler.step import step
from rainbow.service.scheduler.view import Frozen, take_snapshot

NODES, CORES, WAITING = 1_000, 16, 1_000
ASKED, RUNS = 30, 5


def whynow() -> None:
    """Print the processor time of a trial, of a list of 100 rows beside its plan, and of a full and a quiet plan."""
    heading("why not now, CPU ms", "policy", "trial", "most", "100 rows", "full plan", "quiet plan")
    for policy in ("load_based", "priority"):
        with _queue(policy) as service, as_served():
            with _frozen(service) as seen:
                trials = [*_trials(seen)]
                quiet, full = ([*_plans(seen, quiet=kind)] for kind in (True, False))
            rows = median(_listing(service) for _ in range(RUNS)) - median(full)
            results = (median(trials), max(trials), max(0.0, rows), median(full), median(quiet))
            row(policy, *(spent / 1e3 for spent in results))
    print("promised: a trial 20 ms, 100 rows 20 ms beside the plan, a full plan twice a quiet one")


def _trials(seen: Frozen) -> Iterator[float]:
    """Yield what it costs to plan jobs with a short limit; the first of a shape is not counted."""
    waiting = [*seen.mirror.census.jobs.values()][-ASKED:]
    for k, job in enumerate(waiting):
        trial = Trial(policies.get(seen.record.policy), seen.view, seen.rules, job)
        spent = once(lambda trial=trial, job=job: trial.starts(with_limit(job, LEAST)))  # type: ignore[misc]
        if k:
            yield spent


def _plans(seen: Frozen, *, quiet: bool) -> Iterator[float]:
    policy, view = policies.get(seen.record.policy), replace(seen.view, quiet=quiet)
    planner.plan(policy, view, seen.rules)
    for _ in range(RUNS):
        yield once(lambda: planner.plan(policy, view, seen.rules))


def _listing(service: Service) -> float:
    """Return what a list costs after something has happened, its plan included."""
    submit_batch(service, [Entry(WHO, Submission(jobspec=_spec("core", 2, 86_400)))], None)
    return once(lambda: listing(service, WHO, job_filter(WHO, {"state": "WAITING"}, None, 100)))


@contextmanager
def _frozen(service: Service) -> Iterator[Frozen]:
    with mirrored(service, service.catalogue["oak"]) as mirror:
        seen = take_snapshot(service, mirror)
        assert seen is not None
        yield seen


@contextmanager
def _queue(policy: str) -> Iterator[Service]:
    """Give a full cluster on which space is kept for a wide job, and many others wait."""
    with server() as service:
        answer = {"name": "oak", "graph": {"graph": _graph()}, "policy": {"name": policy}}
        register(service, WHO, answer)
        heartbeat(service, WHO, "oak", "a", None, [])
        _submit(service, _spec("node", 4, 3_600), 200)
        _run(service)
        _submit(service, _spec("node", NODES - 50, 3_600), 1)
        _submit(service, _spec("core", 2, 86_400), WAITING)
        step(service, "oak")
        yield service


def _submit(service: Service, spec: dict[str, Any], many: int) -> None:
    submit_batch(service, [Entry(WHO, Submission(jobspec=spec))] * many, None)


def _run(service: Service) -> None:
    """Start what fits, and let the agent say that it runs."""
    step(service, "oak")
    offers = receive(service, WHO, "oak", "a", 1_000, 0.0)["tasks"]
    taken = [{"id": offer["id"], "attempt": offer["attempt"]} for offer in offers]
    accept(service, WHO, "oak", "a", taken)
    started = [{"task": one["id"], "attempt": one["attempt"], "event": "started"} for one in taken]
    record_events(service, WHO, "oak", "a", started)


def _spec(kind: str, count: int, seconds: int) -> dict[str, Any]:
    return {
        "version": 1,
        "resources": {"w": {"type": kind, "count": count}},
        "tasks": [{"command": ["true"], "resources": "w"}],
        "attributes": {"system": {"duration": seconds}},
    }


def _graph() -> dict[str, Any]:
    kinds = {"c": {"type": "cluster"}, "n": {"type": "node", "count": NODES}, "k": {"type": "core", "count": CORES}}
    edges = [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}]
    return {"nodes": {key: {"metadata": data} for key, data in kinds.items()}, "edges": edges}
