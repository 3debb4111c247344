"""Walk 2: a jobspec comes in and clusters are matched; submission.py selects one and stores what was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rainbow.errors import JobspecError, LimitError, RainbowError
from rainbow.jobspec import Request, parse_jobspec
from rainbow.matching import backends, match, shown, shown_explained
from rainbow.selection import check_options, reads_states
from rainbow.service.access import Caller
from rainbow.service.measuring import count, phase
from rainbow.service.submits.candidates import barred, snapshot
from rainbow.service.submits.jobspecs import Reading, read_request
from rainbow.service.submits.reach import reach_of
from rainbow.service.submits.remembering import Found
from rainbow.service.submits.submission import Outdated, Placement, Submission

if TYPE_CHECKING:
    from rainbow.service.service import Service
    from rainbow.store.engine import Work

ATTEMPTS = 3  # of a submit whose cluster gets other graphs while it is matched
Placed = tuple[dict[str, Any], bool] | RainbowError  # a job and whether it was sent before, or why there is none

__all__ = ["Submission", "answer", "find_for", "find_open", "selector_of", "submit", "submit_all"]


# ── match ──


def find_for(service: Service, who: Caller, asked: Submission) -> Found:
    """Match a jobspec against every cluster the caller may submit to, or those asked for."""
    among = reach_of(service, who, asked.clusters if asked.place is None else [asked.place])
    settings = service.settings
    found = service.matches.find(asked.jobspec, among, settings.backend, settings.budget())
    for verdict, times in found.match.counts.items():
        count("rainbow_matches", verdict, times)
    return found


def answer(service: Service, who: Caller, asked: Submission) -> dict[str, Any]:
    """Say which clusters could run a jobspec; explained if that was asked for."""
    if not asked.explain:
        found = find_for(service, who, asked)
        return shown(found.request, found.match.verdicts)
    request = parse_jobspec(asked.jobspec)
    among = reach_of(service, who, asked.clusters).clusters
    settings = service.settings
    verdicts = match(request, among, settings.backend, settings.budget())
    return shown_explained(request, among, verdicts, backends.get(settings.backend))


# ── submit ──


def submit(service: Service, who: Caller, asked: Submission) -> tuple[dict[str, Any], bool]:
    """Place a job; return it and whether it is an earlier one sent again. Refused says why no cluster takes it."""
    [placed] = submit_all(service, [(who, asked)])
    if isinstance(placed, RainbowError):
        raise placed
    return placed


def submit_all(service: Service, many: Sequence[tuple[Caller, Submission]]) -> list[Placed]:
    """Place several jobs, each or not, in order; what became of each. One wait for the disk for all of them."""
    answers = _attempt(service, dict(enumerate(many)))
    for _ in range(ATTEMPTS - 1):
        outdated = {k: found.cluster for k, found in answers.items() if isinstance(found, Outdated)}
        if not outdated:
            break
        for cluster in sorted(set(outdated.values())):
            service.compile(cluster)
        answers |= _attempt(service, {k: many[k] for k in outdated})
    for found in answers.values():
        count("rainbow_submits", _told_of(found))
    return [answers[k] for k in range(len(many))]


def _attempt(service: Service, many: Mapping[int, tuple[Caller, Submission]]) -> dict[int, Placed]:
    """Match each, then place all that matched in one transaction's wait."""
    answers: dict[int, Placed] = {}
    prepared: dict[int, Placement] = {}
    for k, (who, asked) in many.items():
        try:
            prepared[k] = _prepare(service, who, asked)
        except RainbowError as fault:
            answers[k] = fault
    with phase("store"):
        works = service.store.all_together([each.write for each in prepared.values()])
    for k, work in zip(prepared, works, strict=True):
        answers[k] = _outcome(prepared[k], work)
    if told := {each.cluster_id for each in prepared.values() if each.cluster_id}:
        service.tell(*told, offers=False)  # a step offers what it starts
    return answers


def _told_of(found: Placed) -> str:
    """Return what the metrics call an outcome."""
    if isinstance(found, RainbowError):
        return found.code
    return "again" if found[1] else "placed"


def _outcome(placement: Placement, work: Work[tuple[dict[str, Any], bool]]) -> Placed:
    if work.fault is None and work.result is not None:
        return work.result
    placement.cluster_id = None
    if isinstance(work.fault, RainbowError):
        return work.fault
    raise work.fault or AssertionError("a part has a result or a fault")


def _prepare(service: Service, who: Caller, asked: Submission) -> Placement:
    """Do all that needs no writing: parse, match, check."""
    found, without = find_open(service, who, asked)
    wanted = _checked(service, found.request)
    selector, options = selector_of(service, asked)
    drained = {} if found.match.candidates else _drained(service, found)
    kept = None if reads_states(selector) else snapshot(service, found.match.reach)
    return Placement(service, who, asked, wanted, found.match, selector, options, kept, without, drained)


def find_open(service: Service, who: Caller, asked: Submission) -> tuple[Found, dict[str, str]]:
    """Match a jobspec against the clusters that have the queue and class it names; say why not the others.

    JobspecError where every cluster that matches is one of these.
    """
    found = find_for(service, who, asked)
    if not found.request.attributes.get("system"):
        return found, {}
    with service.store.read() as connection:
        without = barred(connection, found.request, found.match.ids)
    if not without:
        return found, {}
    if len(without) == len(found.match.candidates):
        raise next(iter(without.values()))
    others = [name for name in found.match.reach.places if name not in without]
    told = {name: fault.message for name, fault in without.items()}
    return find_for(service, who, replace(asked, clusters=others, place=None)), told


def _drained(service: Service, found: Found) -> dict[str, str]:
    """Say why not of the clusters that match and are drained: they could run the job, and will again."""
    entries = found.match.reach.drained
    verdicts = match(found.request, [entry.cluster for entry in entries], service.settings.backend) if entries else ()
    why = "drained: it takes nothing new until it is reinstated"
    return {verdict.cluster: why for verdict in verdicts if verdict.matched}


def _checked(service: Service, request: Request) -> Reading:
    count = sum(task.replicas for task in request.tasks)  # before they are written out
    if count > service.settings.limits.tasks:
        raise LimitError(f"{count} tasks, the limit is {service.settings.limits.tasks}", limit="tasks")
    for pointer, text in request.unfit:
        raise JobspecError(f"{pointer.rpartition('/')[2]} {text}", pointer=pointer)
    wanted = read_request(request)
    for gang in wanted.gangs:
        for task in gang.tasks:
            if not task.spec.command:
                raise JobspecError(f"{task.name} has no command to run", pointer=f"/tasks/{task.index}/command")
    if not wanted.gangs:
        raise JobspecError("there is no task to run", pointer="/tasks")
    return wanted


def selector_of(service: Service, asked: Submission) -> tuple[str, Mapping[str, Any]]:
    """Return the request's own selector, for this request alone, or the server's."""
    settings = service.settings  # once: they may be exchanged at any moment
    if asked.selector is None:
        return settings.selector, settings.selector_options
    same = asked.selector == settings.selector
    options = asked.options if asked.options is not None else settings.selector_options if same else {}
    check_options(asked.selector, options)
    return asked.selector, options
