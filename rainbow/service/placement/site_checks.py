"""Whether sites that schedule for themselves would take a job: asked of their agents before a submit is answered.

An agent asks its resource manager as the account that the job would have (`sbatch --test-only`). What the site
refuses is a reason of the match, so that another cluster is chosen. An answer is true for KEPT seconds, for jobs that
ask for the same as the same requestor: each question costs a site one of its job numbers. Where no agent answers
within PATIENCE seconds the job is accepted unchecked, and while one is that slow no submit waits for it again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from rainbow.matching import Reason, Verdict, Why
from rainbow.service.core import heartbeats
from rainbow.service.core.limits import limits_of
from rainbow.service.core.memory import Table, age
from rainbow.service.core.pubsub import checks_of, offers_to_all
from rainbow.service.jobs.jobspecs import Reading, handed_over
from rainbow.service.jobs.lifecycle import may_run
from rainbow.service.placement.match_cache import Match
from rainbow.store import clusters, workers
from rainbow.store.workers import SiteCheck

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service

KEPT = 60.0  # seconds that an answer is true
PATIENCE = 2.0  # seconds that a submit waits for answers
LOOK = 0.25  # seconds between two looks for an answer that another process may have got
NOTED = 1.0  # seconds that the look at which clusters have agents that check stands
FORGOTTEN = 3600.0  # seconds after which a question is removed
MOST_SITES = 16  # that are asked about one job
MOST_SHAPES = 4  # gangs of one job about which a site is asked
PASSED, UNCHECKED = "passed", "unchecked"
NOT_ASKED = ("output", "error", "input", "comment", "umask")  # no site takes or refuses a job by them
LONGEST = 300  # characters of what a site says
DIRECTIVES = re.compile(r"^#SBATCH\b.*$", re.M)


class CheckingClusters(
    Table[str, frozenset[str]], name="checking-clusters", most=1, valid=age(NOTED), key="one; looked up once a second"
):
    """The clusters whose agents can check, by id, as they were looked up last."""


def sites_among(service: Service, match: Match) -> dict[str, str]:
    """Return {cluster id: name} of the candidates whose agents can ask their sites."""
    known, now = service.state(CheckingClusters), service.monotonic()
    if (checking := known.get("", now)) is None:
        with service.store.read() as connection:
            checking = known.put("", workers.checking(connection), now)
    if not checking:
        return {}
    results = {one: name for one, name in match.ids.items() if one in checking}
    return dict(sorted(results.items(), key=lambda each: each[1])[:MOST_SITES])


def checked(
    service: Service, match: Match, reading: Reading, requestor: str, sites: Mapping[str, str]
) -> tuple[Match, dict[str, dict[str, Any]]]:
    """Ask sites ({cluster id: name}); return the match without those that refuse, and what each has said.

    `result` is passed or unchecked; `wait`, where a site plans ahead: in how many seconds it would start.
    """
    answers = _answers(service, reading, requestor, sites)
    refused = {one: words for one, checks in answers.items() if (words := _refusal(checks))}
    said = {sites[one]: _said(checks) for one, checks in answers.items() if one not in refused}
    remaining = _without(match, {sites[one]: words for one, words in refused.items()}) if refused else match
    return _settled(remaining, {name for name, answer in said.items() if answer["result"] == "passed"}), said


def _answers(
    service: Service, reading: Reading, requestor: str, sites: Mapping[str, str]
) -> dict[str, list[SiteCheck]]:
    """Ask what is not known yet, and wait for the answers; those that have none are unanswered questions."""
    now, until = service.clock(), service.monotonic() + PATIENCE
    with service.store.read() as connection:
        request = _questions(connection, reading, requestor, sites, now)
        known = workers.checks_by_id(connection, list(request), now - KEPT)
        silent = _silent(service, connection, sites, now)
    fresh = [check for check in request.values() if check.id not in known]
    if fresh:
        with service.store.write() as connection:
            workers.add_checks(connection, fresh, now - FORGOTTEN)
        service.news.tell(*{offers_to_all(check.cluster_id) for check in fresh})
    known = {**request, **known}
    topics = [checks_of(one) for one in sites]
    while waiting := [one for one in known.values() if one.answer is None and one.cluster_id not in silent]:
        remaining = until - service.monotonic()
        if remaining <= 0 or service.ending:
            break
        pause = service.news.pause(topics, min(remaining, LOOK))
        with service.store.read() as connection:
            results = workers.checks_by_id(connection, [one.id for one in waiting], now - KEPT)
        known |= results
        if all(one.answer is None for one in results.values()):
            service.news.wait_for(pause)
    return {one: [check for check in known.values() if check.cluster_id == one] for one in sites}


def _silent(service: Service, connection: sa.Connection, sites: Iterable[str], now: float) -> set[str]:
    """Return the sites for which no submit waits: no agent checks, or one leaves questions open."""
    result = set[str]()
    for one in sites:
        signs = {name: sign for name, sign in workers.agents_of(connection, one).items() if sign.checks}
        late = workers.open_checks(connection, one, now - KEPT)
        is_there = heartbeats.alive(service.heartbeats, service.settings.lease, one, signs)
        if not is_there or any(check.asked_at < now - PATIENCE for check in late):
            result.add(one)
    return result


def _questions(
    connection: sa.Connection, reading: Reading, requestor: str, sites: Iterable[str], now: float
) -> dict[str, SiteCheck]:
    """Return what is asked of each site, by id: an offer of each kind of task, without what concerns no site."""
    result: dict[str, SiteCheck] = {}
    for one in sites:
        seconds = may_run(reading.request, limits_of(clusters.limits(connection, one)))
        shapes: dict[str, SiteCheck] = {}
        for number, gang in enumerate(reading.gangs):
            if len(shapes) == MOST_SHAPES:
                break
            offer = {"duration": seconds, **_shape(handed_over(reading, number, gang.tasks[0].index, "", requestor))}
            key = sha256(json.dumps([one, offer], sort_keys=True, default=str).encode("utf-8", "replace")).hexdigest()
            shapes[key] = SiteCheck(key, one, offer, now)
        result |= shapes
    return result


def _shape(offer: dict[str, Any]) -> dict[str, Any]:
    """Return of an offer what a site takes or refuses a job by: of a script its directives alone.

    >>> _shape({"processes": 1, "request": {"name": "j", "system": {"queue": "q", "output": "o"},
    ...     "script": "#!/bin/sh\\n#SBATCH -p batch\\nsecret\\n"}})["request"]["script"]
    '#!/bin/sh\\n#SBATCH -p batch\\n'
    """
    request = {key: value for key, value in offer["request"].items() if key not in ("name", "arguments")}
    request["system"] = {key: value for key, value in request["system"].items() if key not in NOT_ASKED}
    if request.get("script"):
        request["script"] = "\n".join(["#!/bin/sh", *DIRECTIVES.findall(request["script"]), ""])
    return {**offer, "request": request}


def _refusal(checks: Sequence[SiteCheck]) -> str:
    return next((words for check in checks if (words := str((check.answer or {}).get("refused") or ""))), "")


def _said(checks: Sequence[SiteCheck]) -> dict[str, Any]:
    answers = [check.answer for check in checks if check.answer is not None]
    waits = [wait for answer in answers if (wait := answer.get("wait")) is not None]
    result = PASSED if checks and len(answers) == len(checks) else UNCHECKED
    return {"result": result, **({"wait": max(waits)} if waits else {})}


def refusals(match: Match) -> dict[str, str]:
    """Return what sites that do not take a job have said, by cluster."""
    reasons = {one.cluster: one.reason for one in match.refusals if one.reason}
    return {name: reason.text for name, reason in reasons.items() if reason.why is Why.SITE_REFUSES}


def _settled(match: Match, passed: Collection[str]) -> Match:
    """Return a match in which a site that would take the job is no longer in doubt about words it does not name."""
    if not any(one.presumed and one.cluster in passed for one in match.answers):
        return match
    answers = [one.presumed if one.presumed and one.cluster in passed else one for one in match.answers]
    return Match(match.reach, match.verdicts, answers)


def _without(match: Match, refused: Mapping[str, str]) -> Match:
    """Return a match of which these clusters are no candidates any more: their sites say why."""

    def past(verdicts: Sequence[Verdict]) -> list[Verdict]:
        return [
            Verdict(one.cluster, False, reason=Reason(Why.SITE_REFUSES, words[:LONGEST], "site"))
            if (words := refused.get(one.cluster))
            else one
            for one in verdicts
        ]

    return Match(match.reach, past(match.verdicts), past(match.answers))
