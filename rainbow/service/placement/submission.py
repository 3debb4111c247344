"""What a submit or a match asks for, and the clusters that fit it; the job that had the same Idempotency-Key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, JobspecError, Refused
from rainbow.jobspec import parse_jobspec
from rainbow.matching import backends, candidates_of, certified, match, shown_explained, verdict_to_json
from rainbow.selection import check_options
from rainbow.service.core.access import Caller
from rainbow.service.core.counters import count
from rainbow.service.core.settings import WAIT
from rainbow.service.jobs.dependencies import check_dependencies
from rainbow.service.jobs.jobspecs import read_request
from rainbow.service.jobs.lifecycle import visible_job
from rainbow.service.placement import ledger, refusal, site_checks
from rainbow.service.placement.candidates import barred, eligible_clusters, own_queues
from rainbow.service.placement.match_cache import Match, MatchedRequest, find
from rainbow.store import jobs
from rainbow.text import REFUSED, shortened

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.service.core.service import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a submit brings: the jobspec, and what may be beside it in an envelope."""

    jobspec: str | bytes | Mapping[str, Any]
    selector: str | None = None
    options: Mapping[str, Any] | None = None
    clusters: Sequence[str] | None = None  # only these; None: all the caller may use
    name: str | None = None
    requestor: str | None = None
    basis: str | None = None  # what the job is a version of: see jobs/dependencies.py
    tag: str | None = None  # which version
    key: str | None = None  # Idempotency-Key
    credentials: Sequence[str] = field(default_factory=tuple)  # digest of who asks, part of the key
    explain: bool = False  # of match: say what was looked for and found, and what would do
    certificate: bool = False  # of match: prove each yes and refute each no
    place: str | None = None  # only this one of them, by the plan of a batch; no part of what was asked
    backend: str | None = None  # how it is matched; None: as the server is set
    login: str | None = None  # of who submits: the requestor where none is named; no part of what was asked
    account: str | None = None  # who pays; None: as the jobspec says, else the requestor's default
    stated: Sequence[str] = ()  # variables that clusters of other servers state; no part of what was asked
    overrides: Mapping[str, Any] | None = None  # what was changed of it while it waited for a cluster
    queue: bool | None = None  # wait where clusters match and none takes it now; None: as the server is set

    def digest(self) -> str:
        """Return what tells two requests apart."""
        parts: list[Any] = [self.jobspec, self.selector, self.options, self.clusters, self.name, self.requestor]
        parts += [self.basis, self.tag] if self.basis or self.tag else []
        parts += [value for value in (self.queue, self.backend) if value is not None]
        parts += [{"account": self.account}] if self.account is not None else []
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def key_of(submission: Submission) -> str:
    """Return what is stored of an Idempotency-Key: it is one caller's."""
    return hashlib.sha256(json.dumps([submission.key, sorted(submission.credentials)]).encode()).hexdigest()


def earlier_job(connection: sa.Connection, who: Caller, submission: Submission) -> dict[str, Any] | None:
    """Return the job that was submitted under the same key; Conflict if that was another request."""
    results = jobs.by_idempotency(connection, key_of(submission)) if submission.key else None
    if results is None:
        return None
    job_id, digest = results
    if digest != submission.digest():
        raise Conflict("this Idempotency-Key was already used for a different request")
    record = visible_job(connection, who, job_id)  # of what was brought then something may have ended
    decision = ledger.shown(jobs.decision(connection, job_id))
    return refusal.answer_of(record, decision)


def match_answer(service: Service, who: Caller, submission: Submission) -> dict[str, Any]:
    """Say which clusters could run a jobspec; explained if that was asked for."""
    if not (submission.explain or submission.certificate):
        result = find_for(service, who, submission)
        result = replace(result, match=_past_sites(service, result, submission))
        answer = verdict_to_json(result.request, result.match.answers)
        fitting = [result.match.reach.entry(one.cluster).cluster for one in candidates_of(result.match.answers)]
        return {**answer, "warnings": [*answer["warnings"], *_refused_later(service, who, result.request, fitting)]}
    request = parse_jobspec(submission.jobspec)
    reach, settings = eligible_clusters(service, who, submission.clusters), service.settings
    among, backend = reach.clusters, submission.backend or settings.backend
    own = own_queues(service, request, reach.entries)
    verdicts = match(request, among, backend, settings.budget(), own)
    if submission.explain:
        answer = shown_explained(request, among, verdicts, backends.get(backend), settings.budget())
    else:
        answer = verdict_to_json(request, verdicts)
    if submission.certificate:
        takes = {verdict.cluster: verdict.take for verdict in verdicts if verdict.matched}
        revisions = {entry.cluster.name: entry.revision for entry in service.catalogue.values()}
        answer = certified(request, among, answer, takes, revisions=revisions)
    matched = {verdict.cluster for verdict in verdicts if verdict.matched}
    refused = site_checks.refusals(_past_sites(service, MatchedRequest(request, Match(reach, verdicts)), submission))
    answer["warnings"] += [f"{name}: {text}; {REFUSED}" for name, text in refused.items()]
    fitting = [cluster for cluster in among if cluster.name in matched]
    return {**answer, "warnings": [*answer["warnings"], *_refused_later(service, who, request, fitting)]}


def _past_sites(service: Service, result: MatchedRequest, submission: Submission) -> Match:
    """Return a match without the sites that would not take the job, if it is known whose it is."""
    requestor = submission.requestor or submission.login
    sites = site_checks.sites_among(service, result.match) if requestor else {}
    if not sites or not requestor:
        return result.match
    return site_checks.checked(service, result.match, read_request(result.request), requestor, sites)[0]


def _refused_later(service: Service, who: Caller, request: Request, fitting: Iterable[Cluster]) -> Iterator[str]:
    """Say why a submit refuses a job that clusters match, unless its warnings do."""
    try:
        with service.store.read() as connection:
            check_dependencies(connection, who, request)
    except JobspecError as fault:
        yield f"{fault}; {REFUSED}"
    answer: dict[str, list[str]] = {}
    for cluster in fitting:
        try:
            refusal.check_processes(service, request, cluster)
        except Refused as fault:
            answer.setdefault(fault.message, []).append(cluster.name)
    yield from shortened(f"{', '.join(names):.80}: {text}; {REFUSED}" for text, names in answer.items())


def find_for(service: Service, who: Caller, submission: Submission) -> MatchedRequest:
    """Match a jobspec against every cluster the caller may submit to, or those asked for."""
    names = submission.clusters if submission.place is None else [submission.place]
    among = eligible_clusters(service, who, names, even_drained=queues(service, submission))
    settings = service.settings
    result = find(service, submission.jobspec, among, submission.backend or settings.backend, submission.overrides)
    for verdict, times in result.match.counts.items():
        count("rainbow_matches", verdict, times)
    return result


def find_open(service: Service, who: Caller, submission: Submission) -> tuple[MatchedRequest, dict[str, str]]:
    """Match a jobspec against the clusters that have the queue and class it names; say why not the others.

    JobspecError where every cluster that matches is one of these.
    """
    result = find_for(service, who, submission)
    if not result.request.attributes.get("system"):
        return result, {}
    with service.store.read() as connection:
        without = barred(service, connection, result.request, result.match.ids)
    if not without:
        return result, {}
    if len(without) == len(result.match.candidates):
        raise next(iter(without.values()))
    others = [name for name in result.match.reach.places if name not in without]
    answer = {name: fault.message for name, fault in without.items()}
    return find_for(service, who, replace(submission, clusters=others, place=None)), answer


def selector_of(service: Service, submission: Submission) -> tuple[str, Mapping[str, Any]]:
    """Return the request's own selector, for this request alone, or the server's."""
    settings = service.settings  # once: they may be exchanged at any moment
    if submission.selector is None and not submission.stated:
        return settings.selector, settings.selector_options
    name = submission.selector or settings.selector
    same = name == settings.selector
    options = submission.options if submission.options is not None else settings.selector_options if same else {}
    options = {**options, "stated": list(submission.stated)} if submission.stated else options
    check_options(name, options)
    return name, options


def queues(service: Service, submission: Submission) -> bool:
    """Return whether a job waits where clusters match and none takes it now; at its place in a plan none does."""
    if submission.place is not None:
        return False
    return service.settings.unplaced == WAIT if submission.queue is None else submission.queue
