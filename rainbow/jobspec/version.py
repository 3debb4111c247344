"""Versions as people write them, and whether one lies in a range.

10.5  0.19  v1.2.3  2024.1.1.1    numbers, as many as there are; missing ones are 0
1.2.0-rc1  2.0-beta.2  1.2~rc1    a suffix after a dash that begins with a letter, or after a tilde, sorts before
                                  the plain version (semver, Debian)
8.5.0-1  2024a  1.2.post1         one that begins with a digit, a letter at once or a word after a dot, after it
1.2.3+build5                      what follows the plus says nothing
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import semver

_VERSION = re.compile(r"[vV]?(\d{1,18}(?:\.\d{1,18}){0,15})(?:(-)?([0-9A-Za-z._~-]{1,64}))?(?:\+[0-9A-Za-z.-]*)?")
MOST_NUMBERS = 16
_WORD = re.compile(r"\d+|[A-Za-z]+")


class Version(NamedTuple):
    """A version's numbers and what follows them; `compare` orders them as said above."""

    numbers: tuple[int, ...]
    before: str = ""  # a pre-release
    after: tuple[tuple[int, str], ...] = ()  # a revision

    def _plain(self) -> tuple[int, ...]:
        return self.numbers + (0,) * (MOST_NUMBERS - len(self.numbers))

    def compare(self, other: Version) -> int:
        """Return a negative number, zero or a positive one."""
        if self._plain() != other._plain():
            return -1 if self._plain() < other._plain() else 1
        if self.before or other.before:
            return _semver(self.before).compare(_semver(other.before))
        return (self.after > other.after) - (self.after < other.after)


def _semver(prerelease: str) -> semver.Version:
    return semver.Version(0, prerelease=prerelease or None)


@lru_cache(maxsize=4096)
def coerce(text: str) -> Version | None:
    """Read a version, None if it is none.

    >>> coerce("v1.2"), coerce("8.5.0-1"), coerce("latest")
    (Version(numbers=(1, 2), before='', after=()), Version(numbers=(8, 5, 0), before='', after=((1, ''),)), None)
    """
    result = _VERSION.fullmatch(text.strip())
    if not result:
        return None
    numbers = tuple(int(part) for part in result[1].split("."))
    suffix = result[3] or ""
    if (result[2] and suffix[:1].isalpha()) or suffix.startswith("~"):
        return Version(numbers, before=_identifiers(suffix))
    return Version(numbers, after=tuple(_word(word) for word in _WORD.findall(suffix)))


def _identifiers(suffix: str) -> str:
    """Write a pre-release as semver wants it: rc1 becomes rc.1, so that rc10 follows rc2."""
    return ".".join(word.lstrip("0") or "0" if word.isdecimal() else word for word in _WORD.findall(suffix))


def _word(word: str) -> tuple[int, str]:
    return (int(word), "") if word.isdecimal() else (-1, word.lower())


def in_range(value: Any, low: Any = None, high: Any = None) -> bool | None:
    """Return whether a version lies between two, both inclusive, either left out; None if `value` is no version.

    A plain upper bound is a prefix: max "1.2" admits 1.2.9.

    >>> in_range("1.2.9", "1.0", "1.2"), in_range("1.2.0-rc1", "1.2"), in_range("unknown", "1.0")
    (True, False, None)
    """
    version = coerce(str(value))
    if version is None:
        return None
    bottom, top = (coerce(str(bound)) if bound is not None else None for bound in (low, high))
    return (bottom is None or version.compare(bottom) >= 0) and (top is None or _at_most(version, top))


def _at_most(version: Version, top: Version) -> bool:
    if top.before or top.after:
        return version.compare(top) <= 0
    return version._plain()[: len(top.numbers)] <= top.numbers
