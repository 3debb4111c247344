"""How the page writes times, numbers and hostile text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from math import isfinite
from typing import Any

from markupsafe import Markup, escape

from rainbow.service.queries.occupancy import tenths

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff]")
LONGEST = 200  # characters of a name that are shown
LONGEST_LINE = 2_000
MOST_DRAWN = 120  # points of a line
MINUTE, HOUR, DAY = 60, 3600, 86_400


def clean(text: object, longest: int = LONGEST) -> str:
    """Return a text of a user without characters that could deceive its reader: direction, control, length.

    >>> clean("a\\x1b[31mb\\u202ec")
    'ab\u27e8U+202E\u27e9c'
    """
    result = str(text if text is not None else "")
    if not (result.isascii() and result.isprintable()):  # nearly all names are, and a fleet has a thousand
        result = CONTROL.sub("\ufffd", _marked(ANSI.sub("", result)))
    return result if len(result) <= longest else f"{result[:longest]}…"


def _marked(text: str) -> str:
    return BIDI.sub(lambda result: f"\u27e8U+{ord(result.group()):04X}\u27e9", text)


def output(text: str) -> str:
    """Return a task's output as plain lines, none of them longer than LONGEST_LINE."""
    return "\n".join(
        clean(line.replace("\t", "    "), LONGEST_LINE) for line in text.replace("\r\n", "\n").split("\n")
    )


def count(value: float) -> str:
    """Write a number with its thousands apart.

    >>> count(91446), count(0.5)
    ('91,446', '0.5')
    """
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def span(seconds: float | None) -> str:
    """Write a length of time in at most two units.

    >>> span(3), span(61), span(11400), span(200000)
    ('3 s', '1 min', '3 h 10', '2 d 7 h')
    """
    if seconds is None or not isfinite(seconds):
        return "–"
    whole = int(max(0.0, seconds))
    if whole < MINUTE:
        return f"{whole} s" if whole or seconds <= 0 else "< 1 s"
    if whole < HOUR:
        return f"{whole // MINUTE} min"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE:02}"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"


def seconds(value: object) -> float | None:
    """Return a time in seconds since 1970, however it was given."""
    if isinstance(value, str):
        return datetime.fromisoformat(value).timestamp()
    return float(value) if isinstance(value, (int, float)) and isfinite(value) else None


def when(value: object, short: bool = True) -> str:
    """Write a time as an element: UTC here, and in the reader's zone where JavaScript is on."""
    at = seconds(value)
    if at is None:
        return "–"
    answer = datetime.fromtimestamp(at, UTC)
    text = answer.strftime("%H:%M:%S" if short else "%Y-%m-%d %H:%M:%S")
    iso = answer.strftime("%Y-%m-%dT%H:%M:%SZ")
    return Markup('<time datetime="{0}" title="{0}"{1}>{2} UTC</time>').format(
        iso, "" if short else Markup(" data-long"), text
    )


def lines(values: Sequence[float | None], width: int, height: int) -> list[str]:
    """Return the lines that draw values over time, one for each stretch that is known; the highest of some are drawn.

    >>> lines([0, 2, None, 1, 1], 40, 12)
    ['0,10 10,2', '30,6 40,6']
    """
    step = max(1, -(-len(values) // MOST_DRAWN))
    drawn = [
        max((one for one in values[k : k + step] if one is not None), default=None)
        for k in range(0, len(values), step)
    ]
    top, wide = max((one for one in drawn if one), default=1), width / max(1, len(drawn) - 1)
    places = [
        None if one is None else f"{k * wide:.4g},{height - 2 - (height - 4) * one / top:.4g}"
        for k, one in enumerate(drawn)
    ]
    return [" ".join(filter(None, known)) for is_gap, known in groupby(places, lambda one: one is None) if not is_gap]


def ahead(value: object, now: float) -> str:
    """Write an expected start: one that has passed can come at any moment."""
    return "any moment" if _is_over(value, now) else when(value)


def ends(value: object, now: float, start: object = None) -> str:
    """Write when an end is expected, as much later as its start is late; one that runs has outlasted its forecast."""
    begin, at = seconds(start), seconds(value)
    if begin is None or at is None:
        return "later than forecast" if _is_over(value, now) else when(value)
    return when(at + max(0.0, now - begin))


def band(low: object, high: object, now: float) -> Markup | str:
    """Write between which times a start is likely; nothing, if all of that is over."""
    is_known = seconds(low) is not None and not _is_over(high, now)
    return Markup("{} – {}").format(when(low), when(high)) if is_known else "–"


def _is_over(value: object, now: float) -> bool:
    at = seconds(value)
    return at is not None and at <= now


def amounts(values: Mapping[str, Any] | None, units: Mapping[str, str] | None = None) -> str:
    """Write amounts by type; that a cluster has one cluster says nothing.

    >>> amounts({"cluster": 1, "node": 2, "memory": 64, "gpu": 0}, {"memory": "GB"})
    'node 2, memory 64 GB'
    >>> amounts({"memory": 256_000_000_000}, {"memory": "B"})
    'memory 256 GB'
    """
    answers = (
        f"{clean(kind)} {_amount(n, (units or {}).get(kind, ''))}"
        for kind, n in (values or {}).items()
        if n and kind != "cluster"
    )
    return ", ".join(answers)


def _amount(value: float, unit: str) -> str:
    if unit == "B":
        step, names = 1024 if value % 10**6 and value % 1024 == 0 else 1000, "KMGT"
        for name in reversed(names):
            if value >= step ** (names.index(name) + 1):
                return f"{count(value / step ** (names.index(name) + 1))} {name}{'iB' if step == 1024 else 'B'}"
    return f"{count(value)} {unit}".rstrip()


def tone(state: str) -> str:
    """Return the class of a state's badge; its word says the same."""
    return TONES.get(str(state), "plain")


TONES = {
    **dict.fromkeys(("up", "RUNNING", "COMPLETED", "READY", "yes", "idle"), "good"),
    **dict.fromkeys(("WAITING", "UNPLACED", "DRAINING", "drained", "deleting", "SUSPENDED", "undecided"), "wait"),
    **dict.fromkeys(("unattended", "FAILED", "TIMED_OUT", "LOST", "QUARANTINED", "no", "failed"), "bad"),
    **dict.fromkeys(("ASSIGNED", "ACCEPTED", "STOPPING"), "move"),
}


def percent(part: float) -> str:
    """Write a share: one above zero is never written as zero.

    >>> percent(0.004), percent(0.996), percent(1)
    ('1 %', '99 %', '100 %')
    """
    if part <= 0 or part >= 1:
        return f"{100 * min(1, max(0, part)):.0f} %"
    return f"{min(99, max(1, round(100 * part)))} %"


def setting(value: Any) -> str:
    """Return a setting as the page of changes shows it.

    >>> setting(None), setting({"b": 1, "a": [2]}), setting("x")
    ('–', '{"a": [2], "b": 1}', 'x')
    """
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value, sort_keys=True)


FILTERS = {
    "setting": setting,
    "lines": lines,
    "clean": clean,
    "output": output,
    "count": count,
    "span": span,
    "when": when,
    "ahead": ahead,
    "ends": ends,
    "band": band,
    "amounts": amounts,
    "tone": tone,
    "percent": percent,
    "tenths": tenths,  # the class of a bar or a tile
    "seconds": seconds,
    "quoted": escape,
}
