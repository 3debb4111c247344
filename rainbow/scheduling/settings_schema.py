"""The schema of settings: what a value must be, and its default.

A check takes a value and its JSON Pointer and returns the value as it is kept, every default filled in; PolicyError
names the first fault. The settings of policies, a cluster's limits and the server's configuration are written in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any

from rainbow.errors import JobspecError, PolicyError
from rainbow.jobspec.yaml_reader import Limits, Positions, load, step
from rainbow.regex import RegexError, compile_regex

LARGEST_NUMBER = 2**53
UNSET: Any = object()  # the default of what is left out where it is not given
Check = Callable[[Any, str], Any]
Mapped = Callable[[Any, str], dict[str, Any]]


def fail(expected: str, pointer: str, value: Any = UNSET) -> PolicyError:
    """Return the fault of a value at a pointer that must be something else.

    >>> fail("a text", "/queues/0/name", 7).message, fail("a text", "/users/0").message
    ('name must be a text, got 7', 'entry 0 of users must be a text')
    """
    above, _, name = pointer.rpartition("/")
    named = f"entry {name} of {above.rpartition('/')[2]}" if name.isdecimal() else name
    got = f", got {value!s:.40}" if isinstance(value, (str, int, float)) and str(value) else ""
    return PolicyError(f"{named or 'the settings'} must be {expected}{got}", pointer=pointer)


def at(pointer: str, key: Any) -> str:
    """Return the pointer of an entry (RFC 6901)."""
    return f"{pointer}/{step(key)}"


def number(least: float = 0.0, most: float = LARGEST_NUMBER) -> Check:
    """A finite number between two bounds."""
    expected = f"a number >= {least:g}" if most == LARGEST_NUMBER else f"a number from {least:g} to {most:g}"

    def check(value: Any, pointer: str) -> float:
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not real or not (abs(value) <= LARGEST_NUMBER and math.isfinite(value)) or not least <= value <= most:
            raise fail(expected, pointer, value)
        return value  # type: ignore[no-any-return]  # a whole number stays one, and is shown as one

    return check


def integer(least: int = 0, most: int = LARGEST_NUMBER, hint: str = "") -> Check:
    """A whole number between two bounds."""
    expected = (
        f"a whole number >= {least}" if most == LARGEST_NUMBER else f"a whole number from {least} to {most}"
    ) + hint

    def check(value: Any, pointer: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise fail(expected, pointer, value)
        return value

    return check


def flag(value: Any, pointer: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise fail("true or false", pointer, value)
    return value


def text(value: Any, pointer: str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise fail("a text", pointer, value)
    return value


def filled(value: Any, pointer: str) -> str:
    """A text that is not empty."""
    if not text(value, pointer):
        raise fail("a text that is not empty", pointer, value)
    return str(value)


def regex(value: Any, pointer: str) -> str:
    """A regular expression."""
    try:
        return compile_regex(value).text
    except RegexError as fault:
        raise PolicyError(f"{pointer.rpartition('/')[2]}: {fault}", pointer=pointer) from None


def one_of(*words: Any) -> Check:
    """One of some words."""

    def check(value: Any, pointer: str) -> Any:
        if not any(value == word and type(value) is type(word) for word in words):
            raise fail(f"one of {', '.join(str(word) or repr(word) for word in words)}", pointer, value)
        return value

    return check


def optional(check: Check) -> Check:
    """The same, or null."""
    return lambda value, pointer: None if value is None else check(value, pointer)


def listed(entry: Check) -> Check:
    """A list."""

    def check(value: Any, pointer: str) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise fail("a list", pointer, value)
        return [entry(one, at(pointer, k)) for k, one in enumerate(value)]

    return check


def table(entry: Check) -> Mapped:
    """A mapping of names to entries."""

    def check(value: Any, pointer: str) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise fail("a mapping of names", pointer, value)
        return {key: entry(one, at(pointer, key)) for key, one in value.items()}

    return check


NEAREST = 3  # names that a warning offers


def no_worker(owner: str, pattern: str, pointer: str, workers: Collection[str]) -> dict[str, Any]:
    """Return the warning that settings name workers the cluster does not have, with the names nearest to it.

    >>> no_worker("queue q", "nide1", "/queues/q/workers/0", ["node1", "node2", "gpu7"])["text"]
    'queue q names nide1, which no worker of the cluster matches; nearest: node1, node2'
    """
    near = get_close_matches(pattern[:100], [*workers], n=NEAREST, cutoff=0.5)
    text = f"{owner} names {pattern[:100]}, which no worker of the cluster matches"
    text += f"; nearest: {', '.join(near)}" if near else ""
    return {"pointer": pointer, "name": pattern, "nearest": near, "text": text}


Fields = Mapping[str, tuple[Any, Check]]  # {key: (default, check)}


def record(fields: Fields, required: Collection[str] = (), owner: str = "") -> Mapped:
    """A mapping with known keys: {key: (default, check)}; defaults are filled in."""

    def check(value: Any, pointer: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise fail("a mapping", pointer, value)
        for key in value:
            if key not in fields:
                whose = owner or pointer.rpartition("/")[2] or "this"
                raise PolicyError(
                    f"{whose} has no setting {str(key)[:40]}; it has: {', '.join(fields)}", pointer=at(pointer, key)
                )
        for key in required:
            if key not in value:
                raise PolicyError(f"{key} is missing", pointer=pointer)
        return {
            key: entry(value[key], at(pointer, key)) if key in value else default
            for key, (default, entry) in fields.items()
            if key in value or default is not UNSET
        }

    return check


def some(checks: Mapping[str, Check], owner: str = "") -> Mapped:
    """A mapping with known keys, of which those not given are left out."""
    return record({key: (UNSET, check) for key, check in checks.items()}, owner=owner)


def load_settings(document: str | bytes) -> tuple[Mapping[str, Any], Positions]:
    """Read YAML that is a mapping, and the place of each part."""
    try:
        settings, positions = load(document, Limits())
    except JobspecError as fault:
        raise PolicyError(fault.message, pointer=fault.pointer, line=fault.line, column=fault.column) from None
    if not isinstance(settings, Mapping):
        raise PolicyError("settings are a mapping", pointer="", line=1, column=1)
    return settings, positions


def located(fault: PolicyError, positions: Positions, above: str = "") -> PolicyError:
    """Locate a fault; what it points at lies below `above` in another document."""
    pointer = (fault.pointer or "").removeprefix(above)
    line, column = positions.nearest(pointer) or (1, 1)
    return PolicyError(fault.message, pointer=pointer, line=line, column=column)
