"""Jobs in a request, one or many, each with its own answer: placed in order, or by a plan for all of them.

What becomes of one job is no other's: a refusal, a database that is away, or a fault of Rainbow's own undoes the part
of its job and is that job's answer. What fails after the commit is logged; the answers stay.

A plan is made on a snapshot and holds nothing back: every job of it is then submitted by itself, at the cluster the
plan names. Where other jobs have filled that cluster in between, the job is decided like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import fsum
from time import monotonic
from typing import TYPE_CHECKING, Any

import structlog

from rainbow.errors import NONE, InternalError, RainbowError, Refused
from rainbow.outcome import after_commit
from rainbow.selection.assignment import Assignment, BatchJob, Bound, assign
from rainbow.selection.expression.scalar import summable
from rainbow.selection.integer_program import solve
from rainbow.service.core.counters import count, phase
from rainbow.service.placement import refusal
from rainbow.service.placement.facts import States, facts_for
from rainbow.service.placement.staged_tasks import discard
from rainbow.service.placement.submission import Submission
from rainbow.service.placement.submit import SubmitTransaction, prepare

if TYPE_CHECKING:
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import CompiledClusters, Service
    from rainbow.write_queue import Part


_SOLVE = partial(solve, clock=monotonic)
log = structlog.get_logger("rainbow.submit")


@dataclass(frozen=True, slots=True)
class Entry:
    """One job of a batch, and who brings it; a fault in place of a job that could not be read."""

    who: Caller | None
    submission: Submission | None
    fault: RainbowError | None = None


@dataclass(frozen=True, slots=True)
class Optimal:
    """Minimise the sum of a variable that the priorities compute, taking no longer than this."""

    minimise: str
    seconds: float


Answer = tuple[dict[str, Any], bool] | RainbowError


def submit_batch(
    service: Service, entries: Sequence[Entry], optimal: Optimal | None
) -> tuple[list[Answer], dict[str, Any]]:
    """Submit every job; return each one's answer, and how they were assigned."""
    answers: list[Answer] = [RainbowError()] * len(entries)
    if optimal is None:
        answers = _submit(service, entries)
        return answers, {"by": "greedy", "placed": _placed(answers)}
    planned, in_order, places = _plan(service, entries, optimal)
    first = [at for at, place in enumerate(places) if place is not None]
    answers = _with(answers, first, _submit(service, [_at(entries[at], places[at]) for at in first]))
    # what the plan leaves out takes what is left; where its cluster has been filled since, a job is one of these
    others = [at for at, answer in enumerate(answers) if places[at] is None or isinstance(answer, Refused)]
    answers = _with(answers, others, _submit(service, [entries[at] for at in others]))
    return answers, _report(answers, optimal.minimise, planned, in_order)


def _submit(service: Service, entries: Sequence[Entry]) -> list[Answer]:
    """Submit what could be read, in order, with one wait for the disk."""
    readable = [(k, entry.who, entry.submission) for k, entry in enumerate(entries) if entry.who and entry.submission]
    answers: list[Answer] = [entry.fault or RainbowError() for entry in entries]
    placed = submit_all(service, [(who, request) for _, who, request in readable])
    return _with(answers, [k for k, *_ in readable], placed)


def _at(entry: Entry, place: str | None) -> Entry:
    return replace(entry, submission=replace(entry.submission, place=place)) if entry.submission else entry


def _with(answers: Sequence[Answer], at: Sequence[int], others: Sequence[Answer]) -> list[Answer]:
    instead = dict(zip(at, others, strict=True))
    return [instead.get(k, answer) for k, answer in enumerate(answers)]


# ── the plan ──


def _plan(
    service: Service, entries: Sequence[Entry], optimal: Optimal
) -> tuple[Assignment, Assignment, list[str | None]]:
    """Return the assignment, greedy for comparison, and a place for every entry."""
    jobs, states = dict[int, BatchJob](), dict[str, Mapping[str, Any]]()
    for at, entry in enumerate(entries):
        if (readable := _readable(service, entry, at)) is not None:
            jobs[at], values = readable
            states |= {name: values[name] for name in values if name not in states}
    planned, in_order = assign(list(jobs.values()), states, optimal.minimise, optimal.seconds, _SOLVE)
    by_entry = dict(zip(jobs, planned.clusters, strict=True))
    return planned, in_order, [by_entry.get(at) for at in range(len(entries))]


def _readable(service: Service, entry: Entry, at: int) -> tuple[BatchJob, States] | None:
    """Read a job for the plan; None for one that its submit will refuse with the reason."""
    if entry.who is None or entry.submission is None:
        return None
    try:
        placement = prepare(service, entry.who, entry.submission)
        with service.store.read() as connection:
            job = placement.arrival(connection)
            facts = facts_for(service, connection, job, placement.match, stated=True)  # what is minimised is one
        verdicts = [one for one in placement.match.verdicts if one.cluster not in set(facts.absent)]
        batch_job = BatchJob(job.reading.request, verdicts, job.selector, job.options, at, facts.own)
        return batch_job, facts.values
    except Exception:  # its submit says what is wrong, and whose fault that is
        return None


# ── what came of it ──


def _placed(answers: Sequence[Answer]) -> int:
    return sum(not isinstance(answer, RainbowError) and bool(answer[0]["cluster"]) for answer in answers)


def _report(answers: Sequence[Answer], variable: str, planned: Assignment, in_order: Assignment) -> dict[str, Any]:
    placed, total = _placed(answers), fsum(_cost(answer, variable) for answer in answers)
    return {
        "by": planned.by,
        "status": planned.status,
        "minimise": variable,
        "placed": placed,
        "sum": total,
        "greedy": {"placed": in_order.placed, "sum": in_order.total},
        "bound": {"placed": planned.bound.placed, "sum": planned.bound.total},
        "gap": _gap(placed, total, planned.bound),
    }


def _gap(placed: int, total: float, bound: Bound) -> float:
    """Return how many more jobs might be placed; where none, by how much the sum might be less."""
    return max(0, bound.placed - placed) or max(0.0, total - bound.total)


def _cost(answer: Answer, variable: str) -> float:
    if isinstance(answer, RainbowError) or not answer[0]["cluster"]:
        return 0.0
    placed = answer[0]
    return summable(placed["decision"]["selection"]["values"].get(placed["cluster"], {}).get(variable)) or 0.0


# ── submits, with one wait for the disk ──


ATTEMPTS = 3  # of a submit whose cluster gets other graphs while it is matched
Placed = tuple[dict[str, Any], bool] | RainbowError  # a job and whether it was sent before, or why there is none


def submit(service: Service, who: Caller, submission: Submission) -> tuple[dict[str, Any], bool]:
    """Place a job; return it and whether it is an earlier one sent again. Refused says why no cluster takes it."""
    [placed] = submit_all(service, [(who, submission)])
    if isinstance(placed, RainbowError):
        raise placed
    return placed


def submit_all(service: Service, many: Sequence[tuple[Caller, Submission]]) -> list[Placed]:
    """Place several jobs, each or not, in order; what became of each. One wait for the disk for all of them."""
    matched = service.catalogue
    answers = _attempt(service, dict(enumerate(many)))
    for _ in range(ATTEMPTS - 1):
        outdated = {k: result.cluster for k, result in answers.items() if isinstance(result, refusal.Outdated)}
        if not outdated or not _compiled(service, set(outdated.values())):
            break
        answers |= _attempt(service, {k: many[k] for k in outdated})
    refused = {k: many[k] for k, result in answers.items() if isinstance(result, Refused)}
    if refused and _is_outdated(service, matched):  # what was matched has been replaced by another process
        answers |= _attempt(service, refused)
    for result in answers.values():
        with after_commit("count"):
            count("rainbow_submits", _told_of(result))
    return [answers[k] for k in range(len(many))]


def _compiled(service: Service, names: set[str]) -> bool:
    """Compile clusters again; False if the store is away."""
    try:
        for name in sorted(names):
            service.compile(name)
    except RainbowError:
        return False
    return True


def _is_outdated(service: Service, matched: CompiledClusters) -> bool:
    try:
        return service.catch_up(matched)
    except RainbowError:  # the store is away: the answers that there are stay
        return False


def _attempt(service: Service, many: Mapping[int, tuple[Caller, Submission]]) -> dict[int, Placed]:
    """Match each, then place all that matched in one transaction's wait; a fault in one is the answer of that one."""
    answers: dict[int, Placed] = {}
    prepared: dict[int, SubmitTransaction] = {}
    for k, (who, request) in many.items():
        try:
            prepared[k] = prepare(service, who, request)
            prepared[k].take_numbers()
            prepared[k].prestore()
        except Exception as fault:
            answers[k] = as_answer(fault)
    with phase("store"):
        whole = not all(each.is_of_one_cluster for each in prepared.values())
        works = service.store.all_in_order([each.write for each in prepared.values()], beside=not whole)
    for k, work in zip(prepared, works, strict=True):
        answers[k] = _outcome(prepared[k], work)
        if (stored := prepared[k].staged) and prepared[k].cluster_id is None:  # it was refused, or sent before
            with after_commit("discard"):
                discard(service, stored.job)
    if answer := {each.cluster_id for each in prepared.values() if each.cluster_id}:
        with after_commit("tell"):
            service.tell(*answer)  # a step offers what it starts
    return answers


def _told_of(result: Placed) -> str:
    """Return what the metrics call an outcome."""
    if isinstance(result, RainbowError):
        return result.code
    return "again" if result[1] else "placed" if result[0]["cluster"] else "unplaced"


def _outcome(placement: SubmitTransaction, work: Part[tuple[dict[str, Any], bool]]) -> Placed:
    if work.fault is None and work.result is not None:
        return work.result
    placement.cluster_id = None
    return as_answer(work.fault or AssertionError("a part has a result or a fault"))


def as_answer(fault: BaseException) -> RainbowError:
    """Return a fault as a job's answer; one of Rainbow's own has undone this job's part, and no other."""
    if isinstance(fault, RainbowError):
        return fault
    log.error("submit-failed", fault=repr(fault), exc_info=fault)
    return InternalError(outcome=NONE)
