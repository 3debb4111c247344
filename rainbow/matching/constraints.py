"""RFC 31 constraints: which workers may serve a job, by properties, host name and rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.jobspec.names import expand_hosts, expand_ids
from rainbow.jobspec.wants import MOST_NAMES

if TYPE_CHECKING:
    from rainbow.jobspec import Constraint
    from rainbow.matching.layout import Layout


def barred(constraint: Constraint | None, layout: Layout) -> list[int]:
    """Return the positions of the workers that fail the constraint."""
    if constraint is None:
        return []
    return [i for i in layout.workers if not passes(constraint, layout, i)]


def passes(constraint: Constraint, layout: Layout, i: int) -> bool:
    """Tell whether the worker at position `i` satisfies a constraint (RFC 31, "Constraint Operators")."""
    operator, operands = constraint.operator, constraint.operands
    vertex = layout.facts(i)
    if operator in ("and", "not"):
        return all(passes(o, layout, i) for o in operands) == (operator == "and")
    if operator == "or":
        return any(passes(o, layout, i) for o in operands) or not operands
    if operator == "properties":
        return all((p.removeprefix("^") in vertex["properties"]) != p.startswith("^") for p in constraint.values)
    if operator == "hostlist":
        return any(vertex["name"] in (expand_hosts(text, MOST_NAMES) or ()) for text in constraint.values)
    return any(vertex["rank"] in (expand_ids(text, MOST_NAMES) or ()) for text in constraint.values)
