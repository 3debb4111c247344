"""The priority a jobspec asks for, `attributes.system.priority`: POSIX's range, 0 if it says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.jobspec.request import HIGHEST, LOWEST


def asked_priority(attributes: Mapping[str, Any]) -> int:
    """Return what is asked for, no further than the range goes; what is no whole number counts as nothing.

    >>> [asked_priority({"priority": asked}) for asked in (7, 9_999, "high", True)]
    [7, 1024, 0, 0]
    """
    asked = attributes.get("priority", 0)
    return max(LOWEST, min(HIGHEST, asked)) if isinstance(asked, int) and not isinstance(asked, bool) else 0
