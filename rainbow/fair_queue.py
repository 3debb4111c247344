"""Start-time fair queueing: each caller gets its share of the turns, however much the others request.

The algorithm is that of P. Goyal, H. M. Vin and H. Cheng, "Start-time Fair Queueing: A Scheduling Algorithm for
Integrated Services Packet Switching Networks" (SIGCOMM 1996), section 2. What an item costs is known when it is done:
only the start tag of a caller's next item depends on it.

    start  of an item      the finish of its caller's item before it; the virtual time when it came, if that is later
                           and nothing else of its caller waited then
    finish of an item      its start + what it cost / its weight
    virtual time           grows by what an item cost / the weights of all who waited or were served then; when
                           a caller comes it is neither below the lowest start of what waits nor above the highest

Taken is the item with the lowest start; of several the one that came first. Two callers who always have something
waiting differ, in what they got / their weights, by no more than one item of each.

The virtual time of the paper is the start of the item in service. With that, callers who come once each, all with the
same start, could keep one waiting forever who has had something before; and there are as many as there are
credentials. Time that grows with the service, as in weighted fair queueing, lets them come later and later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
MOST_FINISHES = 1_024  # callers whose last finish is remembered before those that have no debt are forgotten


@dataclass(frozen=True, slots=True, eq=False)
class Waiting(Generic[T]):
    """An item with its caller, its virtual time and its number."""

    caller: str
    item: T
    weight: float
    came: float
    number: int


class FairQueue(Generic[T]):
    """Items of several callers; of one caller they are taken in the order in which they came.

    >>> queue = FairQueue()
    >>> for name in ("a1", "a2", "b1"):
    ...     _ = queue.put(name[0], name)
    >>> first = queue.take()
    >>> queue.charge(first, 5.0)
    >>> first.item, queue.take().item, queue.take().item
    ('a1', 'b1', 'a2')
    """

    def __init__(self) -> None:
        self._lines: dict[str, deque[Waiting[T]]] = {}  # of those callers who have something here
        self._finishes: dict[str, float] = {}
        self._now = 0.0  # the virtual time
        self._number = 0

    def __len__(self) -> int:
        """Items that wait."""
        return sum(map(len, self._lines.values()))

    def put(self, caller: str, item: T, weight: float = 1.0) -> Waiting[T]:
        """Add an item to its caller's line."""
        self._number += 1
        came = self._time() if caller not in self._lines else 0.0
        waiting = Waiting(caller, item, weight, came, self._number)
        self._lines.setdefault(caller, deque()).append(waiting)
        return waiting

    def _time(self) -> float:
        """Return the virtual time at which a new caller starts."""
        if starts := [self._start(line[0]) for line in self._lines.values()]:
            self._now = min(max(self._now, min(starts)), max(starts))
        return self._now

    def first(self, fits: Callable[[T], bool] = lambda _: True) -> Waiting[T] | None:
        """Return the item to take next: of the callers whose own next one `fits`."""
        heads = (line[0] for line in self._lines.values() if fits(line[0].item))
        return min(heads, key=lambda one: (self._start(one), one.number), default=None)

    def take(self, fits: Callable[[T], bool] = lambda _: True) -> Waiting[T] | None:
        """Take the first item out; it is to be charged when it is done."""
        result = self.first(fits)
        if result is not None:
            self._finishes[result.caller] = self._start(result)
            self.remove(result)
        return result

    def remove(self, waiting: Waiting[T]) -> None:
        """Take an item out as if it had never come."""
        line = self._lines[waiting.caller]
        line.remove(waiting)
        if not line:
            del self._lines[waiting.caller]

    def charge(self, taken: Waiting[T], cost: float) -> None:
        """Record the cost of an item that was taken; further costs of it add up."""
        self._finishes[taken.caller] = self._finishes.get(taken.caller, 0.0) + cost / taken.weight
        own = 0.0 if taken.caller in self._lines else taken.weight
        self._now += cost / (own + sum(line[0].weight for line in self._lines.values()))
        if len(self._finishes) > MOST_FINISHES:
            self._finishes = {
                caller: finish
                for caller, finish in self._finishes.items()
                if finish > self._now or caller in self._lines
            }

    def rest(self) -> None:
        """Note that nothing is under way: if nothing waits either, all debts end."""
        if not self._lines:
            self._finishes.clear()
            self._now = 0.0

    @property
    def callers(self) -> Set[str]:
        """The callers that have items here."""
        return self._lines.keys()

    @property
    def remembered(self) -> int:
        """How many callers' finishes are remembered."""
        return len(self._finishes)

    def _start(self, waiting: Waiting[T]) -> float:
        return max(waiting.came, self._finishes.get(waiting.caller, 0.0))
