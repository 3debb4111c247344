"""Whose turn it is to write: one thread at a time, the callers in fair order by the seconds that they took.

A thread brings parts of transactions that others may share, or wants a turn for a transaction of its own. The turn
goes to the thread of the first item in the queue. One with parts leads: it takes parts of all callers into
one commit, so that a burst of writers waits for the disk once. The turn is passed on after each commit.

    how long   a commit takes parts for 20 ms, or for as long as the last commit took to reach the disk, if that was
               longer: so the disk costs half of the time at most. Never for more than 100 ms or 200 parts. While only
               one caller writes it takes parts for 100 ms: no other caller waits for it.
    trouble    with the database fails the parts that are in the commit; those not yet taken go into the next. If none
               was taken it fails one part. A call that meets such trouble twice fails as a whole: to try once for
               each of a thousand parts would keep all others waiting while the database is away.
    cost       of a part are its own seconds and its share of those of the commit: all time is charged to a caller.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from rainbow.fair_queue import FairQueue, Waiting

T = TypeVar("T")
SHORT = 0.020  # seconds for which a commit takes parts at least
LONG = 0.100  # seconds, at most
MOST_PARTS = 200  # of a commit


class Writer(NamedTuple):
    """A writer, and its share of the time beside others."""

    caller: str
    weight: float = 1.0


WRITER: ContextVar[Writer | None] = ContextVar("writer", default=None)  # None: who the thread is named after


@dataclass(eq=False, slots=True)
class Part(Generic[T]):
    """A part of a transaction, and its result."""

    do: Callable[[Any], T]
    result: T | None = None
    fault: BaseException | None = None
    done: bool = False


@dataclass(eq=False, slots=True)
class _Call:
    """The parts of one thread. Only parts of one `kind` share a commit; None: they take a turn of their own."""

    kind: object
    open_parts: int
    waiting: deque[Waiting[_Item]] = field(default_factory=deque)  # of its items, those that nobody has taken
    wake: threading.Event = field(default_factory=threading.Event)
    has_turn: bool = False
    met_trouble: bool = False  # before one of its parts was taken


@dataclass(eq=False, slots=True)
class _Item:
    call: _Call
    part: Part[Any] | None

    def end(self, trouble: BaseException | None) -> None:
        """Mark the part as done, and wake the thread that waits for the last of its call."""
        if self.part is not None:
            self.part.fault = trouble or self.part.fault
            self.part.done = True
        self.call.open_parts -= 1
        if not self.call.open_parts:
            self.call.wake.set()


class WriteQueue:
    """The turns of one process."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._changing = threading.Lock()  # held for all that follows
        self._waiting: FairQueue[_Item] = FairQueue()
        self._is_taken = False
        self._owner: int | None = None  # the thread whose turn it is
        self._last_commit = 0.0  # seconds that it took

    def __len__(self) -> int:
        """Parts and turns that wait."""
        with self._changing:
            return len(self._waiting)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Have a turn of one's own."""
        call = _Call(None, 1)
        self._enter(call, [None])
        self._await(call)
        with self._changing:
            taken = self._waiting.take(lambda item: item.call is call)
        began = self._clock()
        try:
            yield
        finally:
            with self._changing:
                if taken is not None:
                    self._waiting.charge(taken, self._clock() - began)
                self._pass_on()

    def share(self, kind: object, parts: Sequence[Part[Any]], write: Callable[[Commit], None]) -> None:
        """Return when each of some parts is done, in a commit by this thread or by another.

        `write` does and commits what it takes of a Commit; what it raises is the fault of all of these parts.
        """
        if not parts:
            return
        call = _Call(kind, len(parts))
        self._enter(call, parts)
        while self._await(call):
            commit, trouble = Commit(self, kind), None
            try:
                write(commit)
            except BaseException as fault:
                trouble = fault
            self._end(call, commit, trouble)

    def _enter(self, call: _Call, parts: Sequence[Part[Any] | None]) -> None:
        caller, weight = WRITER.get() or Writer(threading.current_thread().name)
        with self._changing:
            if self._owner == threading.get_ident():
                raise RuntimeError("a thread that writes cannot wait for another turn to write")
            for part in parts:
                call.waiting.append(self._waiting.put(caller, _Item(call, part), weight))
            self._call_next()

    def _await(self, call: _Call) -> bool:
        """Wait until it is a call's turn; False: all of it is done."""
        try:
            call.wake.wait()
        except BaseException:
            self._withdraw(call)
            raise
        with self._changing:
            call.wake.clear()
            has_turn, call.has_turn = call.has_turn, False
            if has_turn:
                self._owner = threading.get_ident()
        return has_turn

    def _withdraw(self, call: _Call) -> None:
        """Remove the parts for which an interrupted thread waited."""
        with self._changing:
            for waiting in call.waiting:
                self._waiting.remove(waiting)
            if call.has_turn:
                self._pass_on()

    def _end(self, call: _Call, commit: Commit, trouble: BaseException | None) -> None:
        """Record the results of a commit's parts, and pass the turn on."""
        with self._changing:
            now = self._clock()
            if not commit.is_begun and trouble is not None:
                commit.taken += list(call.waiting) if call.met_trouble else [call.waiting[0]]
                for waiting in commit.taken:
                    self._waiting.remove(waiting)
                    call.waiting.popleft()
                call.met_trouble = True
            elif trouble is None:
                self._last_commit = now - commit.last
            for waiting in commit.taken:
                if commit.is_begun:
                    self._waiting.charge(waiting, (now - commit.last) / len(commit.taken))
                waiting.item.end(trouble)
            self._pass_on()

    def _pass_on(self) -> None:
        self._is_taken, self._owner = False, None
        self._call_next()

    def _call_next(self) -> None:
        """Give the turn, if it is free, to the call of the first item."""
        if self._is_taken:
            return
        first = self._waiting.first()
        if first is None:
            self._waiting.rest()
            return
        self._is_taken = True
        first.item.call.has_turn = True
        first.item.call.wake.set()


class Commit:
    """The parts that one commit takes; used by the thread whose turn it is."""

    def __init__(self, queue: WriteQueue, kind: object) -> None:
        self._queue, self._kind = queue, kind
        self.taken: list[Waiting[_Item]] = []
        self.is_begun = False  # a part was taken
        self.is_single = False  # one part was taken, and nobody waited to be the second
        self.last = self._began = queue._clock()  # when the last part was done, or nothing is

    def take(self) -> Part[Any] | None:
        """Return the part to do next; None: it is time to commit."""
        queue = self._queue
        with queue._changing:
            now = queue._clock()
            if self.taken:
                queue._waiting.charge(self.taken[-1], now - self.last)
            else:
                self._began = now
            self.last = now
            if self.taken and (len(self.taken) >= MOST_PARTS or now - self._began >= self._seconds()):
                return None
            part = queue._waiting.take(self._fits)
            if part is None:
                return None
            self.taken.append(part)
            self.is_begun = True
            self.is_single = len(self.taken) == 1 and queue._waiting.first(self._fits) is None
            part.item.call.waiting.popleft()
            return part.item.part

    def _fits(self, item: _Item) -> bool:
        return item.call.kind is not None and item.call.kind == self._kind

    def _seconds(self) -> float:
        """Return for how long this commit takes parts."""
        queue, [caller, *others] = self._queue, {waiting.caller for waiting in self.taken}
        if not others and queue._waiting.callers <= {caller}:
            return LONG
        return min(max(SHORT, queue._last_commit), LONG)
