"""Why each job waits, in people's words, and figures of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from rainbow.scheduling.policy import Wait
from rainbow.scheduling.priority.calendar import clock
from rainbow.scheduling.priority.dispatch import BEHIND, FAULTY, LIMITED, RESERVED, STARTED, Outcome
from rainbow.scheduling.priority.explain import FITS, Reasons, explain
from rainbow.scheduling.priority.lines import Lines

MOST = 100_000  # answers of workers in one run; categories beyond that are told shortly


class Teller:
    """Tells why jobs wait; equal items are explained once."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.known: dict[Hashable, Reasons] = {}

    def waits(self, outcomes: Iterable[Outcome]) -> list[Wait]:
        """Return one reason for every job of which something waits: that of its first waiting gang."""
        told: dict[str, Wait] = {}
        for ahead, outcome in enumerate(outcome for outcome in outcomes if outcome.verdict != STARTED):
            job = outcome.item.job.id
            if job not in told:
                told[job] = self._wait(outcome, ahead)
        return list(told.values())

    def _wait(self, outcome: Outcome, ahead: int) -> Wait:
        item, grant = outcome.item, outcome.grant
        facts: dict[str, Any] = {"ahead": ahead}
        if outcome.verdict == FAULTY:
            return Wait(item.job.id, "attributes", item.asks.fault, facts)
        if outcome.verdict == LIMITED:
            return Wait(item.job.id, "running-limit", "its owner or the job itself runs as much as it may", facts)
        if outcome.verdict == BEHIND:
            return Wait(item.job.id, "behind", f"{ahead} gangs before it wait for room", facts)
        reasons = self._reasons(outcome)
        now, offset = self.lines.view.now, self.lines.settings["utc_offset"]
        text, facts = reasons.text(now, offset), {**facts, **reasons.facts()}
        if outcome.verdict == RESERVED and grant is not None:
            soon = f"; expected to start at {clock(grant.start + offset, now + offset)}"
            workers = sorted({spot.worker for spot, _ in grant.spots})
            return Wait(item.job.id, "reserved", text + soon, {**facts, "start": grant.start, "kept": workers[:100]})
        if outcome.never:
            return Wait(item.job.id, "never", f"{text}; no time was found at which it fits", facts)
        if reasons.counts.get(FITS):
            return Wait(item.job.id, "too-few", f"{text}, too few for all its slots", facts)
        return Wait(item.job.id, "busy", text, facts)

    def _reasons(self, outcome: Outcome) -> Reasons:
        category = outcome.item.category
        if category not in self.known and len(self.known) * len(self.lines.workers) > MOST:
            return Reasons(len(self.lines.workers), {"not asked one by one": len(self.lines.workers)})
        if category not in self.known:
            self.known[category] = explain(self.lines, outcome.item)
        return self.known[category]


def figures(outcomes: Sequence[Outcome], most: int = 1_000) -> dict[str, Any]:
    """Return how many gangs met which verdict, and the first ones with every term of their priority."""
    shown = [
        {"job": o.item.job.id, "verdict": o.verdict, "priority": round(o.item.priority, 6), **o.item.terms}
        for o in outcomes[:most]
    ]
    return {"verdicts": dict(sorted(Counter(o.verdict for o in outcomes).items())), "priorities": shown}
