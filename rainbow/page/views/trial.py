"""Before anything is done: where a jobspec would run, and what other priorities would have chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any

import yaml
from flask import redirect, request

from rainbow.errors import Forbidden, InputError, RainbowError
from rainbow.page.frame import guarded, looks, page, render, service, session, who
from rainbow.page.views.jobs import drawn
from rainbow.selection.replay import Comparison, RecordedDecision, Rules, compare, read_recorded, redecide
from rainbow.service.core.settings import settings_of
from rainbow.service.jobs import lifecycle
from rainbow.service.placement import ledger
from rainbow.service.placement import submit as placement
from rainbow.service.placement.submission import Submission, match_answer
from rainbow.service.queries import forecasts
from rainbow.store import jobs as job_store
from rainbow.store.pages import Filter

MOST_CLUSTERS = 50
DECISIONS = (100, 500, 1_000)
PIECE = 100  # decisions read at once
SECONDS = 2.0  # that a comparison may take
SHOWN = 50  # jobs that would go elsewhere
EXAMPLE = """\
version: 1
resources:
  - type: node
    count: 2
    with:
      - type: slot
        count: 1
        label: work
        with:
          - {type: core, count: 4}
tasks:
  - command: [hostname]
    slot: work
    count: {per_slot: 1}
"""


# ── where would it run ──


@page.get("/match")
@guarded
def match() -> Any:
    """Ask for a jobspec; that of a job of the caller's own, if one is named."""
    job = request.args.get("job", "")
    return render("match.html", here="match", text=_jobspec_of(job) if job else EXAMPLE)


def _jobspec_of(job: str) -> str:
    with service().store.read() as connection:
        lifecycle.own_job(connection, who(), job)
        found = job_store.jobspec(connection, job)
    return found if isinstance(found, str) else yaml.safe_dump(found, sort_keys=False)


def _submission(text: str, **more: Any) -> Submission:
    name = request.form.get("name", "").strip()[:100] or None
    return Submission(jobspec=text, name=name, credentials=session().credentials, **more)


@page.post("/match")
@guarded
@looks
def matched() -> Any:
    """Say where a jobspec would run, why not elsewhere, and when; nothing is stored."""
    text = request.form.get("jobspec", "").replace("\r\n", "\n")
    try:
        told = match_answer(service(), who(), _submission(text, explain=True))
    except InputError as fault:
        return render("match.html", 422, here="match", text=text, fault=fault)
    picture = drawn(told, MOST_CLUSTERS)
    may = who().admin or bool(who().submits)
    shown: dict[str, Any] = {"picture": picture, "told": told, "when": _when(text), "may": may}
    return render("match.html", here="match", text=text, **shown)


def _when(text: str) -> dict[str, Mapping[str, Any]]:
    """Return when it would start and end, by cluster."""
    try:
        told = forecasts.of_jobspec(service(), who(), _submission(text))
    except RainbowError:
        return {}
    return {one["cluster"]: one for one in told["candidates"]}


@page.post("/ui/submit")
@guarded
def submitted() -> Any:
    """Submit what was tried, and show the job."""
    text = request.form.get("jobspec", "").replace("\r\n", "\n")
    placed, _ = placement.submit(service(), who(), _submission(text))
    return redirect(f"/jobs/{placed['id']}", 303)


# ── try priorities ──


@page.get("/try")
@guarded
def priorities() -> Any:
    """Ask for priorities, beginning with those there are."""
    return render("try.html", here="try", text=_written(_now()), limits=DECISIONS, limit=DECISIONS[1])


def _now() -> Rules:
    return Rules(service().settings.selector, service().settings.selector_options)


def _written(rules: Rules) -> str:
    if not who().admin:
        return ""
    selection = {"name": rules.selector, **({"options": dict(rules.options)} if rules.options else {})}
    return str(yaml.safe_dump({"scheduler": {"algorithms": {"selection": selection}}}, sort_keys=False))


@page.post("/try")
@guarded
@looks
def compared() -> Any:
    """Decide the last decisions again under other priorities; nothing is changed."""
    if not who().admin:
        raise Forbidden("recorded decisions need the admin token")
    text = request.form.get("config", "").replace("\r\n", "\n")
    limit = (
        int(request.form.get("limit", "500")[:4]) if request.form.get("limit", "500").isdecimal() else DECISIONS[1]
    )
    shown: dict[str, Any] = {"here": "try", "text": text, "limits": DECISIONS, "limit": limit}
    try:
        read = settings_of(text)
        rules = Rules(read.selector, read.selector_options)
        found, kept = _compared(rules, min(limit, DECISIONS[-1]))
    except InputError as fault:
        return render("try.html", 422, **shown, fault=fault)
    return render("try.html", **shown, found=_told(found, kept, rules), warnings=read.warnings)


def _compared(rules: Rules, limit: int) -> tuple[Comparison, dict[str, RecordedDecision]]:
    kept: dict[str, RecordedDecision] = {}
    end = service().monotonic() + SECONDS

    def decisions() -> Iterator[RecordedDecision]:
        for one in islice(_recorded(rules.matched), limit):
            if service().monotonic() > end:
                return
            kept[one.id] = one
            yield one

    return compare(decisions(), _now(), rules), kept


def _recorded(matched: Collection[str]) -> Iterator[RecordedDecision]:
    cursor: str | None = None
    while True:
        found, cursor = ledger.listing(service(), who(), Filter(before=cursor, limit=PIECE), matched)
        yield from map(read_recorded, found)
        if cursor is None:
            return


def _told(found: Comparison, kept: Mapping[str, RecordedDecision], rules: Rules) -> dict[str, Any]:
    gained: Counter[str] = Counter(one.new for one in found.moved if one.new)
    gained.subtract(one.old for one in found.moved if one.old)
    parts = [(one, _part(kept[one.id], rules)) for one in found.moved[:SHOWN]]
    sums = [
        {
            "name": name,
            "old": old.total,
            "new": new.total,
            "change": (new.total / old.total - 1) if old.total else None,
        }
        for name, (old, new) in sorted(found.sums.items())
    ]
    return {
        "decisions": found.decisions,
        "moved": len(found.moved),
        "refused": sum(one.new is None for one in found.moved),
        "parts": parts,
        "gained": [(name, n) for name, n in gained.most_common() if n],
        "sums": sums,
    }


def _part(recorded: RecordedDecision, rules: Rules) -> str:
    """Return the first step of the new rules that drops what the old ones chose."""
    old, new = redecide(recorded, _now()).cluster, redecide(recorded, rules)
    for step in new.steps:
        if old not in step.survivors:
            return f"{step.step} {step.argument}"
    return new.reason
