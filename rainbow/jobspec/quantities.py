"""Counts, ranges of counts, and amounts with units.

A count is an integer, {min, max, operator, operand}, or one of RFC 14's texts: RFC 22 idsets ("3,5-8": these and no
others) and RFC 45 ranges ("2-64:2:*", "4+"), in brackets or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.request import Count, Numbers, Resource
from rainbow.text import shortened

MOST_COUNT = 2**53
MOST_LISTED = 10_000  # numbers in one count
_KEYS = ("min", "max", "operator", "operand")
_NUMBER = r"([1-9][0-9]{0,15})"
_RANGE = re.compile(rf"{_NUMBER}(?:(?:(\+)|-{_NUMBER})(?::{_NUMBER}(?::([+*^]))?)?)?")
_SPAN = re.compile(rf"{_NUMBER}(?:-{_NUMBER})?")


def read_count(value: Any, pointer: str) -> Count:
    """Read a count; JobspecError for 0, negative, fractions and anything malformed.

    >>> list(read_count("4,9,16", "").listed), read_count({"min": 2}, "").max is None
    ([4, 9, 16], True)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _checked(Count(int(value), int(value)), pointer)
    if isinstance(value, str):
        return _from_text(value, pointer)
    if isinstance(value, Mapping):
        return _from_mapping(value, pointer)
    raise JobspecError(f"count must be an integer, got {_shown(value)}", pointer=pointer)


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)[:40]


def _checked(count: Count, pointer: str) -> Count:
    if not 1 <= count.min <= MOST_COUNT:
        raise JobspecError(f"count must be between 1 and {MOST_COUNT}, got {count.min}", pointer=pointer)
    if count.max is not None and count.max < count.min:
        raise JobspecError(f"the count's max {count.max} is below its min {count.min}", pointer=pointer)
    if count.max is not None and count.max > MOST_COUNT:
        raise JobspecError(f"count must be between 1 and {MOST_COUNT}, got {count.max}", pointer=pointer)
    least = {"+": 1, "*": 2, "^": 2}.get(count.operator)
    if least is None:
        raise JobspecError(
            f"a count's operator is +, * or ^, not {count.operator[:9]}", pointer=f"{pointer}/operator"
        )
    if not least <= count.operand <= MOST_COUNT or (count.operator == "^" and count.min < 2):
        raise JobspecError(f"count does not grow with {count.operator}{count.operand}", pointer=f"{pointer}/operand")
    return count


def _from_text(text: str, pointer: str) -> Count:
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if "," in bare:
        return _listed(bare, pointer)
    result = _RANGE.fullmatch(bare)
    if not result:
        raise _malformed(text, pointer)
    low, endless, high, operand, operator = result.groups()
    most = None if endless else int(high or low)
    return _checked(Count(int(low), most, operator or "+", int(operand or 1)), pointer)


def _listed(text: str, pointer: str) -> Count:
    spans: list[range] = []
    for part in text.split(","):
        result = _SPAN.fullmatch(part)
        if not result:
            raise _malformed(text, pointer)
        low, high = int(result[1]), int(result[2] or result[1])
        if high < low or high > MOST_COUNT or (spans and low < spans[-1].stop):
            raise JobspecError(
                f"numbers in a count list must ascend (RFC 22): {part} is out of order", pointer=pointer
            )
        spans.append(range(low, high + 1))
    numbers = Numbers(tuple(spans))
    if len(numbers) > MOST_LISTED:
        raise JobspecError(
            f"a count that lists {len(numbers)} numbers, at most {MOST_LISTED} are read", pointer=pointer
        )
    return Count(spans[0].start, spans[-1].stop - 1, listed=numbers)


def _malformed(text: str, pointer: str) -> JobspecError:
    return JobspecError(
        f'invalid count {text[:40]!r}: expected a form such as "4", "4+", "2-10", "2-10:2", '
        '"2-64:2:*" or "4,9,16-20"',
        pointer=pointer,
    )


def _from_mapping(value: Mapping[str, Any], pointer: str) -> Count:
    unknown = sorted(set(value) - set(_KEYS))
    if unknown:
        raise JobspecError(f"a count has no {unknown[0]}", pointer=f"{pointer}/{unknown[0]}")
    missing = [key for key in _KEYS if key not in value]
    if missing and set(value) != {"min"}:
        raise JobspecError(
            f"a count that is a mapping has min alone, or min, max, operator and operand; {missing[0]} is missing",
            pointer=pointer,
        )
    for key in ("min", "max", "operand"):
        if key in value and (isinstance(value[key], bool) or not isinstance(value[key], int)):
            raise JobspecError(
                f"a count's {key} must be an integer, got {_shown(value[key])}", pointer=f"{pointer}/{key}"
            )
    if missing:
        return _checked(Count(int(value["min"]), None), pointer)
    operator = str(value["operator"])
    return _checked(Count(int(value["min"]), int(value["max"]), operator, int(value["operand"])), pointer)


MEMORY = "memory"
LONGEST = 60  # characters of a unit that are repeated


def about_units(variants: Iterable[Iterable[Resource]]) -> Iterator[str]:
    """Yield a warning for every unit that only measures itself, and for memory without any."""
    trees = {resource.number: resource for forest in variants for resource in forest}  # variants share theirs
    results = (warning for tree in trees.values() for part in tree.walk() if (warning := _about(part)))
    return shortened(dict.fromkeys(results))


def _about(part: Resource) -> str:
    if part.unit and not is_known(part.unit):
        hint = f"did you mean {known}? " if (known := known_unit(part.unit)) else ""
        only = f"{hint}it only matches vertices with exactly this unit (known units: {KNOWN})"
        return f"unknown unit {part.unit[:LONGEST]}; {only}"
    if not part.unit and part.type == MEMORY:
        return f"{MEMORY} has no unit and is interpreted in each cluster's own unit; add a unit such as GiB"
    return ""


_DECIMAL = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_PREFIXES = {"": 1, **_DECIMAL, **_BINARY}
_BASES = {"B": "byte", "Hz": "hertz", "W": "watt", "J": "joule"}


@lru_cache(maxsize=1024)
def quantity(unit: str) -> tuple[str, int]:
    """Return what a unit measures and how many base units it is; a unit we do not know measures itself.

    >>> quantity("GiB"), quantity("W"), quantity("furlong"), quantity("")
    (('byte', 1073741824), ('watt', 1), ('furlong', 1), ('', 1))
    """
    for base, measured in _BASES.items():
        if unit.endswith(base) and unit.removesuffix(base) in _PREFIXES:
            return measured, _PREFIXES[unit.removesuffix(base)]
    return unit, 1


def amount_of(value: Any) -> int | None:
    """Return an amount such as "400000MiB" in base units; None if it is none.

    >>> amount_of("2KiB"), amount_of(64), amount_of("100TiB") == 100 * 2**40, amount_of("much")
    (2048, 64, True, None)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value >= 0 else None
    if not isinstance(value, str):
        return None
    number = value.rstrip("BKMGTPEkiHzWJ ")
    unit = value[len(number) :].strip()
    if not number.isascii() or not number.isdecimal() or len(number) > 16:
        return None
    measured, factor = quantity(unit)
    return int(number) * factor if not unit or measured != unit or factor > 1 else None


def base_unit(measured: str) -> str:
    """Return the base unit of a quantity: amounts are counted in whole numbers of it.

    >>> base_unit("byte"), base_unit("furlong")
    ('B', 'furlong')
    """
    return next((base for base, named in _BASES.items() if named == measured), measured)


def in_words(amount: int, unit: str) -> str:
    """Write an amount in base units with the prefix that says it exactly in the fewest digits.

    >>> in_words(13 * 10**9, "B"), in_words(500_000_000, "B"), in_words(6 * 2**20, "B"), in_words(3, "")
    ('13 GB', '500 MB', '6 MiB', '3')
    """
    prefixes = _PREFIXES if unit in _BASES and amount else {"": 1}
    exact = ((amount // factor, prefix) for prefix, factor in prefixes.items() if amount % factor == 0)
    number, prefix = min(exact, key=lambda said: (len(str(said[0])), len(said[1])))
    return f"{number} {prefix}{unit}".strip()


def finer(unit: str, most: int) -> tuple[str, int]:
    """Return the largest unit of a unit's family that is no more than `most` base units, and how many of it it is.

    >>> finer("TB", 32 * 10**9), finer("GiB", 2**40), finer("furlong", 0)
    (('GB', 1000), ('GiB', 1), ('furlong', 1))
    """
    measured, factor = quantity(unit)
    base = base_unit(measured)
    family = {"": 1, **(_BINARY if unit.removesuffix(base) in _BINARY else _DECIMAL)}
    if factor <= max(most, 1):
        return unit, 1
    prefix = max((prefix for prefix in family if family[prefix] <= max(most, 1)), key=family.__getitem__)
    return prefix + base, factor // family[prefix]


def known_unit(unit: str) -> str:
    """Return the known unit that is written with other capitals or with its base, else nothing.

    >>> known_unit("gb"), known_unit("GIB"), known_unit("Gi"), known_unit("furlong")
    ('GB', 'GiB', 'GiB', '')
    """
    known = {f"{prefix}{base}".lower(): f"{prefix}{base}" for base in _BASES for prefix in _PREFIXES if prefix != "K"}
    return known.get(unit.lower(), "") or known.get(f"{unit}b".lower(), "")


def is_known(unit: str) -> bool:
    """Return whether a unit is one that amounts are converted from.

    >>> is_known("MiB"), is_known("Mib"), is_known("")
    (True, False, False)
    """
    return quantity(unit)[0] in _BASES.values() and unit not in _BASES.values()


KNOWN = f"{', '.join(_BASES)}, and these after one of {', '.join(_DECIMAL | _BINARY)}"
