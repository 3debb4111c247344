"""`--constraint` → an RFC 31 constraint.

a&b  a|b  a,b     all, any; from left to right, as Slurm reads them
(a|b)&c           groups
[a|b]             all nodes have one and the same of these
a*2&b*4, [..]     the least number of nodes that have it
"""

from __future__ import annotations

import re
from typing import Any

Document = dict[str, Any]
_WORD = re.compile(r"\s*(?:([A-Za-z0-9_.=:%/+-]+)(?:\*([0-9]{1,6}))?|([&|,()\[\]]))")
MOST_WORDS = 1_000


def read_features(text: str) -> Document | None:
    """Return the constraint that a text says; None if it is none.

    >>> read_features("a&(b|c)")
    {'and': [{'properties': ['a']}, {'or': [{'properties': ['b']}, {'properties': ['c']}]}]}
    >>> read_features("[rack1*2&rack2*4]"), read_features("[a|b]"), read_features("a&&b")
    ({'counts': {'rack1': 2, 'rack2': 4}}, {'same': ['a', 'b']}, None)
    """
    words = _words(text)
    if not words:
        return None
    reader = _Reader(words)
    document = reader.any_of()
    if document is None or reader.at < len(words):
        return None
    parts = [document] if not reader.chosen else [*([document] if document else []), *reader.chosen]
    parts = [part for part in parts if part]
    return parts[0] if len(parts) == 1 else {"and": parts} if parts else None


def _words(text: str) -> list[tuple[str, int]]:
    """Return names with their counts (0: none), and signs."""
    result: list[tuple[str, int]] = []
    at = 0
    while at < len(text.rstrip()):
        one = _WORD.match(text, at)
        if one is None or len(result) > MOST_WORDS:
            return []
        result.append((one[1], int(one[2] or 0)) if one[1] else (one[3], 0))
        at = one.end()
    return result


class _Reader:
    """Reads words from left to right; `chosen` is what must hold of the nodes together."""

    def __init__(self, words: list[tuple[str, int]]) -> None:
        self.words = words
        self.at = 0
        self.chosen: list[Document] = []

    def _next(self) -> str:
        return self.words[self.at][0] if self.at < len(self.words) else ""

    def any_of(self) -> Document | None:
        parts = [self.all_of()]
        while self._next() == "|":
            self.at += 1
            parts.append(self.all_of())
        return _joined("or", parts)

    def all_of(self) -> Document | None:
        parts = [self.one()]
        while self._next() in ("&", ","):
            self.at += 1
            parts.append(self.one())
        return _joined("and", parts)

    def one(self) -> Document | None:
        word = self._next()
        if not word or word in "&|,)]":
            return None
        if word == "(":
            self.at += 1
            result = self.any_of()
            if self._next() != ")":
                return None
            self.at += 1
            return result
        if word == "[":
            return self._together()
        name, count = self.words[self.at]
        self.at += 1
        if count:
            self._count(name, count)
            return {}
        return {"properties": [name]}

    def _count(self, name: str, count: int) -> None:
        known = next((one["counts"] for one in self.chosen if "counts" in one), None)
        if known is None:
            self.chosen.append({"counts": {name: count}})
        else:
            known[name] = max(count, known.get(name, 0))

    def _together(self) -> Document | None:
        self.at += 1
        names: list[str] = []
        sign = ""
        while self._next() not in ("]", ""):
            word, count = self.words[self.at]
            self.at += 1
            if word in ("|", "&"):
                sign = word
            elif word in "(),[":
                return None
            elif count:
                self._count(word, count)
            else:
                names.append(word)
        if self._next() != "]":
            return None
        self.at += 1
        if not names:
            return {}
        if sign == "&":
            return {"properties": names}
        self.chosen.append({"same": names})
        return {}


def _joined(operator: str, parts: list[Document | None]) -> Document | None:
    if None in parts:
        return None
    real = [part for part in parts if part]
    if operator == "or" and len(real) < len(parts):
        return None if len(parts) > 1 else {}
    if operator == "and" and len(real) > 1 and all("properties" in part for part in real):
        return {"properties": [name for part in real for name in part["properties"]]}
    return real[0] if len(real) == 1 else {operator: real} if real else {}
