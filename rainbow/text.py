"""Natural order of names, counts in English, the word that was probably meant, and tables for notebooks."""

from __future__ import annotations

import difflib
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas


_DIGITS = re.compile(r"(\d+)")


@lru_cache(maxsize=65_536)  # core0 to core47 stand in every node
def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return the sort key of a name.

    >>> sorted(["node10", "node2", "node1"], key=natural)
    ['node1', 'node2', 'node10']
    """
    # numbers compare by length, then as text: int() would refuse absurdly long ones
    return tuple(
        (len(part.lstrip("0")), part.lstrip("0")) if part.isdecimal() else (-1, part)
        for part in _DIGITS.split(text)
        if part
    )


Entry = TypeVar("Entry")


def _in_utc(local: datetime) -> float:
    return local.replace(tzinfo=UTC).timestamp()


def seconds_of(text: str, local: Callable[[datetime], float] = _in_utc) -> float:
    """Read an RFC 3339 time, leap seconds and small letters too, in seconds since 1970.

    `local` reads a time without a zone; by default that is UTC.

    >>> seconds_of("1970-01-01T00:00:01Z"), seconds_of("1969-12-31t23:59:60z")
    (1.0, 0.0)
    """
    leap = text[16:19] == ":60"  # no datetime has it: the second after :59
    result = datetime.fromisoformat((f"{text[:17]}59{text[19:]}" if leap else text).upper())
    return (result.timestamp() if result.tzinfo else local(result)) + leap


MOST_WARNINGS = 50


def shortened(warnings: Iterable[Entry], words: Callable[[Entry], str] = str) -> Iterator[str]:
    """Yield the first of many warnings in words, and how many more there are."""
    for k, warning in enumerate(results := list(warnings)):
        if k == MOST_WARNINGS:
            yield f"... and {len(results) - k} more of this kind"
            return
        yield words(warning)


LONGEST = 100  # characters that are compared
REFUSED = "submit refuses the job"  # that may be matched: resources alone say whether it fits
UNREAD = "unknown key "
VERSION = "/version "
IGNORED = " ignored"


def meant(name: Any, known: Iterable[str]) -> str:
    """Return "did you mean ...?" if a known name is near, else nothing.

    >>> meant("replica", ["replicas", "type"]), meant("colour", ["replicas", "type"])
    ('did you mean replicas?', '')
    """
    result = difflib.get_close_matches(str(name)[:LONGEST], list(known), n=1, cutoff=0.75)
    return f"did you mean {result[0]}?" if result else ""


def unread(at: str, key: Any, known: Iterable[str]) -> str:
    """Write the warning that a key (found at a pointer) is not read."""
    hint = meant(key, known)
    return f"{UNREAD}{at}{IGNORED}{hint and f'; {hint}'}"


def as_json(value: object) -> str:
    """Write a value as JSON does, if that is short; else name its kind.

    >>> as_json(None), as_json(True), as_json({"a": None}), as_json([1])
    ('null', 'true', 'an object', 'an array')
    """
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "an array"
    text = json.dumps(value, default=str)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


LATEST = 253_402_300_799.0  # the last second of the year 9999, which is as far as RFC 3339 goes


def in_time(seconds: float) -> str:
    """Write a duration with its largest units.

    >>> in_time(129600), in_time(5400), in_time(30), in_time(86400)
    ('1d 12h', '1h 30m', '30s', '1d')
    """
    parts, remaining = [], round(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if remaining >= size:
            parts.append(f"{remaining // size}{unit}")
            remaining %= size
    return " ".join(parts[:2]) or "0s"


def some(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun.

    >>> some(1, "job"), some(2, "job"), some(1, "is", "are"), some(0, "quantum", "quanta")
    ('1 job', '2 jobs', '1 is', '0 quanta')
    """
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Write a small table for a notebook; names that users chose are escaped.

    >>> html_table("a<b", [("nodes", 2)])
    '<table><caption>a&lt;b</caption><tr><th>nodes</th><td>2</td></tr></table>'
    """
    cells = (f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows)
    return f"<table><caption>{html.escape(title)}</caption>{''.join(cells)}</table>"


def rfc3339(seconds: float) -> str | None:
    """Return a time, given in seconds since 1970, as RFC 3339 in UTC; None for one that is unknown or never comes.

    >>> rfc3339(0.5), rfc3339(float("inf"))
    ('1970-01-01T00:00:00.500Z', None)
    """
    if not isfinite(seconds) or not 0 <= seconds <= LATEST:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def data_frame(rows: Iterable[Mapping[str, Any]], index: str) -> pandas.DataFrame:
    """Return rows as a DataFrame with the index of this column; whole numbers stay whole where some are missing."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_frame requires pandas; run: pip install 'rainbow-hpc[notebook]'") from error
    listed = list(rows)
    names = dict.fromkeys(name for row in listed for name in row)
    table = pandas.DataFrame.from_records(listed, columns=[*names] or [index])
    return table.convert_dtypes().set_index(index)
