"""Gangs that only the matcher can place: they take workers on which nothing runs for the whole time."""

from __future__ import annotations

from collections.abc import Sequence

from rainbow.scheduling.priority.capacity import CLUSTER
from rainbow.scheduling.priority.lines import Lines
from rainbow.scheduling.priority.model import Environment, Grant, Item, Need, Spot
from rainbow.scheduling.priority.room import add_needs


def place_matched(lines: Lines, item: Item, spots: Sequence[Spot], start: float, end: float) -> Grant | None:
    """Ask the matcher what an item would hold on the workers that are wholly free over [start, end)."""
    free = [worker for worker in dict.fromkeys(spot.worker for spot in spots) if _idle(lines, worker, start, end)]
    take = lines.view.place(item.gang.demand, free) if free else None
    if take is None:
        return None
    booking: dict[str, dict[str, int]] = {}
    for _, held in take.placed:
        for worker, amounts in held.items():
            add_needs(booking, [Need(worker, kind, amount) for kind, amount in amounts.items()], 1)
    if not lines.timeline.fits({CLUSTER: booking.get(CLUSTER, {})}, start, end):
        return None
    used = tuple((spot, 1) for spot in _first(spots) if spot.worker in booking)
    return Grant(start, end, len(take.placed), take.placed, booking, Environment(), used)


def _idle(lines: Lines, worker: str, start: float, end: float) -> bool:
    return not any(use.most(start, end) for use in lines.timeline.lines.get(worker, {}).values())


def _first(spots: Sequence[Spot]) -> list[Spot]:
    """Return the first spot of every worker."""
    return list({spot.worker: spot for spot in reversed(spots)}.values())[::-1]
