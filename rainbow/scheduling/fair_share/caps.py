"""The most shares a job can use now, whatever the cluster has free (DUCC's initJobCap).

    current     shares it holds and will keep
    base        what its work left and its own maximum allow
    projected   what it could use before new shares were ready, from its rate so far; None while unknown
    potential   base, lowered to what the projection allows but never below current
    cap         potential, held back while it initialises and by doubling

Ignorance never shrinks a job: without a rate there is no projection, and the rate says nothing about initialising.
DUCC lets an unknown rate send a running job back to its initialization cap.
See docs/design/fair-share-corrects-the-resource-manager.md.

A second bound is what the machines that a job may use could hold. How Much knows sizes and no names: without this
bound a job that names its machines is counted shares it can never have, and others are counted less.
"""

from __future__ import annotations

from math import floor
from statistics import fmean

from rainbow.scheduling.fair_share.model import Job, JobWork, Pool
from rainbow.scheduling.fair_share.settings import Growth


def job_cap(growth: Growth, load: JobWork, current: int, classic: bool = False) -> tuple[int, str]:
    """Say how many shares the job can use now, and what holds it there.

    >>> job_cap(Growth(initialization_cap=2), JobWork(most=8, items_left=100, initialising=True), 0)
    (2, 'initialization-cap')
    >>> job_cap(Growth(), JobWork(most=8, items_left=100), 3)
    (6, 'doubling')
    """
    if load.completed:
        return current, "completed"
    base, why = base_cap(load, current)
    initialising = load.initialising or (classic and load.time_per_item <= 0 and growth.initialization_cap > 0)
    potential = base
    estimate = projected(growth, load, current) if growth.use_prediction else None
    if estimate is not None and not initialising and estimate < base:
        potential, why = max(estimate, current), "prediction"
    if initialising:
        return _least(potential, growth.initialization_cap or potential, why, "initialization-cap")
    if not growth.expand_by_doubling:
        return potential, why
    if current == 0:
        return _least(base, max(1, growth.initialization_cap), why, "initialization-cap")
    return _least(potential, 2 * current, why, "doubling")


def _least(cap: int, limit: int, why: str, limited: str) -> tuple[int, str]:
    return (limit, limited) if limit < cap else (cap, why)


def base_cap(load: JobWork, current: int) -> tuple[int, str]:
    """Bound a job by its work left, though never below what it holds, and by its own maximum."""
    work = max(-(-load.items_left // max(1, load.threads)), current)
    most = current if load.most == -1 else max(0, load.most)
    return (most, "maximum") if most <= work else (work, "work-left")


def projected(growth: Growth, load: JobWork, current: int) -> int | None:
    """Predict the shares still of use once new ones had initialised; None if nothing is known.

    >>> projected(Growth(), JobWork(most=9, items_left=100, time_per_item=1000.0, init_times=(30000.0,)), 1)
    1
    """
    if load.time_per_item <= 0:
        return None
    target = (fmean(load.init_times) if load.init_times else 0.0) + growth.epoch + growth.prediction_fudge
    rate = current * load.threads / load.time_per_item
    done = min(target * rate, load.items_left)  # before flooring: a rate may be infinite
    future = max(0, load.items_left - floor(done + 0.5))
    return -(-future // max(1, load.threads)) or current


UNBOUNDED = 1 << 30


class Hosting:
    """Answers for one epoch; jobs of one nodepool, size and choice of machines have the same answer."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[Pool, bool], frozenset[str]] = {}
        self.known: dict[tuple[Pool, bool, frozenset[str], int], int] = {}

    def more(self, job: Job) -> int:
        """How many shares the job could have beside those that cannot be preempted; its own fair ones count again."""
        there = self._kinds(job)
        usable = there.intersection(job.amounts)
        if usable == there:
            return UNBOUNDED
        key = job.pool, job.cls.fair, usable, job.order
        if key not in self.known:
            self.known[key] = sum(
                max(0, m.order - sum(s.order for s in m.shares if not s.preemptable)) // job.order
                for pool in job.reach()
                for m in pool.machines
                if m.open and m.kind in usable
            )
        return self.known[key] - (job.held - job.settled if job.cls.fair else 0)

    def _kinds(self, job: Job) -> frozenset[str]:
        key = job.pool, job.cls.fair
        if key not in self.kinds:
            self.kinds[key] = frozenset(m.kind for pool in job.reach() for m in pool.machines if m.open)
        return self.kinds[key]
