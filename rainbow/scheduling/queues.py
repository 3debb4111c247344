"""The waiting jobs of one class in the order of their turns, and how far a round has come with each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from heapq import heapify, heappop, heappush

from rainbow.scheduling.policy import GangView, JobView, Wait

Turn = tuple[int, int, float, str, JobView]  # running, -priority, submitted, id


class Queue:
    """Whose turn it is: the job that runs least; ties by priority, submission, then id."""

    def __init__(self, jobs: list[JobView]) -> None:
        self.jobs = jobs
        self.stuck: dict[str, Wait] = {}  # why a job goes no further this round
        self.gangs = sum(len(job.gangs) for job in jobs)  # that wait and are not stuck
        self.tasks = sum(job.tasks for job in jobs)  # that wait
        self._next_gang: dict[str, int] = {}
        # ordered once: every start then costs the logarithm of the jobs
        self._heap = [_turn(job, job.running) for job in jobs if job.gangs]
        heapify(self._heap)

    def head(self) -> tuple[JobView, GangView] | None:
        """Return the next gang of the job whose turn it is."""
        if not self._heap:
            return None
        job = self._heap[0][-1]
        return job, job.gangs[self._next(job)]

    def advance(self) -> None:
        """Go on to the next gang of the job at the head, and to the job whose turn comes then."""
        running, *_, job = heappop(self._heap)
        started = job.gangs[self._next(job)]
        self._next_gang[job.id] = self._next(job) + 1
        self.gangs -= 1
        self.tasks -= len(started.tasks)
        if self._next(job) < len(job.gangs):
            heappush(self._heap, _turn(job, running + len(started.tasks)))

    def give_up(self, wait: Wait) -> None:
        """Leave the job at the head out of this round; say why it waits."""
        job = heappop(self._heap)[-1]
        self.stuck[job.id] = wait
        self.gangs -= len(job.gangs) - self._next(job)

    def upcoming(self) -> Iterator[tuple[JobView, GangView]]:
        """Yield what would come to the head, were everything started."""
        ahead = copy(self)
        ahead._next_gang, ahead._heap = dict(self._next_gang), list(self._heap)
        while (head := ahead.head()) is not None:
            yield head
            ahead.advance()

    def waiting(self, cost: Callable[[GangView], int], most: int) -> int:
        """Count the workers its gangs wait for, no further than `most`; a gang waits for one at least."""
        if self.gangs >= most:
            return most
        return min(most, sum(cost(gang) for *_, job in self._heap for gang in self.left(job)))

    def left(self, job: JobView) -> tuple[GangView, ...]:
        """Return the gangs of a job that still wait."""
        return job.gangs[self._next(job) :]

    def has_left(self, job: JobView) -> int:
        """Count the gangs of a job that still wait."""
        return len(job.gangs) - self._next(job)

    def in_order(self) -> Iterable[JobView]:
        """Return the jobs that still wait, the oldest first."""
        return sorted((job for job in self.jobs if self.has_left(job)), key=lambda job: (job.submitted, job.id))

    def _next(self, job: JobView) -> int:
        return self._next_gang.get(job.id, 0)


def _turn(job: JobView, running: int) -> Turn:
    return running, -job.priority, job.submitted, job.id, job
