"""Why jobs wait after a plan: those the plan names, and the rest, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rainbow.scheduling.census import Census, census_of
from rainbow.scheduling.policy import Plan, Start, View, Wait


def started(census: Census, plan: Plan) -> Counter[str]:
    """Count the tasks of each job that a plan starts."""
    gangs = (census.gang_of(order.task) for order in plan.orders if isinstance(order, Start))
    return Counter(gang.job for gang in gangs if gang is not None)


def left(census: Census, job: str, begun: Counter[str]) -> int:
    """Count the tasks of a job that still wait after a plan that starts so many."""
    return census.jobs[job].tasks - begun[job]


def every_wait(view: View, plan: Plan) -> Iterator[Wait]:
    """Say of every job that still waits why it does."""
    census, named = census_of(view), {wait.job for wait in plan.waits}
    yield from plan.waits
    if plan.rest is not None:
        begun = started(census, plan)
        for job in view.jobs:
            if job.id not in named and left(census, job.id, begun) > 0:
                yield plan.rest.of(job.id)
