"""RFC 31 constraints: which workers may serve a job, by properties, host name and rank."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rainbow.jobspec import Constraint
    from rainbow.matching.layout import Layout

_HOSTS = re.compile(r"([^,\[\]]*)(?:\[([^\]]*)\])?([^,\[\]]*)(?:,|$)")


def barred(constraint: Constraint | None, layout: Layout) -> list[int]:
    """Return the positions of the workers that fail the constraint."""
    if constraint is None:
        return []
    return [i for i in layout.workers if not passes(constraint, layout, i)]


def passes(constraint: Constraint, layout: Layout, i: int) -> bool:
    """Tell whether the worker at position `i` satisfies a constraint (RFC 31, "Constraint Operators")."""
    operator, operands = constraint.operator, constraint.operands
    vertex = layout.cluster.graph.nodes[layout.vertices[i]]
    if operator in ("and", "not"):
        return all(passes(o, layout, i) for o in operands) == (operator == "and")
    if operator == "or":
        return any(passes(o, layout, i) for o in operands) or not operands
    if operator == "properties":
        return all((p.removeprefix("^") in vertex["properties"]) != p.startswith("^") for p in constraint.values)
    if operator == "hostlist":
        return any(vertex["name"] in set(hosts(text)) for text in constraint.values)
    return vertex["rank"] is not None and any(in_idset(vertex["rank"], text) for text in constraint.values)


def hosts(text: str) -> Iterator[str]:
    """Expand an RFC 29 hostlist, one pair of brackets per name.

    >>> list(hosts("node[08-10,12],login"))
    ['node08', 'node09', 'node10', 'node12', 'login']
    """
    for prefix, ids, suffix in _HOSTS.findall(text):
        if not ids:
            if prefix or suffix:
                yield prefix + suffix
            continue
        for part in ids.split(","):
            low, _, high = part.partition("-")
            for number in range(int(low), int(high or low) + 1):
                yield f"{prefix}{number:0{len(low)}d}{suffix}"


def in_idset(rank: int, text: str) -> bool:
    """Tell whether an RFC 22 idset holds a rank.

    >>> in_idset(5, "0-3,5"), in_idset(4, "0-3,5")
    (True, False)
    """
    for part in text.strip("[]").split(","):
        low, _, high = part.partition("-")
        if low.strip().isdecimal() and int(low) <= rank <= int(high or low):
            return True
    return False
