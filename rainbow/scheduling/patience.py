"""Which jobs have waited in vain for longer than the patience: one rule for all policies.

    waits since   the job's submission, or the last start of one of its own tasks, whichever is later
    overdue       it has waited for longer than the patience; of each group (class, queue) the one that waited longest
    served        from when on the next job of a group may come first for its age

What a policy does for such a job is its own: it tries the job first, and keeps for it what it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from rainbow.scheduling.cluster_index import ClusterIndex
from rainbow.scheduling.interface import View, cluster_index_of
from rainbow.scheduling.snapshot import JobView

DAY = 86_400.0  # the patience of a policy whose settings say nothing
EVERY = 3_600.0  # seconds from one job of a group that comes first for its age to the next


@dataclass(frozen=True, slots=True)
class Overdue:
    """A job that has waited in vain for longer than the patience, the group it is the first of, and since when."""

    job: str
    group: str
    since: float


def overdue(
    view: View, seconds: float, served: Mapping[str, float], group_of: Callable[[JobView], str | None]
) -> list[Overdue]:
    """Return the overdue job of each group that may come first now, the one that has waited longest at first.

    `seconds`: the patience, 0: no job is overdue. `served`: from when on the next of a group may come first.
    `group_of`: None leaves a job out. Nothing is looked at before the oldest job can be overdue.
    """
    census = cluster_index_of(view)
    if seconds <= 0 or view.now - census.oldest < seconds:
        return []
    begun, oldest, result = _last_starts(census), inf, dict[str, Overdue]()
    for job in census.jobs.values():
        since = max(job.submitted, begun.get(job.id, 0.0))
        oldest = min(oldest, since)
        if view.now - since < seconds or (group := group_of(job)) is None:
            continue
        if group not in result or (since, job.id) < (result[group].since, result[group].job):
            result[group] = Overdue(job.id, group, since)
    census.oldest = oldest
    due = [one for one in result.values() if view.now >= served.get(one.group, -inf)]
    return sorted(due, key=lambda one: (one.since, one.group))


def waits_since(census: ClusterIndex, job: JobView) -> float:
    """Return since when a job waits in vain: its submission, or the last start of one of its own tasks."""
    return max([job.submitted, *(run.started for run in census.runs.values() if run.job == job.id)])


def for_ever(seconds: float | None, setting: str = "patience") -> Sequence[Mapping[str, Any]]:
    """Return the warning about settings under which no age brings a job to its turn.

    >>> for_ever(0)[0]["setting"], for_ever(60.0)
    ('patience', ())
    """
    return (
        ()
        if seconds
        else ({"pointer": f"/{setting}", "setting": setting, "text": f"without {setting} jobs may wait for ever"},)
    )


def _last_starts(census: ClusterIndex) -> dict[str, float]:
    """Return when a task of each waiting job started last; jobs of which none runs are left out."""
    result: dict[str, float] = {}
    for run in census.runs.values():
        if run.job in census.jobs:
            result[run.job] = max(result.get(run.job, 0.0), run.started)
    return result
