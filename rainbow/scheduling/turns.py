"""Whose turn it is: within a class the job that runs least goes first."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


def take_turns(jobs: Iterable[tuple[Name, int, int]], most: int) -> list[Name]:
    """Name the job of every start, from (name, running, waiting) in order of arrival.

    Jobs that run equally many stand in the order in which they came to that number.

    >>> take_turns([("a", 0, 5), ("b", 1, 5)], 4)
    ['a', 'b', 'a', 'b']
    """
    arrival = count()
    queue = [(running, next(arrival), name, waiting) for name, running, waiting in jobs if waiting]
    heapify(queue)
    taken: list[Name] = []
    while queue and len(taken) < most:
        running, _, name, waiting = heappop(queue)
        taken.append(name)
        if waiting > 1:
            heappush(queue, (running + 1, next(arrival), name, waiting - 1))
    return taken
