"""A misspelt word, and the one that was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

LONGEST = 100  # characters that are compared
NOT_READ = " is not read"


def meant(name: Any, known: Iterable[str]) -> str:
    """Return "did you mean ...?" if a known name is near, else nothing.

    >>> meant("replica", ["replicas", "type"]), meant("colour", ["replicas", "type"])
    ('did you mean replicas?', '')
    """
    found = difflib.get_close_matches(str(name)[:LONGEST], list(known), n=1, cutoff=0.75)
    return f"did you mean {found[0]}?" if found else ""


def unread(at: str, key: Any, known: Iterable[str]) -> str:
    """Write the warning that a key (found at a pointer) is not read."""
    hint = meant(key, known)
    return f"{at}{NOT_READ}{hint and f'; {hint}'}"
