"""Which requestors more than one class claims: the first expression wins, and people should know."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rainbow.regex import compile_regex

DECORATION = re.compile(r"\.[*+?]|[\^$\\?*+]")


def overlaps(entries: Sequence[Mapping[str, str]], requestors: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield requestors that match entries of several classes: of those given, and what the expressions plainly say.

    >>> list(overlaps([{"match": "a.*", "class": "x"}, {"match": "ann", "class": "y"}], []))
    [{'requestor': 'ann', 'class': 'x', 'also': ['y']}]
    """
    compiled = [(compile_regex(entry["match"]), entry["class"]) for entry in entries]
    plain = {DECORATION.sub("", entry["match"]) for entry in entries}
    for requestor in sorted({*plain, *requestors}):
        claims = list(dict.fromkeys(name for pattern, name in compiled if pattern.fullmatch(requestor)))
        if len(claims) > 1:
            yield {"requestor": requestor, "class": claims[0], "also": claims[1:]}
