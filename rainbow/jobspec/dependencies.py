"""RFC 26: what else must have happened before a job may start, by scheme."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rainbow.errors import JobspecError
from rainbow.jobspec.request import Dependency
from rainbow.jobspec.wants import listing, mapping

AFTER = ("after", "afterany", "afterok", "afternotok")  # a job has started, ended, ended well, ended badly
SYMBOLIC = ("string", "fluid")  # whatever else of the same name is `in`, `out` or `inout`
SCHEMES = (*AFTER, "begin-time", *SYMBOLIC)
LONGEST = 1_000  # characters of a value
_KEYS = ("scheme", "value", "type", "scope")
_WORDS = {"type": ("in", "out", "inout"), "scope": ("user", "global")}


def read_dependencies(value: Any, pointer: str) -> tuple[Dependency, ...]:
    """Read a list of {scheme, value}; RFC 26's symbolic schemes also want type and scope.

    >>> read_dependencies([{"scheme": "afterok", "value": "7"}], "")
    (Dependency(scheme='afterok', value='7', type='', scope=''),)
    """
    entries = listing(value, pointer)
    if not entries:
        raise JobspecError("a job without dependencies has no such key (RFC 26)", pointer=pointer)
    return tuple(_dependency(mapping(entry, f"{pointer}/{k}"), f"{pointer}/{k}") for k, entry in enumerate(entries))


def _dependency(entry: Mapping[str, Any], at: str) -> Dependency:
    for key, value in entry.items():
        if key not in _KEYS:
            raise JobspecError(f"a dependency has no {key}; known are: {', '.join(_KEYS)}", pointer=f"{at}/{key}")
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST:
            raise JobspecError(f"a dependency's {key} is text of at most {LONGEST} characters", pointer=f"{at}/{key}")
    if missing := [key for key in _wanted(entry.get("scheme", "")) if key not in entry]:
        raise JobspecError(f"the dependency lacks {', '.join(missing)}", pointer=at)
    _check_words(entry, at)
    return Dependency(**entry)


def _wanted(scheme: str) -> tuple[str, ...]:
    return _KEYS if scheme in SYMBOLIC else _KEYS[:2]


def _check_words(entry: Mapping[str, str], at: str) -> None:
    if entry["scheme"] not in SCHEMES:
        raise JobspecError(
            f"there is no scheme {entry['scheme'][:40]!r}; known are: {', '.join(SCHEMES)}", pointer=f"{at}/scheme"
        )
    for key, words in _WORDS.items():
        if key in entry and entry[key] not in words:
            raise JobspecError(f"{key} is one of {', '.join(words)}", pointer=f"{at}/{key}")
    if entry["scheme"] == "begin-time" and not _is_time(entry["value"]):
        raise JobspecError("begin-time is a number of seconds since 1970, as text", pointer=f"{at}/value")


def _is_time(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False
