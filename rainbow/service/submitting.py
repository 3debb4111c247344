"""Walk 2: a jobspec comes in and clusters are matched; submission.py selects one and stores what was decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rainbow.errors import Forbidden, JobspecError, LimitError, NotFound, RainbowError, TryLater
from rainbow.jobspec import Request, parse_jobspec
from rainbow.matching import Verdict, backends, match, shown, shown_explained
from rainbow.scheduling import Gang, gangs
from rainbow.selection import check_options
from rainbow.service.access import Caller
from rainbow.service.measuring import count, phase
from rainbow.service.remembering import Match
from rainbow.service.submission import Placement, Submission
from rainbow.store import clusters

if TYPE_CHECKING:
    from rainbow.service.service import Entry, Service
    from rainbow.store.engine import Work

Placed = tuple[dict[str, Any], bool] | RainbowError  # a job and whether it was sent before, or why there is none

__all__ = ["Submission", "answer", "find", "find_for", "selector_of", "submit", "submit_all"]


# ── match ──


def find(service: Service, asked: Submission, among: Sequence[Entry]) -> Match:
    """Match a jobspec against these clusters."""

    def make() -> Match:
        with phase("parse"):
            request = parse_jobspec(asked.jobspec)
        with phase("match"):
            verdicts = match(request, [entry.cluster for entry in among], service.settings.backend)
        with phase("answer"):
            places = {verdict.cluster: place for place, verdict in enumerate(verdicts)}
            return Match(request, verdicts, shown(request, verdicts), _counts(verdicts), places, among)

    found = service.matches.get(asked.jobspec, among, make)
    for verdict, times in found.counts.items():
        count("rainbow_matches", verdict, times)
    return found


def find_for(service: Service, who: Caller, asked: Submission) -> Match:
    """Match a jobspec against every cluster the caller may submit to, or those asked for."""
    return find(service, asked, _usable(service, who, asked.clusters if asked.place is None else [asked.place]))


def _counts(verdicts: Sequence[Verdict]) -> Counter[str]:
    # a matched verdict works out all it could say when it is asked for its reason
    return Counter("matched" if v.matched or not v.reason else str(v.reason.why) for v in verdicts)


def _usable(service: Service, who: Caller, names: Sequence[str] | None) -> list[Entry]:
    entries = _known(service, who)
    if not entries and not who.admin:
        raise Forbidden("no submit token of a cluster was brought")
    known = {entry.cluster.name: entry for entry in entries}
    for name in names or ():
        if name not in known:
            raise NotFound(f"there is no cluster {name}")
    wanted = entries if names is None else [known[name] for name in sorted(set(names))]
    taking = [entry for entry in wanted if not entry.drained]
    if wanted and not taking:
        told = ", ".join(sorted(entry.cluster.name for entry in wanted))
        raise TryLater(f"drained, and taking no jobs until reinstated: {told}", retry_after=60)
    return taking


def _known(service: Service, who: Caller) -> list[Entry]:
    """Return the clusters the caller may submit to; those another process has registered are compiled now."""
    found = [entry for entry in service.catalogue.values() if who.admin or entry.id in who.submits]
    if missing := set(who.submits) - {entry.id for entry in found}:
        with service.store.read() as connection:
            names = clusters.names(connection, missing)
        found += [entry for name in names.values() if (entry := service.compile(name))]
    return [entry for entry in found if not entry.draining]


def answer(service: Service, who: Caller, asked: Submission) -> dict[str, Any]:
    """Say which clusters could run a jobspec; explained if that was asked for."""
    if not asked.explain:
        return find_for(service, who, asked).told
    request = parse_jobspec(asked.jobspec)
    found = [entry.cluster for entry in _usable(service, who, asked.clusters)]
    verdicts = match(request, found, service.settings.backend)
    return shown_explained(request, found, verdicts, backends.get(service.settings.backend))


# ── submit ──


def submit(service: Service, who: Caller, asked: Submission) -> tuple[dict[str, Any], bool]:
    """Place a job; return it and whether it is an earlier one sent again. Refused says why no cluster takes it."""
    [placed] = submit_all(service, [(who, asked)])
    if isinstance(placed, RainbowError):
        raise placed
    return placed


def submit_all(service: Service, many: Sequence[tuple[Caller, Submission]]) -> list[Placed]:
    """Place several jobs, each or not, in order; what became of each. One wait for the disk for all of them."""
    answers: dict[int, Placed] = {}
    prepared: dict[int, Placement] = {}
    for k, (who, asked) in enumerate(many):
        try:
            prepared[k] = _prepare(service, who, asked)
        except RainbowError as fault:
            count("rainbow_submits", fault.code)
            answers[k] = fault
    with phase("store"):
        works = service.store.all_together([each.write for each in prepared.values()])
    for k, work in zip(prepared, works, strict=True):
        answers[k] = _outcome(service, prepared[k], work)
    if told := {each.cluster_id for each in prepared.values() if each.cluster_id}:
        service.tell(*told)
    return [answers[k] for k in range(len(many))]


def _outcome(service: Service, placement: Placement, work: Work[tuple[dict[str, Any], bool]]) -> Placed:
    if work.fault is None and work.result is not None:
        count("rainbow_submits", "again" if work.result[1] else "placed")
        return work.result
    placement.cluster_id = None
    if isinstance(work.fault, RainbowError):
        count("rainbow_submits", work.fault.code)
        return work.fault
    raise work.fault or AssertionError("a part has a result or a fault")


def _prepare(service: Service, who: Caller, asked: Submission) -> Placement:
    """Do all that needs no writing: parse, match, check."""
    found = find_for(service, who, asked)
    wanted = _checked_gangs(service, found.request)
    return Placement(service, who, asked, found, wanted, *selector_of(service, asked))


def _checked_gangs(service: Service, request: Request) -> tuple[Gang, ...]:
    count = sum(task.replicas for task in request.tasks)  # before they are written out
    if count > service.settings.limits.tasks:
        raise LimitError(f"{count} tasks, the limit is {service.settings.limits.tasks}", limit="tasks")
    wanted = gangs(request)
    for gang in wanted:
        for task in gang.tasks:
            if not task.spec.command:
                raise JobspecError(f"{task.name} has no command to run", pointer=f"/tasks/{task.index}/command")
    if not wanted:
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
