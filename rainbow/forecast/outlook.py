"""The last forecast of each cluster, and the rooms that jobs are booked in between two of them.

One object of the service, changed by the forecaster's thread and by submits. A forecast made at a time that is still
to come (the clock was set back) counts as none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from rainbow.cache import LruCache, Same
from rainbow.forecast.eta import Rooms, Rows, eta
from rainbow.forecast.forecast import (
    SOFTENED,
    Expected,
    Forecast,
    TrackRecord,
    bias_of,
    spread,
    track_record,
)
from rainbow.forecast.lengths import COVER, quantiles
from rainbow.forecast.room import Floats, Room
from rainbow.scheduling import SlotsView

SLACK = 5.0  # seconds by which clocks of two processes may differ
FIRST = 64  # rows
MOST_BOOKED = 1_000  # of a cluster, remembered for its next forecast
MOST_LISTS = 64  # lists of candidates whose rows are remembered


@dataclass(frozen=True, slots=True)
class ClusterForecast:
    """What is kept of a cluster's forecast. `fault`: why there is none; `limit`: seconds a task may run, 0: any."""

    at: float
    room: Room | None
    forecast: Forecast | None = None
    fault: str = ""
    cost: float = 0.0  # seconds of the processor
    work: Mapping[str, float] = field(default_factory=dict)  # core-hours that each waiting job is expected to take
    length: float = inf  # median of the cluster's last runs
    limit: float = 0.0
    scores: Sequence[float] = ()
    missed: Sequence[float] = ()
    ratios: Sequence[float] = ()
    registered: float = 0.0  # when the cluster was

    @property
    def record(self) -> TrackRecord:
        """How its forecasts have turned out."""
        return track_record(self.scores, self.missed, self.at - self.registered)

    def expected(self, job: str) -> Expected | None:
        """Return when a job is expected."""
        return self.forecast.jobs.get(job) if self.forecast else None


@dataclass(frozen=True, slots=True)
class Ask:
    """What a job wants of each cluster: so many gangs of equal slots.

    `whole`: whether amounts say all of it; `on_workers`: whether each slot lies on one worker.
    """

    slots: int
    amounts: Mapping[str, float]
    gangs: int = 1
    whole: bool = True
    on_workers: bool = True

    @property
    def total(self) -> dict[str, float]:
        """What one gang takes in all."""
        return {kind: self.slots * amount for kind, amount in self.amounts.items()}


@dataclass(frozen=True, slots=True)
class Booking:
    """What an accepted job is expected to hold of a cluster, which no forecast made before `at` knows."""

    at: float
    cluster_id: str
    ask: Ask
    start: float
    finish: float


def read_booking(answer: Mapping[str, Any]) -> Booking:
    """Read a booking that another process has told as JSON."""
    return Booking(**{**answer, "ask": Ask(**answer["ask"])})


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When a job would start and end on each of some clusters, as arrays; infinite: unknown, or never."""

    start: Floats
    finish: Floats
    low: Floats  # of the finish
    high: Floats
    seconds: Floats
    age: Floats


class Outlook:
    """What is known of each cluster's time to come."""

    def __init__(self, lock: AbstractContextManager[Any] | None = None) -> None:
        self._lock = lock or nullcontext()  # of those who share it
        self._told: dict[str, ClusterForecast] = {}
        self._rooms: dict[str, Room] = {}
        self._booked: dict[str, deque[Booking]] = {}  # since the last forecast, or before the first
        self._rows: dict[str, int] = {}
        self._known: LruCache[tuple[Same, int], Rows] = LruCache(MOST_LISTS)
        self.followed = -inf  # when what other processes have forecast was read last
        self._bands = np.zeros((5, 0))  # correction; start and length: low, high, as logarithms
        self._grow(FIRST)

    def _grow(self, count: int) -> None:
        self._table = Rooms(count)
        self._at, self._length, self._limit = np.zeros(count), np.full(count, inf), np.zeros(count)
        self._bands = np.concatenate([self._bands, np.zeros((5, count - self._bands.shape[1]))], axis=1)
        for cluster_id, row in self._rows.items():
            self._enter(row, self._told[cluster_id], self._rooms.get(cluster_id))

    def _enter(self, row: int, forecast: ClusterForecast, room: Room | None) -> None:
        self._table.put(row, room)
        self._at[row], self._length[row], self._limit[row] = forecast.at, forecast.length, forecast.limit

    def put(self, cluster_id: str, forecast: ClusterForecast) -> None:
        """Take a new forecast; what was booked before it was made is in it."""
        with self._lock:
            if cluster_id not in self._rows:
                self._rows[cluster_id] = len(self._rows)
            self._told[cluster_id] = forecast
            self._rooms.pop(cluster_id, None)
            if forecast.room is not None:
                self._rooms[cluster_id] = forecast.room
            if len(self._rows) > self._table.count:
                self._grow(2 * self._table.count)
            else:
                self._enter(self._rows[cluster_id], forecast, forecast.room)
            of_starts = bias_of(forecast.scores), *spread(forecast.scores, COVER, forecast.missed)
            self._bands[:, self._rows[cluster_id]] = *of_starts, *quantiles(forecast.ratios, COVER)
            for booking in self._booked.pop(cluster_id, ()):
                if booking.at >= forecast.at:
                    self._book(booking)

    def of(self, cluster_id: str, now: float) -> ClusterForecast | None:
        """Return a cluster's last forecast."""
        answer = self._told.get(cluster_id)
        return answer if answer and 0 < answer.at <= now + SLACK else None

    def every(self) -> dict[str, ClusterForecast]:
        """Return the last forecast of every cluster."""
        with self._lock:
            return dict(self._told)

    def drop(self, known: Callable[[str], bool]) -> None:
        """Forget the clusters that there are no more: their rows stay empty."""
        with self._lock:
            for cluster_id in [one for one in self._told if not known(one)]:
                gone = ClusterForecast(0.0, None)
                self._told[cluster_id] = gone
                self._rooms.pop(cluster_id, None)
                self._booked.pop(cluster_id, None)
                self._enter(self._rows[cluster_id], gone, None)

    def limits(self, ids: Mapping[str, str]) -> tuple[Floats, Floats]:
        """Return the median of each cluster's last runs, infinite if there are none, and its limit, 0: none."""
        rows = self._rows_of(ids)
        return np.where(rows < 0, inf, self._length[rows]), np.where(rows < 0, 0.0, self._limit[rows])

    def _rows_of(self, ids: Mapping[str, str]) -> Rows:
        """Return the row of each cluster, -1 for one without; the same candidates come again with every job."""
        key = Same(ids), len(self._rows)
        known = self._known.get(key)
        return self._known.put(key, self._found(ids)) if known is None else known

    def _found(self, ids: Iterable[str]) -> Rows:
        return np.array([self._rows.get(one, -1) for one in ids], np.intp)

    def ask(self, ids: Mapping[str, str], ask: Ask, seconds: Floats, now: float) -> Arrivals:
        """Say when a job would start and end on each of some clusters."""
        with self._lock:
            rows = self._rows_of(ids)
            start, finish = eta(self._table, ask.slots, ask.amounts, seconds, now, rows, on_workers=ask.on_workers)
            longer = seconds * self._waves(ask, rows)
            at, bands = self._at[rows], self._bands[:, rows]
        unknown = (rows < 0) | (at > now + SLACK) | ~np.isfinite(seconds)
        start = np.where(unknown, inf, start)
        with np.errstate(invalid="ignore", over="ignore"):
            wait = start - now + SOFTENED
            late, low, high = (
                np.where(start > now, np.maximum(0.0, wait * np.exp(one) - SOFTENED), 0.0) for one in bands[:3]
            )
            start = np.where(np.isfinite(start), now + late, inf)
            finish = start + longer
            earliest = now + np.minimum(low, late) + longer * np.exp(np.minimum(bands[3], 0.0))
            latest = now + np.maximum(high, late) + longer * np.exp(np.maximum(bands[4], 0.0))
        return Arrivals(start, finish, earliest, latest, longer, np.maximum(0.0, now - at))

    def _waves(self, ask: Ask, rows: Rows) -> Floats:
        """Count how often one gang after the other has to run where not all of them fit at once."""
        waves = np.ones(len(rows))
        if ask.gangs > 1:
            for kind, amount in ask.total.items():
                most = self._table.free[kind][rows].max(axis=1) if kind in self._table.free else np.zeros(len(rows))
                waves = np.maximum(waves, np.ceil(ask.gangs * amount / np.maximum(most, amount)))
        return waves

    def book(self, booking: Booking) -> None:
        """Take what a job will hold out of a cluster's room, until a forecast knows it."""
        if booking.start < inf:
            self.hear(booking)

    def hear(self, booking: Booking) -> None:
        """Take what another process has booked, or this one."""
        with self._lock:
            answer = self._told.get(booking.cluster_id)
            if answer is None or booking.at >= answer.at:
                self._book(booking)

    def take_back(self, booking: Booking) -> None:
        """Give back what was booked for a job that was not stored after all."""
        cluster_id = booking.cluster_id
        with self._lock:
            others = [one for one in self._booked.pop(cluster_id, ()) if one is not booking]
            if (answer := self._told.get(cluster_id)) is not None and answer.room is not None:
                self._rooms[cluster_id] = answer.room
                self._table.put(self._rows[cluster_id], answer.room)
            for one in others:
                self._book(one)

    def _book(self, booking: Booking) -> None:
        cluster_id, ask = booking.cluster_id, booking.ask
        self._booked.setdefault(cluster_id, deque(maxlen=MOST_BOOKED)).append(booking)
        room = self._rooms.get(cluster_id)
        if room is None:
            return
        waves = max(1.0, float(self._waves(ask, self._found([cluster_id]))[0]))
        at_once = {kind: amount * ask.gangs / waves for kind, amount in ask.total.items()}
        large = ask.on_workers and all(
            any(2 * amount > whole.get(kind, 0) for kind, amount in ask.amounts.items())
            for whole in room.capacity.values()
        )
        booked = room.book(at_once, ask.slots * ask.gangs if large else 0, booking.start, booking.finish)
        self._rooms[cluster_id] = booked
        self._table.put(self._rows[cluster_id], booked)


def ask_of(slots: Sequence[SlotsView], gangs: int, totals: Mapping[str, int]) -> Ask:
    """Return what a job wants in each of its gangs: the slots of the largest, else what it matched in all."""
    if len(slots) == 1:
        return Ask(slots[0].least, {**slots[0].amounts, **slots[0].outside}, gangs)
    total: dict[str, float] = {}
    for one in slots:
        for kind, amount in (*one.amounts.items(), *one.outside.items()):
            total[kind] = total.get(kind, 0) + one.least * amount
    if slots:
        return Ask(1, total, gangs, whole=False, on_workers=False)
    nodes = max(1, totals.get("nodes", 1))  # as if each of them took as much
    each = {kind: totals[f"{kind}s"] / nodes for kind in ("core", "gpu") if totals.get(f"{kind}s")}
    return Ask(nodes, each, whole=False)


@dataclass(frozen=True, slots=True)
class Arriving:
    """When a job would start and end on each candidate, in the order of `ids` ({cluster id: name})."""

    outlook: Outlook
    ask: Ask
    ids: Mapping[str, str]
    found: Arrivals
    now: float
    names: Collection[str] = ()  # of the variables that are read

    @property
    def starts(self) -> dict[str, float]:
        """The expected start by name; infinite where it is unknown, or never."""
        return dict(zip(self.ids.values(), self.found.start.tolist(), strict=True))

    def tell(self, states: Mapping[str, dict[str, Any]]) -> None:
        """Add the variables to the states of the clusters; of those that nobody knows only that."""
        result, names = self.found, self.names
        values: dict[str, Floats] = {
            "eta.wait": result.start - self.now,
            "eta.start": result.start,
            "eta.finish": result.finish,
            "eta.total": result.finish - self.now,
            "eta.low": result.low,
            "eta.high": result.high,
            "eta.length": result.seconds,
            "eta.age": result.age,
        }
        there = np.isfinite(result.finish).tolist()
        answer = {name: values[name].tolist() for name in names if name in values}
        those = [states[name] for name in self.ids.values()]
        for variable, column in answer.items():
            for state, value, known in zip(those, column, there, strict=True):
                if known:
                    state[variable] = value
        if "eta.known" in names:
            for state, known in zip(those, there, strict=True):
                state["eta.known"] = known and self.ask.whole

    def columns(self, states: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Any]]:
        """Return what was added to states, by variable."""
        those = [states[name] for name in self.ids.values()]
        return {one: [state.get(one) for state in those] for one in self.names}

    def book(self, cluster_id: str) -> None:
        """Take the job out of the room of the cluster that has it, until the next forecast."""
        if cluster_id in self.ids:
            row = [*self.ids].index(cluster_id)
            start, finish = float(self.found.start[row]), float(self.found.finish[row])
            self.outlook.book(Booking(self.now, cluster_id, self.ask, start, finish))
