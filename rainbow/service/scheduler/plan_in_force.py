"""The plan in force of a cluster, and what it says of its jobs: worked out job by job, on request.

What a plan has answered it answers again. Space that is kept is named with the jobs it is kept for, and the limit
with which a job starts at once is found by planning (changes.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any

from rainbow.scheduling import JobView, Plan, Wait
from rainbow.scheduling.invariants import left, started
from rainbow.scheduling.sooner import Budget as Trials
from rainbow.scheduling.sooner import Change, Sooner, kept_by_others
from rainbow.service.core.memory import ByCluster, picture
from rainbow.service.scheduler.changes import limit_alone, sooner
from rainbow.store.jobs import code_of
from rainbow.text import rfc3339, some

if TYPE_CHECKING:
    from rainbow.scheduling.interface import ReservedBlock
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service
    from rainbow.service.live_state.mirror import Mirror
    from rainbow.service.scheduler.view import Frozen
    from rainbow.store.jobs import JobRecord

KEPT = "kept"
MOST_NAMED = 10  # jobs that space is kept for and that an answer names
TRIALS = 0.02  # seconds of a processor in which one answer may try changes
BUDGET = 0.2  # seconds in which one answer may plan
EVERY = 1.0  # seconds between two plans of a cluster that are made for readers
SOON = "next-cycle"
Reason = dict[str, Any]


@dataclass(slots=True)
class PlanInForce:
    """The last plan of a cluster: `state` is the mirror's, `epoch` and `version` those of store and notifications."""

    number: int
    at: float
    plan: Plan
    mirror: Mirror
    state: int
    epoch: int
    version: int
    seen: Frozen | None = None  # what it was made of, for trials of a change
    changes: dict[str, Sooner] = field(default_factory=dict)  # that start a job now, of those that were asked about
    limits: dict[tuple[Any, ...], Change | None] = field(default_factory=dict)  # that start jobs now, by kind of job
    cost: float = 0.0  # seconds of a processor that it took to plan, without any wait for a disk or another thread
    made: float = 0.0  # by the service's monotonic clock
    asked: float = -EVERY  # when a reader's plan was made last
    waits: dict[str, Wait] = field(default_factory=dict)  # that the plan names
    begun: Counter[str] | None = None  # tasks that it starts, by job
    answers: dict[str, Reason | None] = field(default_factory=dict)
    codes: dict[str, tuple[str, bool]] = field(default_factory=dict)  # what the store had of these jobs

    def is_of(self, mirror: Mirror) -> bool:
        """Return whether the mirror is still what it was when the plan was made of it."""
        return self.mirror is mirror and self.state == mirror.state

    def reason(self, job: str, budget: Budget) -> Reason | None:
        """Return the reason of a job of the mirror, which is the caller's alone; None: nothing of it waits."""
        if job not in self.answers:
            record, wait = self.mirror.jobs[job].record, self._wait(job)
            self.codes[job] = code_of(record), record.is_halted
            since = record.wait["since"] if wait and record.wait and code_of(record) == wait.reason else self.at
            said = self.dated(reason_document(wait.reason, wait.text, wait.facts, since)) if wait else None
            if said is not None and said["reason"] == KEPT and self.plan.kept:
                said |= self._kept(job, said, budget)
            self.answers[job] = said
        return self.answers[job]

    def _kept(self, job: str, said: Reason, budget: Budget) -> Reason:
        """Name the jobs that space is kept for, and say with which limit the job starts now."""
        blocks, records = kept_by_others(self.plan, job), self.mirror.jobs
        rows = [_kept_row(one, records[one.job].record) for one in blocks[:MOST_NAMED] if one.job in records]
        text = _kept_text(said, rows, len(blocks))
        if (change := self._limit(job, budget)) is not None:
            text += f"; {change.text} starts it now"
        return {"text": text, "facts": {**said["facts"], "kept": rows}}

    def _limit(self, job: str, budget: Budget) -> Change | None:
        """Return the limit with which a job starts now, as planned for the last of those like it.

        Where that one starts, those before it do. What an answer has no time for stays open until the next plan.
        """
        own = self.mirror.census.jobs[job]
        key = _kind(own)
        if key not in self.limits and self.seen is not None:
            alike = [one for one in self.mirror.census.jobs.values() if _kind(one) == key]
            last = max(alike, key=lambda one: (one.submitted, one.id))
            change, began = None, thread_time()
            if budget.trials > 0:
                change = limit_alone(self.seen, self.plan, last.id, Trials(seconds=budget.trials))
                budget.trials -= thread_time() - began
            self.limits[key] = change
        return self.limits.get(key)

    def sooner(self, job: str) -> Sooner:
        """Return what starts a job of the mirror now, which is the caller's alone; tried once."""
        if job not in self.changes and self.seen is not None:
            self.changes[job] = sooner(self.seen, self.plan, job)
        return self.changes.get(job, Sooner((), 0, complete=False))

    def is_about(self, record: JobRecord) -> bool:
        """Return whether a job is what it was when the plan was made, or a step has stored what the plan says."""
        code, halted = self.codes.get(record.id, ("", False))
        answer = self.answers.get(record.id) or {}
        return code_of(record) in (code, answer.get("reason", "")) and record.is_halted == halted

    def dated(self, reason: Reason) -> Reason:
        """Return a reason with the time and the number of this plan."""
        return {**reason, "at": rfc3339(self.at), "plan": self.number}

    def _wait(self, job: str) -> Wait | None:
        census = self.mirror.census
        if job in self.waits:
            return self.waits[job]
        if job not in census.jobs:
            return self.mirror.wait_of(self.mirror.jobs[job])
        if self.begun is None:
            self.begun = started(census, self.plan)
        if left(census, job, self.begun) <= 0:
            return Wait(job, SOON, f"the next scheduling cycle of {self.mirror.entry.cluster.name} starts it")
        return self.plan.rest.of(job) if self.plan.rest else None


@dataclass(slots=True)
class Budget:
    """What one answer may spend on plans that are not made yet.

    Plans are paid in seconds of a processor, so that a busy machine does not make an answer an old one. The clock on
    the wall ends what is waited for, and further plans after the first one.
    """

    until: float  # by the monotonic clock
    left: float = BUDGET  # seconds of a processor
    trials: float = TRIALS  # seconds of a processor for what would start a job now
    plans: int = 0

    @property
    def wait(self) -> float:
        """Return how many seconds may be waited from now on."""
        return max(0.0, self.until - monotonic())

    def allows(self, cost: float) -> bool:
        """Return whether a plan may be made of this likely cost."""
        return 0 < self.left >= cost and (self.plans == 0 or monotonic() < self.until)

    def pay(self, cost: float) -> None:
        """Take off what a plan has cost."""
        self.left -= cost
        self.plans += 1


@picture("plans", most="one for a cluster", true="it is of the mirror's state, epoch and version, and says its time")
class PlansInForce(ByCluster[PlanInForce]):
    """The plan in force of each cluster of which this process has one."""

    def put(self, service: Service, seen: Frozen, plan: Plan, version: int, cost: float) -> PlanInForce:
        """Let a plan be the one in force, which readers ask from now on. `cost`: seconds of a processor it took."""
        mirror, before = seen.mirror, self.get(seen.mirror.entry.id)
        made = PlanInForce(
            number=before.number + 1 if before else 1,
            at=seen.view.now,
            plan=plan,
            mirror=mirror,
            state=mirror.state,
            epoch=mirror.epoch,
            version=version,
            cost=cost,
            made=service.monotonic(),
            seen=seen,
            asked=before.asked if before else -EVERY,
            waits={wait.job: wait for wait in reversed(plan.waits)},
        )
        self[mirror.entry.id] = made
        return made


def reason_document(code: str, text: str, facts: Mapping[str, Any], since: float | None) -> Reason:
    """Return why a job waits as answers show it, of no plan yet."""
    return {"reason": code, "text": text, "facts": dict(facts), "since": since, "at": None, "plan": None}


def _kind(job: JobView) -> tuple[Any, ...]:
    """Return what jobs have in common that one limit can start."""
    gang = job.gangs[0]
    return job.requestor, gang.question, gang.expected, job.priority, len(job.gangs)


def _kept_row(block: ReservedBlock, record: JobRecord) -> dict[str, Any]:
    named = {"job": record.id, "name": record.name, "user": record.requestor}
    amounts = dict(block.amounts)
    return {**named, "amounts": amounts, "workers": block.workers, "until": rfc3339(block.until)}


def _kept_text(said: Reason, rows: Sequence[Mapping[str, Any]], blocks: int) -> str:
    """Say how much is free and kept, for whom, and until when."""
    if not rows:
        return str(said["text"])
    first, total = rows[0], Counter[str]()
    for row in rows:
        total.update(row["amounts"])
    kind = next(iter(total))
    verb = "is" if total[kind] == 1 else "are"
    others = f" and {some(blocks - 1, 'other job')}" if blocks > 1 else ""
    until = f" until {first['until'][11:16]} UTC" if first["until"] else ""
    return f"{some(total[kind], kind)} {verb} free but kept for {first['name']} ({first['user']}){others}{until}"


def as_seen(reason: Reason, who: Caller, cluster_id: str) -> Reason:
    """Return a reason without the jobs of others that its reader may not see."""
    rows = reason["facts"].get("kept")
    if reason["reason"] != KEPT or not isinstance(rows, list):
        return reason
    hidden = [row for row in rows if "user" in row and not who.sees_of(cluster_id, row["user"])]
    if not hidden:
        return reason
    nobody = dict.fromkeys(("job", "name", "user"))
    text = reason["text"]
    if rows[0] in hidden:
        text = text.replace(f"kept for {rows[0]['name']} ({rows[0]['user']})", "kept for another job", 1)
    shown = [{**row, **nobody} if row in hidden else row for row in rows]
    return {**reason, "text": text, "facts": {**reason["facts"], "kept": shown}}
