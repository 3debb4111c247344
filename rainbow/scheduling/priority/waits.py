"""Why each job waits, in people's words, and figures of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import isinf
from typing import Any

from rainbow.scheduling.policy import Wait
from rainbow.scheduling.priority.calendar import clock
from rainbow.scheduling.priority.dispatch import FAULTY, LIMITED, STARTED, Outcome
from rainbow.scheduling.priority.explain import FITS, SMALL, UNFIT
from rainbow.scheduling.priority.lines import Lines
from rainbow.scheduling.priority.model import Item

FOR_GOOD = {UNFIT, SMALL}  # what no end of a task and no other state of a worker changes


def waits(lines: Lines, outcomes: Iterable[Outcome]) -> list[Wait]:
    """Return one reason for every job of which something waits: that of its first waiting gang."""
    told: dict[str, Wait] = {}
    for ahead, outcome in enumerate(outcome for outcome in outcomes if outcome.verdict != STARTED):
        job = outcome.item.job.id
        if job not in told:
            told[job] = _wait(lines, outcome, ahead)
    return list(told.values())


def _wait(lines: Lines, outcome: Outcome, ahead: int) -> Wait:
    item, grant, reasons = outcome.item, outcome.grant, outcome.reasons
    facts: dict[str, Any] = {"ahead": ahead}
    if outcome.verdict == FAULTY:
        return Wait(item.job.id, "attributes", item.asks.fault, facts)
    if outcome.verdict == LIMITED:
        return Wait(item.job.id, "running-limit", "its owner or the job itself runs as much as it may", facts)
    if reasons is None:
        return Wait(item.job.id, "behind", f"{ahead} gangs before it wait for room", facts)
    now, offset = lines.view.now, lines.settings["utc_offset"]
    text, facts = reasons.text(now, offset), {**facts, **reasons.facts()}
    if grant is not None:
        soon = f"; expected to start at {clock(grant.start + offset, now + offset)}"
        workers = sorted({spot.worker for spot, _ in grant.spots})
        return Wait(item.job.id, "reserved", text + soon, {**facts, "start": grant.start, "kept": workers[:100]})
    if outcome.never:
        return _unpromised(lines, item, text, facts)
    if reasons.counts.get(FITS):
        return Wait(item.job.id, "too-few", f"{text}, too few for all its slots", facts)
    return Wait(item.job.id, "busy", text, facts)


def _unpromised(lines: Lines, item: Item, text: str, facts: dict[str, Any]) -> Wait:
    """Say that no time was found: for good, or for as long as nobody knows when what runs will end."""
    if facts["reasons"].keys() <= FOR_GOOD or _outlasts(lines, item):
        return Wait(item.job.id, "never", f"{text}; there is no time at which it fits", facts)
    endless = sum(isinf(lines.until(run)) for run in lines.view.runs)
    why = f": {endless} running tasks have no known end" if endless else ""
    return Wait(
        item.job.id, "no-time", f"{text}; no time was found at which it fits{why}", facts | {"endless": endless}
    )


def _outlasts(lines: Lines, item: Item) -> bool:
    """Tell whether an item runs longer than there is left of the advance reservation it is for."""
    kept = lines.reservations.get(item.asks.reservation)
    return kept is not None and max(lines.view.now, kept.start) + item.duration > kept.end


def figures(outcomes: Sequence[Outcome], most: int = 1_000) -> dict[str, Any]:
    """Return how many gangs met which verdict, and the first ones with every term of their priority."""
    shown = [
        {"job": o.item.job.id, "verdict": o.verdict, "priority": round(o.item.priority, 6), **o.item.terms}
        for o in outcomes[:most]
    ]
    return {"verdicts": dict(sorted(Counter(o.verdict for o in outcomes).items())), "priorities": shown}
