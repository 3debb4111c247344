"""Settings of policies written as YAML, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rainbow.errors import PolicyError
from rainbow.scheduling.settings_schema import load_settings, located

CheckSettings = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def read_settings(document: str | bytes, check: CheckSettings) -> Mapping[str, Any]:
    """Check settings written as YAML; PolicyError names the first fault by pointer, line and column."""
    settings, positions = load_settings(document)
    try:
        return check(settings)
    except PolicyError as fault:
        raise located(fault, positions) from None
