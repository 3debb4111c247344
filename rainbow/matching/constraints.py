"""RFC 31 constraints: which workers may serve a job, by properties, host name and rank."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from rainbow.jobspec.names import expand_hosts, expand_ids
from rainbow.jobspec.wants import MOST_NAMES
from rainbow.matching.budget import FREE, Meter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rainbow.jobspec import Constraint
    from rainbow.matching.layout import Layout


MOST_CLUES = 64  # of one operand: hosts or ranks it names


class Rule:
    """A constraint with its hostlists and idsets expanded once."""

    def __init__(self, constraint: Constraint) -> None:
        self.operator = constraint.operator
        self.properties = constraint.values if constraint.operator == "properties" else ()
        self.operands = [Rule(operand) for operand in constraint.operands]
        own: list[Any] = []
        for text in constraint.values:
            if constraint.operator == "hostlist":
                own.extend(expand_hosts(text, MOST_NAMES) or ())
            elif constraint.operator == "ranks":
                own.extend(expand_ids(text, MOST_NAMES) or ())
        self.own = frozenset(own)
        self.by_clue, self.without_clue = self._filed() if self.operator == "or" else ({}, [])
        # names are texts and ranks are integers: one set holds both
        self.named: frozenset[str | int] = self.own.union(*(operand.named for operand in self.operands))

    def clues(self) -> frozenset[tuple[str, Any]] | None:
        """Return facts of which a worker that passes has at least one; None if there are no such facts, or many."""
        if self.operator == "properties":
            return next((frozenset({("", p)}) for p in self.properties if not p.startswith("^")), None)
        if self.operator == "and":
            found = [clues for operand in self.operands if (clues := operand.clues()) is not None]
            return min(found, key=len, default=None)
        if self.operator not in ("hostlist", "ranks"):
            return None
        field = "name" if self.operator == "hostlist" else "rank"
        return frozenset((field, own) for own in self.own) if len(self.own) <= MOST_CLUES else None

    def _filed(self) -> tuple[dict[tuple[str, Any], list[Rule]], list[Rule]]:
        """File operands by their clues: a worker is asked about those alone that it has a clue of."""
        filed: dict[tuple[str, Any], list[Rule]] = {}
        others: list[Rule] = []
        for operand in self.operands:
            clues = operand.clues()
            for clue in clues or ():
                filed.setdefault(clue, []).append(operand)
            if clues is None:
                others.append(operand)
        return filed, others

    def _any(self, vertex: Mapping[str, Any], meter: Meter) -> bool:
        facts = [("name", vertex["name"]), ("rank", vertex["rank"]), *(("", p) for p in vertex["properties"])]
        filed = (operand for fact in facts for operand in self.by_clue.get(fact, ()))
        return any(operand.passes(vertex, meter) for operand in chain(filed, self.without_clue))

    def passes(self, vertex: Mapping[str, Any], meter: Meter = FREE) -> bool:
        """Tell whether a worker of these properties, name and rank satisfies it (RFC 31, "Constraint Operators")."""
        meter.step()
        if self.operator in ("and", "not"):
            return all(operand.passes(vertex, meter) for operand in self.operands) == (self.operator == "and")
        if self.operator == "or":
            return self._any(vertex, meter) or not self.operands
        if self.operator == "properties":
            has = vertex["properties"]
            return all((p.removeprefix("^") in has) != p.startswith("^") for p in self.properties)
        return vertex["name" if self.operator == "hostlist" else "rank"] in self.own


def barred(constraint: Constraint | None, layout: Layout, meter: Meter = FREE) -> list[int]:
    """Return the positions of the workers that fail the constraint."""
    if constraint is None:
        return []
    rule = Rule(constraint)
    return [i for i in layout.workers if not rule.passes(layout.facts(i), meter)]
