"""Texts that name a job, for client, server and router: `last`, and the errors for none or several."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rainbow.errors import NotFound

LAST = "last"  # the newest job of the person who asks
MOST_NAMED = 100  # jobs looked at for a name, or for the beginning of an id
LISTED = 3  # jobs that an error lists
LONGEST = 200  # characters of a name that an error repeats
_FEW_DIGITS = re.compile(r"[0-9a-f]{1,3}")


def not_one(text: str, rows: Sequence[Mapping[str, Any]], login: str | None = None) -> NotFound:
    """Return the error for a text that names no job, or several, which it lists.

    >>> twins = [{"id": "18e", "number": 2, "name": "train"}, {"id": "18d", "number": 1, "name": "train"}]
    >>> print(not_one("train", twins))
    2 jobs are named train: 2, 1; give a number
    """
    if rows:
        return _several(text, rows)
    if text == LAST:
        who = f"{login} has" if login else "you have"
        return NotFound(f"{who} no job here; rainbow jobs lists those that you may see")
    if _FEW_DIGITS.fullmatch(text) and not text.isdecimal():
        return NotFound(f"job {text} not found; give at least 4 digits of an id")
    return NotFound(f"job {text[:LONGEST]} not found")


def _several(text: str, rows: Sequence[Mapping[str, Any]]) -> NotFound:
    count = f"{MOST_NAMED} or more" if len(rows) >= MOST_NAMED else str(len(rows))
    what, hint, key = f"{count} jobs are named {text[:LONGEST]}", "give a number", "number"
    if text.isdecimal():  # servers behind one router whose numbers have one range
        hint, key = "give an id", "id"
    elif any(row["name"] != text for row in rows):
        what, hint, key = f"several jobs begin with {text[:LONGEST]}", "give more digits of the id", "id"
    some = [str(row.get(key) or row["id"]) for row in rows]
    listed = ", ".join(some[:LISTED]) + (", ..." if len(some) > LISTED else "")
    return NotFound(f"{what}: {listed}; {hint}", jobs=[row["id"] for row in rows])
