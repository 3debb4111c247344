"""What a cluster's forecast leaves free, by type, as a step function of at most 64 steps.

Steps that are merged take the least free of them: a room never says more than is free, so what it has no place for
may still fit. Steps near now stay short, those far away grow with their distance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rainbow.scheduling.qos import Owner
from rainbow.scheduling.snapshot import Placement, WorkerView
from rainbow.state_machine import WorkerState

STEPS = 64
SPREAD = 1.05  # by how much each edge is farther away than the one before, if there are too many
FAR = 1e12  # seconds: an edge that is no time

Floats = NDArray[np.float64]


class Use(NamedTuple):
    """Space that is held over [start, end), for a job of an owner."""

    placement: Placement
    start: float
    end: float
    owner: Owner = ("", "", "")


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """What is free from each of `times` on, until the next; of workers by kind those that are free."""

    times: Floats
    free: Mapping[str, Floats]
    idle: Mapping[str, Floats]
    capacity: Mapping[str, Mapping[str, int]]  # of one worker of each kind

    def at(self, time: float) -> dict[str, float]:
        """Return what is free at a time, none of it before the room begins."""
        step = int(np.searchsorted(self.times, time, side="right")) - 1
        return {kind: float(row[step]) if step >= 0 else 0.0 for kind, row in self.free.items()}

    def book(self, amounts: Mapping[str, float], workers: int, start: float, end: float) -> Room:
        """Return the room without what a job is expected to take, and without so many whole workers."""
        edges = np.unique(np.concatenate([self.times, [max(start, self.times[0]), max(end, self.times[0])]]))
        edges = edges[edges < FAR]
        of = np.searchsorted(self.times, edges, side="right") - 1
        inside = (edges >= start) & (edges < end)
        free = {kind: row[of] - inside * amounts.get(kind, 0.0) for kind, row in self.free.items()}
        idle = {kind: row[of] for kind, row in self.idle.items()}
        for row in idle.values():
            taken = np.where(inside, np.minimum(row, workers), 0.0)
            workers -= int(taken.max(initial=0.0))
            row -= taken
        return _merged(replace(self, times=edges, free=_no_less(free), idle=idle))

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        rows = {"free": self.free, "idle": self.idle}
        listed = {name: {kind: row.tolist() for kind, row in of.items()} for name, of in rows.items()}
        return {"times": self.times.tolist(), **listed, "capacity": {k: dict(c) for k, c in self.capacity.items()}}


def read_room(answer: Mapping[str, Any]) -> Room:
    """Read a room that was told as JSON."""
    free, idle = (
        {kind: np.array(row, np.float64) for kind, row in answer[name].items()} for name in ("free", "idle")
    )
    return Room(np.array(answer["times"], np.float64), free, idle, answer["capacity"])


def room_of(workers: Sequence[WorkerView], outside: Mapping[str, int], uses: Iterable[Use], now: float) -> Room:
    """Return what is left of the ready workers, and of what lies outside them all, by what holds space and will."""
    ready = {worker.id: worker for worker in workers if worker.state is WorkerState.READY}
    held = [use for use in uses if use.end > now]
    edges = np.unique([now, *(max(now, t) for use in held for t in (use.start, use.end) if t < inf)])
    free = {kind: _free(amount, edges, _changes(kind, held, ready, now)) for kind, amount in _whole(ready, outside)}
    capacity = {worker.kind: worker.capacity for worker in ready.values()}
    return _merged(Room(edges, _no_less(free), _idle(ready, held, edges, now), capacity))


def _whole(ready: Mapping[str, WorkerView], outside: Mapping[str, int]) -> list[tuple[str, float]]:
    whole: dict[str, float] = dict(outside)
    for worker in ready.values():
        for kind, amount in worker.capacity.items():
            whole[kind] = whole.get(kind, 0) + amount
    return sorted(whole.items())


def _changes(
    kind: str, uses: Iterable[Use], ready: Mapping[str, WorkerView], now: float
) -> Iterable[tuple[float, float]]:
    for use in uses:
        amount = sum(of.get(kind, 0) for name, of in use.placement.items() if not name or name in ready)
        if amount:
            yield max(now, use.start), -amount
            yield use.end, amount


def _free(whole: float, edges: Floats, changes: Iterable[tuple[float, float]]) -> Floats:
    by_edge = np.zeros(len(edges))
    for time, amount in changes:
        if time < inf:
            by_edge[np.searchsorted(edges, time)] += amount
    free: Floats = whole + np.cumsum(by_edge)
    return free


def _idle(ready: Mapping[str, WorkerView], uses: Iterable[Use], edges: Floats, now: float) -> dict[str, Floats]:
    """Count the free workers of each kind."""
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for use in uses:
        for name in use.placement:
            if name in ready:
                spans[name].append((max(now, use.start), use.end))
    idle: dict[str, Floats] = {}
    for worker in ready.values():
        row = idle.setdefault(worker.kind, np.zeros(len(edges)))
        row += 1
        last = -inf
        for start, end in sorted(spans.get(worker.id, ())):
            if end > last:
                first, until = np.searchsorted(edges, [max(start, last), end])
                row[first:until] -= 1
                last = end
    return idle


def _no_less(free: Mapping[str, Floats]) -> dict[str, Floats]:
    return {kind: np.maximum(row, 0.0) for kind, row in free.items()}


def _merged(room: Room) -> Room:
    """Return the room with few enough steps."""
    times = room.times
    if len(times) <= STEPS:
        return room
    firsts = np.array(_thinned(times))

    def least(rows: Mapping[str, Floats]) -> dict[str, Floats]:
        return {kind: np.minimum.reduceat(row, firsts) for kind, row in rows.items()}

    return replace(room, times=times[firsts], free=least(room.free), idle=least(room.idle))


def _thinned(times: Floats) -> list[int]:
    """Choose the edges that stay: each farther from now than the one before, by the smallest factor that does."""
    spread = SPREAD
    while True:
        chosen = [0]
        while chosen[-1] + 1 < len(times):
            away = (times[chosen[-1]] - times[0]) * spread
            following = max(chosen[-1] + 1, int(np.searchsorted(times, times[0] + away)))
            chosen.append(min(following, len(times) - 1))  # the last step, when all has ended, is never merged
            if len(chosen) > STEPS:
                break
        if len(chosen) <= STEPS:
            return chosen
        spread = 1 + (spread - 1) * 1.5
