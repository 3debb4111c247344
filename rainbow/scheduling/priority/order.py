"""In which order items are tried."""

from __future__ import annotations

from collections.abc import Iterable

from rainbow.scheduling.priority.model import Item


def ordered(waiting: Iterable[Item]) -> list[Item]:
    """Return items by priority, the best first; ties by submission, then id."""
    found = list(waiting)
    for item in found:
        item.priority = float(item.job.priority)
    return sorted(found, key=lambda item: (-item.priority, item.job.submitted, item.place))
