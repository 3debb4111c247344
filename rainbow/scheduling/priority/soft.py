"""Soft requests: what a job would like and can do without. Each that a spot does not meet is a violation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rainbow.scheduling.priority.model import Item, Spot
from rainbow.scheduling.priority.queues import named

if TYPE_CHECKING:
    from rainbow.scheduling.priority.lines import Lines


def violations(item: Item, spot: Spot, lines: Lines) -> int:
    """Count the soft requests of an item that a spot does not meet."""
    asks = item.asks
    unmet = sum(1 for kind, amount in asks.soft.items() if lines.workers[spot.worker].capacity.get(kind, 0) < amount)
    return unmet + (1 if asks.soft_queues and not named(asks.soft_queues, spot) else 0)
