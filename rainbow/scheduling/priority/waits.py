"""Why each job waits, in people's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rainbow.scheduling.policy import View, Wait
from rainbow.scheduling.priority.dispatch import Outcome


def waits(view: View, outcomes: Iterable[Outcome]) -> list[Wait]:
    """Return one reason for every job of which something waits: that of its first waiting gang."""
    told: dict[str, Wait] = {}
    for ahead, outcome in enumerate(outcomes):
        job = outcome.item.job.id
        if outcome.verdict != "started" and job not in told:
            told[job] = _wait(view, outcome, ahead)
    return list(told.values())


def _wait(view: View, outcome: Outcome, ahead: int) -> Wait:
    job, grant = outcome.item.job.id, outcome.grant
    if outcome.item.asks.fault:
        return Wait(job, "attributes", outcome.item.asks.fault, {})
    facts = {"ahead": ahead, "priority": round(outcome.item.priority, 6), "terms": dict(outcome.item.terms)}
    if grant is not None:
        text = f"expected to start in {grant.start - view.now:.0f} s on {len(grant.spots)} workers kept for it"
        return Wait(job, "reserved", text, {**facts, "start": grant.start})
    if outcome.verdict in ("behind", "skipped"):
        return Wait(job, "behind", "a job before it waits for room", facts)
    return Wait(job, "busy", "does not fit now beside what runs and what is promised", facts)


def figures(outcomes: Sequence[Outcome], most: int = 1_000) -> dict[str, Any]:
    """Return how many gangs met which verdict, and the first ones with every term of their priority."""
    shown = [
        {"job": o.item.job.id, "verdict": o.verdict, "priority": round(o.item.priority, 6), **o.item.terms}
        for o in outcomes[:most]
    ]
    return {"verdicts": dict(sorted(Counter(o.verdict for o in outcomes).items())), "priorities": shown}
