"""What an outcome comes to: waits, responses, slowdown, utilization.

The first tenth of the jobs warms the clusters up and counts in no figure. A job that is shorter than ten seconds
counts as that long in a slowdown, so that such jobs do not rule it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from rainbow.simulation.simulate import Outcome, Ran

WARM = 0.1  # of the jobs
BOUND = 10.0  # seconds

NAMES = ("wait", "response", "slowdown", "p95_wait", "longest_wait", "utilization")


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of some jobs: seconds, a mean bounded slowdown, and a part of all cores."""

    jobs: int
    wait: float
    response: float
    slowdown: float
    p95_wait: float
    longest_wait: float
    utilization: float


def counted(outcome: Outcome) -> Sequence[Ran]:
    """Return the jobs that count: all but the first tenth by submission."""
    ran = sorted(outcome.ran, key=lambda one: (one.submit, one.id))
    return ran[int(len(ran) * WARM) :]


def slowdown(one: Ran) -> float:
    """Return a job's bounded slowdown."""
    return max(1.0, (one.end - one.submit) / max(one.end - one.start, BOUND))


def offered_load(outcome: Outcome) -> float:
    """Return what jobs need over the time in which they arrive, as a part of all cores."""
    submits = [one.submit for one in outcome.ran]
    span = max(submits, default=0.0) - min(submits, default=0.0)
    work = sum(one.cores * (one.end - one.start) for one in outcome.ran)
    return work / (outcome.cores * span) if span > 0 and outcome.cores else 0.0


def figures(outcome: Outcome) -> Figures:
    """Return the figures of an outcome."""
    return figures_of(counted(outcome), outcome)


def figures_of(jobs: Sequence[Ran], outcome: Outcome) -> Figures:
    """Return the figures of some jobs of an outcome; utilization is that of all jobs while these arrived."""
    if not jobs:
        return Figures(0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    waits = sorted(one.start - one.submit for one in jobs)
    return Figures(
        len(jobs),
        fmean(waits),
        fmean(one.end - one.submit for one in jobs),
        fmean(map(slowdown, jobs)),
        waits[min(len(waits) - 1, int(0.95 * len(waits)))],
        waits[-1],
        _utilization(outcome, jobs[0].submit, jobs[-1].submit),
    )


def _utilization(outcome: Outcome, begin: float, end: float) -> float:
    """Return which part of all cores is held from the first to the last of some submissions."""
    if not end > begin or not outcome.cores:
        return 0.0
    held = sum(one.cores * max(0.0, min(one.end, end) - max(one.start, begin)) for one in outcome.ran)
    return held / (outcome.cores * (end - begin))
