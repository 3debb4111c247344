"""Counts in English."""

from __future__ import annotations


def some(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun.

    >>> some(1, "job"), some(2, "job"), some(1, "is", "are"), some(0, "quantum", "quanta")
    ('1 job', '2 jobs', '1 is', '0 quanta')
    """
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"
