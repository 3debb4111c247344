"""A policy's settings as YAML (or JSON): checked, and a fault has a line and a column beside its pointer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rainbow.errors import JobspecError, PolicyError
from rainbow.jobspec.text import Limits, Positions, load

Check = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def read_settings(document: str | bytes, check: Check) -> Mapping[str, Any]:
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
