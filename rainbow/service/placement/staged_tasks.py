"""The tasks of a large job, stored piece by piece before there is the job: they become visible with it, all at once.

stage    in short transactions, between which others write, under a row that is no job yet (store/jobs.py)
become   the submit's own transaction makes the job of that row (jobs.add)
discard  what no job was made of goes in pieces too: after a refusal, or when a server was killed meanwhile
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from rainbow.errors import Unavailable
from rainbow.store import jobs, tasks

if TYPE_CHECKING:
    from rainbow.service.core.service import Service
    from rainbow.state_machine import Task


LARGE = 2_000  # tasks of a job that are stored in one transaction
REST = 0.01  # seconds between two pieces, in which others write
STALE = 60.0  # seconds without another piece after which nobody stores it any more
SWEEP = 0.1  # seconds of a look for what is stale


@dataclass(frozen=True, slots=True)
class Staged:
    """A job to be, and for which cluster and account its tasks are stored."""

    job: str
    cluster_id: str
    account: str


def stage(service: Service, to_be: Staged, new: Iterator[Task]) -> Staged:
    """Store the tasks of a job to be, a limited number in each transaction."""
    with service.store.write() as connection:
        jobs.begin_staged(connection, to_be.job, service.clock())
    while piece := list(islice(new, LARGE)):
        sleep(REST)
        with service.store.write() as connection:
            if not jobs.touch_staged(connection, to_be.job, service.clock()):
                raise Unavailable(
                    "the store forgot a large job while its tasks were stored; try again", retry_after=1
                )
            tasks.add(connection, to_be.cluster_id, piece)
    return to_be


def discard(service: Service, job_id: str, seconds: float = float("inf")) -> None:
    """Forget the tasks of a job that is not to be, for so long; `sweep` forgets the rest."""
    until, remaining = perf_counter() + seconds, True
    while remaining and perf_counter() < until:
        with service.store.write() as connection:
            remaining = jobs.remove_staged(connection, job_id, LARGE)
        sleep(REST if remaining else 0.0)


def sweep(service: Service) -> None:
    """Forget what a server stored that was killed before there was the job."""
    with service.store.read() as connection:
        results = jobs.older_staged(connection, service.clock() - STALE)
    for job_id in results[:1]:
        discard(service, job_id, SWEEP)
