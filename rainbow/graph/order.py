"""The one order of names: digits compare by value, so that node2 comes before node10."""

from __future__ import annotations

import re
from functools import lru_cache

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
