"""The waiting jobs of one class in the order of their turns, and how far a round has come with each.

line   the jobs of one requestor, which the census keeps in order; a round goes along it and changes nothing there
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count, repeat
from math import inf

from rainbow.scheduling.cluster_index import ClusterIndex, Turn
from rainbow.scheduling.interface import Wait
from rainbow.scheduling.snapshot import BEHIND_ALL, GangView, JobView

LAST = chr(0x10FFFF)  # after all ids of jobs
AGAIN = -1  # in place of a line: a job that has come to its turn before


class Queue:
    """Whose turn it is: the best account by fair share, then the job that runs least, priority, submission, id.

    The jobs of one requestor stand in one line, whichever of their accounts pays: the line comes when its first does.
    As in Scoot, `classic` puts a job that has started a task behind all that run as many by then.
    """

    def __init__(
        self,
        census: ClusterIndex,
        requestors: Iterable[str],
        factor: Callable[[JobView], float] | None = None,
        *,
        classic: bool = False,
    ) -> None:
        named = [requestor for requestor in requestors if requestor in census.queues]
        self._jobs, self._turn = census.jobs, census.turn
        self._lines = [census.queues[requestor].items() for requestor in named]
        self._limits = [census.limits[requestor] for requestor in named if requestor in census.limits]
        self._at = [0] * len(named)  # how far along each line
        self._factor = factor
        self._heap = [self._entry(line[0], k) for k, line in enumerate(self._lines)]
        heapify(self._heap)
        self.stuck: dict[str, Wait] = {}  # why a job goes no further this round
        self.left_out = 0  # jobs that go no further this round, those of which nothing more is said among them
        self.gangs = sum(census.gangs[requestor] for requestor in named)  # that wait and are not stuck
        self.tasks = sum(census.waiting[requestor] for requestor in named)  # that wait
        self._begun: dict[str, int] = {}  # gangs a job has started
        self._moved: dict[str, Turn] = {}  # of jobs that started a gang before their turn: when it comes now
        self._turns: dict[str, Turn] = {}  # of jobs that have come to their turn and still wait
        self._in_order: list[Turn] = []
        self._counted = -1, 0  # gangs that wait when what they wait for was counted, and that
        self._came = count(1) if classic else repeat(0)

    def _entry(self, now: Turn, line: int) -> tuple[float, Turn, int]:
        """Return a place in the heap: over-budget jobs last, then by fair share, then by turn."""
        job = self._jobs[now[-1]]
        rank = inf if job.priority <= BEHIND_ALL else -self._factor(job) if self._factor else 0.0
        return rank, now, line

    def head(self) -> tuple[JobView, GangView] | None:
        """Return the next gang of the job whose turn it is."""
        while self._heap:
            job = self._jobs[self._heap[0][1][-1]]
            if job.id in self._moved:
                self._put_back(job)
            elif job.id in self.stuck:
                self._turns[job.id] = self._pop()[0]
            else:
                return job, job.gangs[self._begun.get(job.id, 0)]
        return None

    def _put_back(self, job: JobView) -> None:
        """Let a job at the head come to its turn later, for it has started more than its place in the line says."""
        self._pop()
        later = self._moved.pop(job.id)
        if self.has_left(job):
            self._turns[job.id] = later
            heappush(self._heap, self._entry(later, AGAIN))

    def begin(self, job: JobView) -> None:
        """Note that the next gang of a job starts, though its turn has not come."""
        gang = job.gangs[self._next(job)]
        waited = self.stuck.pop(job.id, None)
        before = self._moved.get(job.id) or self._turns.get(job.id) or self._turn(job)
        self._begun[job.id] = self._next(job) + 1
        later = self._turn(job, before[0] - job.running + len(gang.tasks), next(self._came))
        self.tasks -= len(gang.tasks)
        if waited is None:
            self.gangs -= 1
            self._moved[job.id] = later
        elif self.has_left(job):
            self.stuck[job.id] = waited
        if self._turns.pop(job.id, None) and self.has_left(job):
            self._turns[job.id] = later

    def leave_out(self, job: JobView, wait: Wait) -> None:
        """Leave a job out of this round, though its turn has not come; say why it waits."""
        self.stuck[job.id] = wait
        self.left_out += 1
        self.gangs -= len(job.gangs) - self._next(job)

    def advance(self) -> None:
        """Move to the next gang of the job at the head, and to the job whose turn comes then."""
        rank, now, line = self._heap[0]
        job = self._jobs[now[-1]]
        k = self._begun.get(job.id, 0)
        tasks = len(job.gangs[k].tasks)
        self._begun[job.id] = k + 1
        self.gangs -= 1
        self.tasks -= tasks
        if k + 1 == len(job.gangs):
            self._pop()
            return
        later = now[0] + tasks, next(self._came), now[2], now[3], now[4]
        if line == AGAIN:
            heapreplace(self._heap, (rank, later, AGAIN))
        else:
            self._pop()
            heappush(self._heap, (rank, later, AGAIN))
        self._turns[job.id] = later

    def give_up(self, wait: Wait | None) -> None:
        """Leave the job at the head out of this round; say why it waits, unless another one like it was told."""
        now, job = self._pop()
        self._turns[job.id] = now
        if wait is not None:
            self.stuck[job.id] = wait
        self.left_out += 1
        self.gangs -= len(job.gangs) - self._next(job)

    def _pop(self) -> tuple[Turn, JobView]:
        _, now, line = heappop(self._heap)
        self._turns.pop(now[-1], None)
        if line != AGAIN:
            self._at[line] += 1
            if self._at[line] < len(self._lines[line]):
                heappush(self._heap, self._entry(self._lines[line][self._at[line]], line))
        return now, self._jobs[now[-1]]

    def upcoming(self) -> Iterator[tuple[JobView, GangView]]:
        """Yield what would come to the head, were everything started."""
        ahead = copy(self)
        ahead._begun, ahead._turns, ahead._moved = dict(self._begun), dict(self._turns), dict(self._moved)
        ahead._heap, ahead._at, ahead._came = list(self._heap), list(self._at), copy(self._came)
        while (head := ahead.head()) is not None:
            yield head
            ahead.advance()

    def waiting(self, cost: Callable[[GangView], int], most: int) -> int:
        """Count the workers its gangs wait for, no further than `most`; a gang waits for one at least."""
        if self.gangs >= most:
            return most
        if self._counted[0] != self.gangs:
            self._counted = self.gangs, sum(cost(gang) for job in self._waiting() for gang in self.left(job))
        return min(most, self._counted[1])

    def _waiting(self) -> Iterator[JobView]:
        """Yield the jobs that are not stuck."""
        for _, now, line in self._heap:
            places = range(0)
            if line != AGAIN:
                places = range(self._at[line] + 1, len(self._lines[line]))
            names = (now[-1], *(self._lines[line][k][-1] for k in places))
            yield from (self._jobs[name] for name in names if name not in self.stuck)

    def in_turn_within(self, seconds: float, most: int) -> Iterator[JobView]:
        """Yield the jobs in order of their turns whose time limit is no longer; of very many the shortest."""
        turns: list[Turn] = []
        for limits in self._limits:
            rows = limits.items()
            own = [self._jobs[name] for _, name in rows[: bisect_right(rows, (seconds, LAST))][:most]]
            turns += [self._turns.get(job.id) or self._moved.get(job.id) or self._turn(job) for job in own]
        for now in sorted(turns):
            if self.has_left(job := self._jobs[now[-1]]):
                yield job

    def next_of(self, job: JobView) -> GangView:
        """Return the gang of a job that would start next."""
        return job.gangs[self._next(job)]

    def left(self, job: JobView) -> Iterator[GangView]:
        """Yield the gangs of a job that still wait."""
        return (job.gangs[k] for k in range(self._next(job), len(job.gangs)))

    def has_left(self, job: JobView) -> bool:
        """Return whether a gang of a job still waits."""
        return self._next(job) < len(job.gangs)

    def ahead(self, job: JobView) -> int:
        """Count the jobs whose turn comes before that of a job, when the round is over."""
        now = self._turns.get(job.id) or self._turn(job)
        if len(self._in_order) != len(self._turns):
            self._in_order = sorted(self._turns.values())
        unseen = (bisect_left(line, now) - at for line, at in zip(self._lines, self._at, strict=True))
        return bisect_left(self._in_order, now) + sum(max(0, number) for number in unseen)

    def _next(self, job: JobView) -> int:
        return self._begun.get(job.id, 0)
