"""When a job would start and end on each of many clusters, by their rooms: all of them at once, as arrays.

rows    one a cluster: its room's steps, padded; what is free by type; idle workers and what one holds, by kind
start   the first step from which on enough is free of every type until the job would have ended
large   slots two of which never share a worker want idle workers too: the later of both starts is taken
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from rainbow.forecast.room import STEPS, Floats, Room

Truths = NDArray[np.bool_]
Rows = NDArray[np.intp]


class Rooms:
    """The rooms of some clusters in one table; `put` exchanges one of them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.times = np.full((count, STEPS), inf)
        self.free: dict[str, Floats] = {}  # (cluster, step)
        self.idle = np.zeros((count, 1, STEPS))  # (cluster, kind of worker, step)
        self.there = np.zeros((count, 1), np.bool_)
        self.capacity: dict[str, Floats] = {}  # of one worker: (cluster, kind)

    def put(self, row: int, room: Room | None) -> None:
        """Enter a cluster's room; None: what is free there is unknown, nothing starts."""
        self.times[row], self.there[row] = inf, False
        for levels in (*self.free.values(), *self.capacity.values()):
            levels[row] = 0.0
        if room is None:
            return
        steps = len(room.times)
        self.times[row, :steps] = room.times
        for kind, level in room.free.items():
            self.free.setdefault(kind, np.zeros((self.count, STEPS)))[row, :steps] = level
        self._widen(len(room.idle))
        for k, (kind, level) in enumerate(room.idle.items()):
            self.there[row, k] = True
            self.idle[row, k, :steps] = level
            for type_, amount in room.capacity[kind].items():
                whole = self.capacity.setdefault(type_, np.zeros(self.there.shape))
                whole[row, k] = amount

    def _widen(self, kinds: int) -> None:
        more = kinds - self.there.shape[1]
        if more > 0:
            self.idle = np.concatenate([self.idle, np.zeros((self.count, more, STEPS))], axis=1)
            self.there = np.concatenate([self.there, np.zeros((self.count, more), np.bool_)], axis=1)
            wider = np.zeros((self.count, more))
            self.capacity = {type_: np.concatenate([own, wider], axis=1) for type_, own in self.capacity.items()}


def stacked(rooms: Sequence[Room | None]) -> Rooms:
    """Return rooms as one table."""
    table = Rooms(len(rooms))
    for row, room in enumerate(rooms):
        table.put(row, room)
    return table


def eta(
    rooms: Rooms,
    slots: int,
    amounts: Mapping[str, float],
    seconds: Floats,
    now: float,
    rows: Rows | None = None,
    *,
    on_workers: bool = True,
) -> tuple[Floats, Floats]:
    """Return start and finish on every cluster (or these rows) of a job of equal slots; infinite: it never fits.

    `seconds` is how long it would run on each. Without `on_workers` only sums count, not what one worker holds.
    """
    chosen = slice(None) if rows is None else rows
    times = rooms.times[chosen]
    enough = np.isfinite(times)
    for kind, amount in amounts.items():
        if amount > 0:
            enough &= rooms.free[kind][chosen] >= slots * amount if kind in rooms.free else False
    start = _first(times, enough, seconds, now)
    if on_workers:
        start = np.maximum(start, _whole_workers(rooms, slots, amounts, seconds, now, chosen))
    return start, start + seconds


def _first(times: Floats, enough: Truths, seconds: Floats, now: float) -> Floats:
    """Return the first time from which on there is enough for so long."""
    lacking = np.where(enough, inf, times)
    until = np.minimum.accumulate(lacking[:, ::-1], axis=1)[:, ::-1]
    begin = np.maximum(times, now)
    with np.errstate(invalid="ignore"):  # inf - inf is padding, which is never enough
        fits = enough & (until - begin >= seconds[:, None])
    fits[:, :-1] &= times[:, 1:] > now
    first = fits.argmax(axis=1)
    every = np.arange(len(times))
    return np.where(fits[every, first], begin[every, first], inf)


def _whole_workers(
    rooms: Rooms, slots: int, amounts: Mapping[str, float], seconds: Floats, now: float, chosen: slice | Rows
) -> Floats:
    """Return when enough workers are idle, where a slot fills more than half of each that has room for it."""
    able = rooms.there[chosen].copy()
    large = np.zeros(able.shape, np.bool_)
    none = np.zeros(rooms.there.shape)
    for kind, amount in amounts.items():
        whole = rooms.capacity.get(kind, none)[chosen]
        inside = (whole > 0).any(axis=1, keepdims=True)  # else it lies outside all workers, if there is any
        able &= ~inside | (whole >= amount)
        large |= inside & (2 * amount > whole)
    result = np.where(able.any(axis=1), -inf, inf)
    picked = np.flatnonzero(able.any(axis=1) & ~(able & ~large).any(axis=1))
    if len(picked):
        times = rooms.times[chosen][picked]
        idle = (rooms.idle[chosen][picked] * able[picked][:, :, None]).sum(axis=1)
        result[picked] = _first(times, (idle >= slots) & np.isfinite(times), seconds[picked], now)
    return result
