"""Counts in all their forms: an integer, {min, max, operator, operand}, or RFC 14's strings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.request import Count

MOST = 2**53
_RANGE = re.compile(r"(\d{1,15})(?:-(\d{1,15})(?::(\d{1,15})(?::([+*^]))?)?|(\+))?")
_KEYS = {"min", "max", "operator", "operand"}


def read_count(value: Any, pointer: str) -> Count:
    """Read a count; JobspecError for 0, negative, fractions and anything malformed.

    >>> read_count("4,9,16", "").listed, read_count({"min": 2}, "").max is None
    ((4, 9, 16), True)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _checked(Count(value, value), pointer)
    if isinstance(value, str):
        return _from_text(value, pointer)
    if isinstance(value, Mapping):
        return _from_mapping(value, pointer)
    raise JobspecError(f"a count is a whole number, not {_shown(value)}", pointer=pointer)


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)[:40]


def _checked(count: Count, pointer: str) -> Count:
    if not 1 <= count.min <= MOST:
        raise JobspecError(f"a count is at least 1 and at most {MOST}, not {count.min}", pointer=pointer)
    if count.max is not None and not count.min <= count.max <= MOST:
        raise JobspecError(f"the count's max {count.max} is below its min {count.min}", pointer=pointer)
    least = {"+": 1, "*": 2, "^": 2}.get(count.operator)
    if least is None:
        raise JobspecError(f"a count's operator is +, * or ^, not {count.operator}", pointer=f"{pointer}/operator")
    if not least <= count.operand <= MOST or (count.operator == "^" and count.min < 2):
        raise JobspecError(f"the count never grows by {count.operator}{count.operand}", pointer=f"{pointer}/operand")
    return count


def _from_text(text: str, pointer: str) -> Count:
    if "," in text:
        parts = [_RANGE.fullmatch(part.strip()) for part in text.split(",")]
        if all(parts) and len(parts) <= 1_000:
            spans = [(int(part[1]), int(part[2] or part[1])) for part in parts if part]
            if all(1 <= low <= high < low + 10_000 for low, high in spans):
                listed = sorted({n for low, high in spans for n in range(low, high + 1)})
                return Count(listed[0], listed[-1], listed=tuple(listed))
    found = _RANGE.fullmatch(text.strip())
    if not found:
        raise JobspecError(
            f'a count as text reads "4", "2-10", "2-10:2", "4+" or "4,9,16", not {text[:40]!r}', pointer=pointer
        )
    low = int(found[1])
    high = None if found[5] else int(found[2] or low)
    return _checked(Count(low, high, found[4] or "+", int(found[3] or 1)), pointer)


def _from_mapping(value: Mapping[str, Any], pointer: str) -> Count:
    unknown = sorted(set(value) - _KEYS)
    if unknown:
        raise JobspecError(f"a count has no {unknown[0]}", pointer=f"{pointer}/{unknown[0]}")
    missing = sorted(_KEYS - set(value))
    if missing and set(value) != {"min"}:
        raise JobspecError(
            f"a count that is a mapping has min alone, or min, max, operator and operand; {missing[0]} is missing",
            pointer=pointer,
        )
    for key in ("min", "max", "operand"):
        if key in value and (isinstance(value[key], bool) or not isinstance(value[key], int)):
            raise JobspecError(
                f"a count's {key} is a whole number, not {_shown(value[key])}", pointer=f"{pointer}/{key}"
            )
    operator = str(value.get("operator", "+"))
    operand = value.get("operand", 1 if operator == "+" else 2)
    return _checked(Count(value["min"], value.get("max"), operator, operand), pointer)
