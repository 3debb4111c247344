"""Trials: the cluster on which a jobspec would run, and the choice by other priorities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from flask import redirect, request

from rainbow.errors import InputError, RainbowError
from rainbow.page.frame import guarded, looks, page, render, service, session, who
from rainbow.page.views.jobs import drawn
from rainbow.service.jobs import lifecycle
from rainbow.service.placement import batch as placement
from rainbow.service.placement import ledger
from rainbow.service.placement.submission import Submission, match_answer
from rainbow.service.queries import forecasts
from rainbow.store import jobs as job_store

MOST_CLUSTERS = 50
DECISIONS = (100, 500, 1_000)
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
        result = job_store.jobspec(connection, job)
    return result if isinstance(result, str) else yaml.safe_dump(result, sort_keys=False)


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
        answer = match_answer(service(), who(), _submission(text, explain=True))
    except InputError as fault:
        return render("match.html", 422, here="match", text=text, fault=fault)
    picture = drawn(answer, MOST_CLUSTERS)
    may = who().admin or bool(who().submits)
    shown: dict[str, Any] = {"picture": picture, "told": answer, "when": _when(text), "may": may}
    return render("match.html", here="match", text=text, **shown)


def _when(text: str) -> dict[str, Mapping[str, Any]]:
    """Return when it would start and end, by cluster."""
    try:
        answer = forecasts.of_jobspec(service(), who(), _submission(text))
    except RainbowError:
        return {}
    return {one["cluster"]: one for one in answer["candidates"]}


@page.post("/ui/submit")
@guarded
def submitted() -> Any:
    """Submit the jobspec of a trial, and show the job."""
    text = request.form.get("jobspec", "").replace("\r\n", "\n")
    placed, _ = placement.submit(service(), who(), _submission(text))
    return redirect(f"/jobs/{placed['id']}", 303)


# ── try priorities ──


@page.get("/try")
@guarded
def priorities() -> Any:
    """Ask for priorities, beginning with those there are."""
    return render("try.html", here="try", text=_written(), limits=DECISIONS, limit=DECISIONS[1])


def _written() -> str:
    if not who().admin:
        return ""
    options = dict(service().settings.selector_options)
    selection = {"name": service().settings.selector, **({"options": options} if options else {})}
    return str(yaml.safe_dump({"scheduler": {"algorithms": {"selection": selection}}}, sort_keys=False))


@page.post("/try")
@guarded
@looks
def compared() -> Any:
    """Decide the last decisions again under other priorities; nothing is changed."""
    text, requirement = request.form.get("config", "").replace("\r\n", "\n"), request.form.get("limit", "")[:4]
    limit = int(requirement) if requirement.isdecimal() else DECISIONS[1]
    shown: dict[str, Any] = {"here": "try", "text": text, "limits": DECISIONS, "limit": limit}
    try:
        result = ledger.tried(service(), who(), text, limit)
    except InputError as fault:
        return render("try.html", 422, **shown, fault=fault)
    return render("try.html", **shown, found=result, most=SHOWN)
