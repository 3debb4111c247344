"""One message of an agent: its tasks are read together, changed in its order, and written together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rainbow.cache import cached_property
from rainbow.errors import RequestError
from rainbow.service.core.limits import limits_of
from rainbow.state_machine import Task
from rainbow.store import clusters, jobs, statistics, tasks
from rainbow.store.statistics import Ran

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.store.jobs import JobRecord


class UnitOfWork:
    """`tasks` by id, as they are after what the message has said of them so far; `references` name them by `key`."""

    def __init__(
        self, connection: sa.Connection, cluster_id: str, references: Sequence[Mapping[str, Any]], key: str
    ) -> None:
        self.connection, self.cluster_id = connection, cluster_id
        self.tasks = tasks.get(connection, cluster_id, dict.fromkeys(_names(references, key)))
        self._changed: dict[str, Task] = {}
        self._jobs: dict[str, JobRecord | None] = {}
        self._accepted: set[str] = set()
        self.ran: list[Ran] = []  # tasks that have ended as they should, or at their limit

    @cached_property
    def limits(self) -> Mapping[str, int]:
        """The cluster's limits."""
        return limits_of(clusters.limits(self.connection, self.cluster_id))

    def job(self, job_id: str) -> JobRecord | None:
        """Return a job, read once."""
        if job_id not in self._jobs:
            self._jobs[job_id] = jobs.get(self.connection, job_id)
        return self._jobs[job_id]

    def put(self, task: Task) -> None:
        """Change a task."""
        self.tasks[task.id] = self._changed[task.id] = task

    def has_accepted(self, job_id: str) -> None:
        """Note that the cluster has a job: from now on it is not in its free nodes."""
        job = self.job(job_id)
        if job and job.accepted_clock is None and job_id not in self._accepted:
            self._accepted.add(job_id)
            jobs.change(self.connection, job_id, accepted_clock=clusters.tick(self.connection, self.cluster_id))

    def write(self, now: float) -> None:
        """Store what was changed."""
        tasks.save_all(self.connection, list(self._changed.values()), now)
        if self.ran:
            statistics.learn(self.connection, self.cluster_id, self.ran, now)


def _names(references: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    for k, reference in enumerate(references):
        named = isinstance(reference, Mapping) and isinstance(reference.get(key), str)
        if not named or not isinstance(reference.get("attempt"), (int, float)):  # 1.0 is an integer of JSON Schema
            raise RequestError(f"a task is named by {key} and attempt", pointer=f"/{k}")
    return [reference[key] for reference in references]
