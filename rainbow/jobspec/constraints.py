"""RFC 31 constraints: which workers a job may run on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rainbow.errors import JobspecError, LimitError
from rainbow.jobspec.names import count_hosts, count_ids
from rainbow.jobspec.request import Constraint
from rainbow.jobspec.text import step
from rainbow.jobspec.wants import MOST_NAMES, listing, mapping

LONGEST_HOST = 255  # characters (RFC 1035)
_PROPERTY = re.compile(r"\^?[^\s!&'\"^`|()]+")  # RFC 31 lists the characters a property cannot hold
_PARTS = re.compile(r"[\[\],]")
_COUNTS = {"hostlist": count_hosts, "ranks": count_ids}


def read_constraint(value: Any, pointer: str) -> Constraint:
    """Read an RFC 31 constraint: one operator an object, its operands a list."""
    constraint = _constraint(value, pointer)
    named = sum(_COUNTS[leaf.operator](text) or 0 for leaf in _leaves(constraint) for text in leaf.values)
    if named > MOST_NAMES:
        raise LimitError(f"a constraint that names {named} hosts and ranks", pointer=pointer, limit="names")
    return constraint


def _leaves(constraint: Constraint) -> Iterator[Constraint]:
    if constraint.operator in _COUNTS:
        yield constraint
    for operand in constraint.operands:
        yield from _leaves(operand)


def _constraint(value: Any, pointer: str) -> Constraint:
    entry = mapping(value, pointer)
    if len(entry) != 1:
        raise JobspecError("a constraint has one operator", pointer=pointer)
    operator, operands = next(iter(entry.items()))
    at = f"{pointer}/{step(operator)}"
    if operator in ("and", "or", "not"):
        inner = tuple(_constraint(part, f"{at}/{k}") for k, part in enumerate(listing(operands, at)))
        return Constraint(operator, operands=inner)
    if operator not in ("properties", "hostlist", "ranks"):
        raise JobspecError(f"RFC 31 has no operator {operator}", pointer=at)
    values = tuple(str(part) for part in listing(operands, at))
    for k, (part, text) in enumerate(zip(operands, values, strict=True)):
        if not _constrains(operator, part, text):
            raise JobspecError(f"{text[:40]!r} cannot be among {operator}", pointer=f"{at}/{k}")
    return Constraint(operator, values=values)


def _constrains(operator: str, value: Any, text: str) -> bool:
    """Tell whether a text has the form its operator wants: RFC 31 property names, RFC 29 hosts, RFC 22 ranks."""
    if operator == "ranks":
        return count_ids(text) is not None and isinstance(value, (str, int)) and not isinstance(value, bool)
    if not isinstance(value, str) or not value:
        return False
    if operator == "hostlist":
        return count_hosts(text) is not None and all(len(part) <= LONGEST_HOST for part in _PARTS.split(text))
    return _PROPERTY.fullmatch(text) is not None
