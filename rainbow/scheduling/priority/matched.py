"""Gangs that only the matcher can place: they take workers on which nothing runs for the whole time.

Inside an advance reservation those are workers that it keeps whole, and that none of its jobs uses.
"""

from __future__ import annotations

from collections.abc import Sequence

from rainbow.scheduling.priority.capacity import CLUSTER, reserved_line
from rainbow.scheduling.priority.lines import Lines
from rainbow.scheduling.priority.model import Environment, Grant, Item, Need, Spot
from rainbow.scheduling.priority.room import add_needs


def place_matched(lines: Lines, item: Item, spots: Sequence[Spot], start: float, end: float) -> Grant | None:
    """Ask the matcher what an item would hold on the workers that are wholly free over [start, end)."""
    inside = item.asks.reservation
    free = [w for w in dict.fromkeys(spot.worker for spot in spots) if _idle(lines, inside, w, start, end)]
    take = lines.view.place(item.gang.demand, free) if free else None
    if take is None:
        return None
    booking: dict[str, dict[str, int]] = {}
    for _, held in take.placed:
        for worker, amounts in held.items():
            line = _line(inside, worker)
            add_needs(booking, [Need(line, kind, amount) for kind, amount in amounts.items()], 1)
    outside = _line(inside, CLUSTER)
    if not lines.timeline.fits({outside: booking.get(outside, {})}, start, end):
        return None
    used = tuple((spot, 1) for spot in _first(spots) if _line(inside, spot.worker) in booking)
    return Grant(start, end, len(take.placed), take.placed, booking, Environment(), used)


def _line(inside: str, holder: str) -> str:
    return reserved_line(inside, holder) if inside else holder


def _idle(lines: Lines, inside: str, worker: str, start: float, end: float) -> bool:
    if inside:
        kept = lines.reservations[inside].placement[worker]
        if any(kept.get(kind, 0) < amount for kind, amount in lines.workers[worker].capacity.items()):
            return False
    uses = lines.timeline.lines.get(_line(inside, worker), {})
    return not any(use.most(start, end) for use in uses.values())


def _first(spots: Sequence[Spot]) -> list[Spot]:
    """Return the first spot of every worker."""
    return list({spot.worker: spot for spot in reversed(spots)}.values())[::-1]
