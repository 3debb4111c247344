"""RFC 31 constraints: which workers may serve a job, by properties, host name and rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rainbow.jobspec.names import expand_hosts, expand_ids
from rainbow.jobspec.wants import MOST_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rainbow.jobspec import Constraint
    from rainbow.matching.layout import Layout


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
        # names are texts and ranks are integers: one set holds both
        self.named: frozenset[str | int] = self.own.union(*(operand.named for operand in self.operands))

    def passes(self, vertex: Mapping[str, Any]) -> bool:
        """Tell whether a worker of these properties, name and rank satisfies it (RFC 31, "Constraint Operators")."""
        if self.operator in ("and", "not"):
            return all(operand.passes(vertex) for operand in self.operands) == (self.operator == "and")
        if self.operator == "or":
            return any(operand.passes(vertex) for operand in self.operands) or not self.operands
        if self.operator == "properties":
            has = vertex["properties"]
            return all((p.removeprefix("^") in has) != p.startswith("^") for p in self.properties)
        return vertex["name" if self.operator == "hostlist" else "rank"] in self.own


def barred(constraint: Constraint | None, layout: Layout) -> list[int]:
    """Return the positions of the workers that fail the constraint."""
    if constraint is None:
        return []
    rule = Rule(constraint)
    return [i for i in layout.workers if not rule.passes(layout.facts(i))]
