"""Settings as they are written, and the checks that every policy shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rainbow.errors import JobspecError, PolicyError
from rainbow.jobspec.yaml_reader import Limits, Positions, load

MOST = 2**53
Check = Callable[[Any, str], Any]


def fail(message: str, pointer: str) -> PolicyError:
    """Return the fault at a pointer."""
    return PolicyError(message, pointer=pointer)


def at(pointer: str, key: Any) -> str:
    """Return the pointer of an entry (RFC 6901)."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def number(least: float = 0.0, most: float = MOST) -> Check:
    """A finite number between two bounds."""

    def check(value: Any, pointer: str) -> float:
        whole = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not whole or not (abs(value) <= MOST and math.isfinite(value)) or not least <= value <= most:
            raise fail(f"a number from {least:g} to {most:g}", pointer)
        return float(value)

    return check


def integer(least: int = 0, most: int = MOST) -> Check:
    """A whole number between two bounds."""

    def check(value: Any, pointer: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise fail(f"a whole number from {least} to {most}", pointer)
        return value

    return check


def flag(value: Any, pointer: str) -> bool:
    """Check that something is true or false."""
    if not isinstance(value, bool):
        raise fail("true or false", pointer)
    return value


def text(value: Any, pointer: str) -> str:
    """Check that something is a text."""
    if not isinstance(value, str):
        raise fail("a text", pointer)
    return value


def one_of(*words: Any) -> Check:
    """One of some words."""

    def check(value: Any, pointer: str) -> Any:
        if not any(value == word and type(value) is type(word) for word in words):
            raise fail(f"one of {', '.join(repr(word) for word in words)}", pointer)
        return value

    return check


def listed(entry: Check) -> Check:
    """Make the check of a list."""

    def check(value: Any, pointer: str) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise fail("a list", pointer)
        return [entry(one, at(pointer, k)) for k, one in enumerate(value)]

    return check


def table(entry: Check) -> Check:
    """Make the check of a mapping of names to entries."""

    def check(value: Any, pointer: str) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise fail("a mapping of names", pointer)
        return {key: entry(one, at(pointer, key)) for key, one in value.items()}

    return check


def record(fields: Mapping[str, tuple[Any, Check]], required: Collection[str] = ()) -> Check:
    """A mapping with known keys: {key: (default, check)}; defaults are filled in."""

    def check(value: Any, pointer: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise fail("a mapping", pointer)
        for key in value:
            if key not in fields:
                raise fail(f"there is no setting {key}; there are: {', '.join(fields)}", at(pointer, key))
        for key in required:
            if key not in value:
                raise fail(f"{key} is missing", pointer)
        return {
            key: entry(value.get(key, default), at(pointer, key)) if key in value else default
            for key, (default, entry) in fields.items()
        }

    return check


CheckSettings = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def read_settings(document: str | bytes, check: CheckSettings) -> Mapping[str, Any]:
    """Check settings written as YAML; PolicyError names the first fault by pointer, line and column."""
    settings, positions = load_settings(document)
    try:
        return check(settings)
    except PolicyError as fault:
        raise located(fault, positions) from None


def load_settings(document: str | bytes) -> tuple[Mapping[str, Any], Positions]:
    """Read YAML that is a mapping, and where everything of it stands."""
    try:
        settings, positions = load(document, Limits())
    except JobspecError as fault:
        raise PolicyError(fault.message, pointer=fault.pointer, line=fault.line, column=fault.column) from None
    if not isinstance(settings, Mapping):
        raise PolicyError("settings are a mapping", pointer="", line=1, column=1)
    return settings, positions


def located(fault: PolicyError, positions: Positions, above: str = "") -> PolicyError:
    """Say where a fault stands; what it points at lies below `above` in another document."""
    pointer = (fault.pointer or "").removeprefix(above)
    line, column = positions.nearest(pointer) or (1, 1)
    return PolicyError(fault.message, pointer=pointer, line=line, column=column)
