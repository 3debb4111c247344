"""Checks of single values in the settings; each raises PolicyError at its pointer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rainbow.errors import PolicyError
from rainbow.jobspec.yaml_reader import step
from rainbow.regex import RegexError, compile_regex

MOST = 10**12  # no setting is meant to be larger; sums of them stay exact
Check = Callable[[Any, str], None]


def whole(least: int, what: str) -> Check:
    """A whole number from `least` up."""

    def check(value: Any, pointer: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise PolicyError(f"{what} is a whole number from {least} up", pointer=pointer)

    return check


def number(what: str, above: float = 0.0) -> Check:
    """A finite number that is not below `above`."""

    def check(value: Any, pointer: str) -> None:
        wrong = isinstance(value, bool) or not isinstance(value, (int, float))
        if wrong or not math.isfinite(value) or not above <= value <= MOST:
            raise PolicyError(f"{what} is a number from {above:g} up", pointer=pointer)

    return check


def flag(value: Any, pointer: str) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise PolicyError("this is true or false", pointer=pointer)


def text(value: Any, pointer: str) -> None:
    """Text that is not empty."""
    if not isinstance(value, str) or not value:
        raise PolicyError("this is text", pointer=pointer)


def texts(value: Any, pointer: str) -> None:
    """A list of text."""
    if not isinstance(value, (list, tuple)):
        raise PolicyError("this is a list of names", pointer=pointer)
    for k, item in enumerate(value):
        text(item, f"{pointer}/{k}")


def expression(value: Any, pointer: str) -> None:
    """A regular expression."""
    text(value, pointer)
    try:
        compile_regex(value)
    except RegexError as fault:
        raise PolicyError(str(fault), pointer=pointer) from None


def one_of(*allowed: str) -> Check:
    """One of a few words."""

    def check(value: Any, pointer: str) -> None:
        if value not in allowed:
            raise PolicyError(f"must be one of {', '.join(allowed)}", pointer=pointer)

    return check


def mapping(value: Any, pointer: str) -> Mapping[str, Any]:
    """Return a mapping with text for keys."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise PolicyError("must be a mapping of names", pointer=pointer)
    return value


def entries(value: Any, pointer: str, checks: Mapping[str, Check], what: str) -> Mapping[str, Any]:
    """Check every key and value of a mapping; a key that is not known is a fault."""
    for key, item in mapping(value, pointer).items():
        here = f"{pointer}/{step(key)}"
        if key not in checks:
            raise PolicyError(f"{what} has no setting {key[:40]}; it has: {', '.join(checks)}", pointer=here)
        checks[key](item, here)
    return dict(value)


def optional(check: Check) -> Check:
    """The same, or null."""

    def checked(value: Any, pointer: str) -> None:
        if value is not None:
            check(value, pointer)

    return checked
