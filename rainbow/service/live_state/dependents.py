"""Jobs that wait for other jobs or for a time, and which of them a change concerns.

here      of a job that is waited for: it is live at this cluster, and its changes are seen
foreign   it is not; it is looked up at every step
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from rainbow.scheduling.dependencies import BEGIN, Target, awaited
from rainbow.service.jobs.dependencies import targets_of, wait_of

if TYPE_CHECKING:
    from rainbow.scheduling import Wait
    from rainbow.service.live_state.live_job import LiveJob


class Dependents:
    """The jobs that have dependencies, by what they wait for."""

    def __init__(self) -> None:
        self.jobs: dict[str, LiveJob] = {}
        self._waiters: dict[str, set[str]] = {}  # job that is waited for → who waits
        self._open: Counter[str] = Counter()  # the same, how many of whom it is not met
        self._unmet: set[str] = set()
        self._new: set[str] = set()
        self._timed: set[str] = set()

    def add(self, job: LiveJob) -> None:
        """Take note of a job that is new here."""
        if not job.dependencies:
            return
        job_id = job.record.id
        self.jobs[job_id] = job
        self._new.add(job_id)
        for target in targets_of(job.dependencies):
            self._waiters.setdefault(target, set()).add(job_id)
        if any(one.scheme == BEGIN for one in job.dependencies):
            self._timed.add(job_id)
        self._mark(job_id, unmet=True)

    def drop(self, job_id: str) -> None:
        """Forget a job that has ended."""
        if job_id not in self.jobs:
            return
        self._mark(job_id, unmet=False)
        for target in targets_of(self.jobs.pop(job_id).dependencies):
            self._waiters[target].discard(job_id)
            if not self._waiters[target]:
                del self._waiters[target]
        self._new.discard(job_id)
        self._timed.discard(job_id)

    def _mark(self, job_id: str, *, unmet: bool) -> None:
        if unmet == (job_id in self._unmet):
            return
        (self._unmet.add if unmet else self._unmet.discard)(job_id)
        for target in targets_of(self.jobs[job_id].dependencies):
            self._open[target] += 1 if unmet else -1
            if not self._open[target]:
                del self._open[target]

    def foreign(self, here: Mapping[str, LiveJob]) -> set[str]:
        """Name the jobs that others wait for and that are not live here."""
        return self._open.keys() - here.keys()

    def affected(self, changed: Iterable[str]) -> set[str]:
        """Name the jobs to be looked at again after these have changed."""
        found = self._new | (self._timed & self._unmet)
        self._new = set()
        for target in changed:
            found |= self._waiters.get(target, set())
        return found

    def look(self, job_id: str, find: Callable[[str], Target | None], now: float) -> str:
        """Look at what a job waits for; say which of it can never come, if any."""
        job = self.jobs[job_id]
        found = awaited(job.dependencies, find, now)
        job.unmet = found if found.waits or found.never or found.until is not None else None
        self._mark(job_id, unmet=job.unmet is not None)
        return found.never

    def restless(self, here: Mapping[str, LiveJob]) -> bool:
        """Return whether something is waited for that nobody will tell of: a time, or a job of another cluster."""
        return bool(self._timed & self._unmet) or bool(self.foreign(here))

    def wait_of(self, job: LiveJob) -> Wait | None:
        """Say why a job waits."""
        return wait_of(job.record.id, job.unmet) if job.unmet is not None and not job.unmet.never else None
