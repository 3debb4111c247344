"""A request as kinds are asked: its rule for workers, its needs, and whether kinds can answer it at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rainbow.matching.budget import FREE, Meter
from rainbow.matching.constraints import Rule
from rainbow.matching.kinds import HIDDEN
from rainbow.matching.rows import BY_FIELD

if TYPE_CHECKING:
    from rainbow.jobspec import Condition, Need, Request
    from rainbow.matching.kinds import Kind
    from rainbow.matching.rooted import Rooted
    from rainbow.matching.tally import Satisfied


class Passes(Protocol):
    """Tells whether workers of a kind, names aside, satisfy a constraint."""

    def __call__(self, kind: Kind, meter: Meter = FREE) -> bool:
        """Return the answer, a known one at no cost."""


class Question:
    """One request, prepared once for all clusters."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.rule = Rule(request.constraint) if request.constraint else None
        every = [r for variant in request.variants for top in variant for r in top.walk()]
        self.needs: list[Need] = [need for r in every for need in r.needs]
        conditions = [condition for need in self.needs for condition in need.conditions]
        self.names_workers = bool(self.rule and self.rule.named)
        self.asks_names = any(condition.options.get("field") == "name" for condition in conditions)
        # a slot directly in a slot, and what kinds hide or a matcher may look at, are left to the plain search
        nests = any(r.is_slot and any(child.is_slot for child in r.children) for r in every)
        self.by_kinds = not nests and all(map(_is_by_kind, conditions))
        self.passes = _passing(self.rule) if self.rule else None

    def judge(self, rooted: Rooted, meter: Meter) -> None:
        """Ask the constraint of every kind of worker; what is known when the budget ends is known next time."""
        if self.passes is not None:
            for kind in rooted.closure:
                if rooted.is_worker(kind):
                    self.passes(kind, meter)

    def satisfied(self, rooted: Rooted) -> Satisfied:
        """Return the rows below a root that meet each need."""
        return {need.number: rooted.meeting(need) for need in self.needs}


def _is_by_kind(condition: Condition) -> bool:
    return condition.matcher in BY_FIELD and condition.options.get("field") not in HIDDEN


def _passing(rule: Rule) -> Passes:
    """Return what tells whether workers of a kind, names aside, satisfy a constraint; asked once for each."""
    known: dict[frozenset[str], bool] = {}

    def passes(kind: Kind, meter: Meter = FREE) -> bool:
        if kind.properties not in known:
            known[kind.properties] = rule.passes({"properties": kind.properties, "name": None, "rank": None}, meter)
        return known[kind.properties]

    return passes
