"""The line of gangs that waited longer than the patience, and what a round reserves for the first.

    line   jobs that came to their turn after the patience was over and could not start, one of a class at most; the
           next gang of the first one has what it needs reserved before anything else starts
           a job that has waited in vain for a day joins it too (rainbow/scheduling/patience.py)
    loan   what a gang holds beyond its class's target since it started so
    debt   a class pays a loan back by leaving the line for as long as the loan would last at the size of its target

A round reads all this from its memory and leaves the next round's. Only jobs that still wait stay in the line.

    end       when a task must have ended by its limit; never for one without a limit
    soonest   the workers that a gang can have first, those that are free before those whose tasks end
    at        when all of them are free at the latest; what ends before may use them meanwhile
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from rainbow.scheduling.cluster_index import ClusterIndex
from rainbow.scheduling.patience import Overdue
from rainbow.scheduling.snapshot import GangView, JobView, Placement, RunView

Amounts = Mapping[str, int]


@dataclass(slots=True, eq=False)
class Reserved:
    """Workers, or parts of them, that a round holds back for one gang; `units` of the policy's unit in all."""

    job: JobView
    gang: GangView
    owner: str = ""  # the class it is counted for
    parts: dict[str, Amounts] = field(default_factory=dict)  # by worker; whole workers: of nothing in particular
    outside: Amounts = field(default_factory=dict)  # cluster-wide resources
    units: int = 0
    at: float = inf
    floats: list[int] = field(default_factory=list)  # what is kept of its parts, see Free.keep
    located: tuple[Any, ...] = ()  # where the gang will lie
    vertices: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what of that is free and kept, by worker
    after: str = ""  # the job whose end makes it fit


class Ends:
    """When what runs must have ended: by worker, and of what is cluster-wide."""

    def __init__(self, census: ClusterIndex, now: float) -> None:
        self.now = now
        self._by_worker: dict[str, list[tuple[float, Amounts]]] = {}
        for run in census.runs.values():
            self.add(run.placement, _end(run, now))

    def add(self, placement: Placement, end: float) -> None:
        """Note a task that starts in this round."""
        for worker, amounts in placement.items():
            self._by_worker.setdefault(worker, []).append((end, amounts))

    def idle_at(self, worker: str) -> float:
        """Return when nothing runs on a worker any more."""
        return max((end for end, _ in self._by_worker.get(worker, ())), default=self.now)

    def room_at(self, worker: str, free: Amounts, requirement: Amounts) -> float:
        """Return when a worker ("": the cluster outside of all) has so much free."""
        lacking = {kind: amount - free.get(kind, 0) for kind, amount in requirement.items()}
        lacking = {kind: amount for kind, amount in lacking.items() if amount > 0}
        for end, amounts in sorted(self._by_worker.get(worker, ()), key=lambda one: one[0]) if lacking else ():
            lacking = {kind: amount - amounts.get(kind, 0) for kind, amount in lacking.items()}
            lacking = {kind: amount for kind, amount in lacking.items() if amount > 0}
            if not lacking:
                return end
        return inf if lacking else self.now


def _end(run: RunView, now: float) -> float:
    """Return when a task must have ended; one that is being stopped, or is overdue, may end at any moment."""
    return now if run.stopping else max(run.until, now) if run.until else inf


def next_end(runs: Iterable[RunView], now: float) -> float:
    """Return when the first of some tasks must have ended."""
    return min((_end(run, now) for run in runs), default=inf)


@dataclass
class Patience:
    """The line, the loans and the debts of one cluster. `seconds`: how long a gang waits before it joins the line."""

    seconds: float
    now: float
    line: dict[str, str] = field(default_factory=dict)  # class → job, the first one first
    loans: list[dict[str, Any]] = field(default_factory=list)  # {job, gang, class, beyond, target, since}
    debts: dict[str, float] = field(default_factory=dict)  # class → when it has paid
    served: dict[str, float] = field(default_factory=dict)  # class → when its next job may join for its age

    @classmethod
    def of(cls, seconds: float, now: float, memory: Mapping[str, Any], census: ClusterIndex) -> Patience:
        """Read a memory: loans whose gangs have ended become debts."""
        line = {name: job for name, job in memory.get("line", ()) if job in census.jobs}
        debts = {name: until for name, until in memory.get("debts", {}).items() if until > now}
        served = {name: until for name, until in memory.get("served", {}).items() if until > now}
        made = cls(seconds, now, line, list(memory.get("loans", ())), debts, served)
        if made.loans:
            made._settle({(run.job, run.gang) for run in census.runs.values()})
        return made

    def _settle(self, running: set[tuple[str, int]]) -> None:
        ended = [loan for loan in self.loans if (loan["job"], loan["gang"]) not in running]
        self.loans = [loan for loan in self.loans if loan not in ended]
        for loan in ended:
            lasted = max(0.0, self.now - loan["since"]) * loan["beyond"] / max(1, loan["target"])
            if lasted > 0:
                self.debts[loan["class"]] = max(self.debts.get(loan["class"], self.now), self.now) + lasted

    def due(self, job: JobView, name: str) -> float:
        """Return when a job that waits in vain may join the line."""
        return max(job.submitted + self.seconds, self.debts.get(name, 0.0))

    def owes(self, name: str) -> bool:
        """Return whether a gang of a class runs on a loan."""
        return any(loan["class"] == name and loan["beyond"] > 0 for loan in self.loans)

    def wait_in_vain(self, job: JobView, name: str) -> None:
        """Let a job join the line whose turn has come and which could not start."""
        if self.due(job, name) <= self.now and not self.owes(name) and name not in self.line:
            self.line[name] = job.id

    def join(self, late: Iterable[Overdue], every: float) -> None:
        """Let jobs that have waited in vain for too long join the line, one of a class, then none for a while."""
        for one in late:
            if one.group not in self.line:
                self.line[one.group] = one.job
                self.served[one.group] = self.now + every

    def serves(self, job: JobView) -> None:
        """Take a job out of the line that starts something without it."""
        if self.line:
            self.line = {name: other for name, other in self.line.items() if other != job.id}

    def first(self, census: ClusterIndex) -> Iterator[JobView]:
        """Yield the jobs of the line, the one that was there first, then the oldest."""
        yield from [census.jobs[job] for job in self.line.values()]

    def begins(self, job: JobView, gang: GangView, name: str, beyond: int, target: int) -> None:
        """Note that a gang of the line starts, with so many units beyond its class's target."""
        self.serves(job)
        loan = {"job": job.id, "gang": gang.number, "class": name, "beyond": max(0, beyond), "target": target}
        self.loans.append({**loan, "since": self.now})

    @property
    def spared(self) -> set[tuple[str, int]]:
        """The gangs that no rebalance stops: what they hold is paid back by their class when they end."""
        return {(loan["job"], loan["gang"]) for loan in self.loans}

    def memory(self, census: ClusterIndex) -> dict[str, Any]:
        """Return what the next round has to know; the first of the line stays first, the others by age."""
        first, *rest = [[name, job] for name, job in self.line.items()] or [[]]
        rest.sort(key=lambda one: (census.jobs[one[1]].submitted, one[1]))
        line = [first, *rest] if first else []
        reserved = {"line": line, "loans": self.loans, "debts": self.debts, "served": self.served}
        return {key: value for key, value in reserved.items() if value}
