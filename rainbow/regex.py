"""Regular expressions of users, matched in time linear in the text.

Python's own engine backtracks: `a?` twenty-four times and then twenty-four letters keeps it busy for minutes.
RE2 does not (https://github.com/google/re2/wiki/Syntax); it has no look-around and no references back.
Every expression from outside is read here, so that no setting can hold up the steps of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import re2

LONGEST = 1_000  # characters of an expression
MEMORY = 1 << 20  # bytes of a compiled expression: x{1000} of a thousand characters is refused


class RegexError(ValueError):
    """An expression that cannot be used, with the reason."""


@dataclass(frozen=True, slots=True)
class Regex:
    """A compiled regular expression; equal if its text is equal."""

    text: str
    _compiled: Any = field(compare=False, repr=False)

    def fullmatch(self, name: str) -> bool:
        """Return whether the expression matches the whole name."""
        return self._compiled.fullmatch(_encodable(name)) is not None

    def search(self, name: str) -> bool:
        """Return whether the expression matches anywhere in the name."""
        return self._compiled.search(_encodable(name)) is not None


def compile_regex(expression: Any) -> Regex:
    """Compile an expression of at most 1,000 characters.

    Raises RegexError with the engine's reason.

    >>> compile_regex("(CI|jenkins)-.*").fullmatch("CI-nightly")
    True
    >>> compile_regex("(?=a)b")
    Traceback (most recent call last):
        ...
    rainbow.regex.RegexError: not a regular expression of RE2: invalid perl operator: (?=
    """
    if not isinstance(expression, str) or len(expression) > LONGEST:
        raise RegexError(f"a regular expression must be text of at most {LONGEST} characters")
    try:
        return Regex(expression, re2.compile(expression, _options()))
    except (re2.error, UnicodeEncodeError) as fault:
        raise RegexError(f"not a regular expression of RE2: {_words(fault)}") from None


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = MEMORY
    options.log_errors = False
    return options


def _words(fault: Exception) -> str:
    if isinstance(fault, UnicodeEncodeError):
        return "it holds a lone surrogate"
    said = fault.args[0] if fault.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def _encodable(name: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot hold."""
    return name.encode("utf-8", "replace").decode()
