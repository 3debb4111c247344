"""Slots per worker by the allocation rules of parallel environments, and ranges of slots.

A rule asks workers in order through `take(worker, low, high)`, which gives between low and high slots of that
worker, or 0. It returns whether the count was met; what was taken in vain is the caller's to forget.

The largest count of a range that fits is found by bisection, from the smallest up, or from the largest down. A count
that fits makes every smaller one fit, so all three find the same count; they differ in the number of questions. The
policy chooses by experience: an average of the questions each would have needed, new ones weighing a fifth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from rainbow.scheduling.priority.model import FILL_UP, ONE_WORKER, ROUND_ROBIN, WAYS

Take = Callable[[str, int, int], int]


def allocate(rule: str | int, count: int, workers: Iterable[str], take: Take) -> bool:
    """Take `count` slots by a rule: fill_up, round_robin, pe_slots (all on one worker), or exactly k a worker."""
    if isinstance(rule, int):
        return fixed(rule, count, workers, take)
    return {FILL_UP: fill_up, ROUND_ROBIN: round_robin, ONE_WORKER: one_worker}[rule](count, workers, take)


def fill_up(count: int, workers: Iterable[str], take: Take) -> bool:
    """Use each worker up before the next."""
    for worker in workers:
        if count <= 0:
            break
        count -= take(worker, 1, count)
    return count <= 0


def round_robin(count: int, workers: Iterable[str], take: Take) -> bool:
    """Take one slot of each worker in turn, as evenly as they allow."""
    remaining: Iterable[str] = workers
    giving = [""]
    while count > 0 and giving:
        giving = []
        for worker in remaining:
            if count <= 0:
                break
            if take(worker, 1, 1):
                count -= 1
                giving.append(worker)
        remaining = giving
    return count <= 0


def one_worker(count: int, workers: Iterable[str], take: Take) -> bool:
    """Take all slots of one worker."""
    return any(take(worker, count, count) for worker in workers)


def fixed(each: int, count: int, workers: Iterable[str], take: Take) -> bool:
    """Take exactly `each` slots of every worker used."""
    if count % each:
        return False
    for worker in workers:
        if count <= 0:
            break
        count -= take(worker, each, each)
    return count <= 0


def admissible(rule: str | int, counts: Sequence[int]) -> list[int]:
    """Drop the counts a rule can never meet; among the rest, an item that can have more can have less."""
    return [n for n in counts if not isinstance(rule, int) or n % rule == 0]


T = TypeVar("T")


NEW = 0.2


def largest(counts: Sequence[int], fits: Callable[[int], T | None], way: str = "bisection") -> T | None:
    """Return the answer for the largest count that has one; counts ascend."""
    return {"bisection": _bisect, "low": _from_low, "high": _from_high}[way](counts, fits)


def _bisect(counts: Sequence[int], fits: Callable[[int], T | None]) -> T | None:
    result, low, high = None, 0, len(counts) - 1
    while low <= high:
        middle = (low + high) // 2
        answer = fits(counts[middle])
        if answer is None:
            high = middle - 1
        else:
            result, low = answer, middle + 1
    return result


def _from_low(counts: Sequence[int], fits: Callable[[int], T | None]) -> T | None:
    result = None
    for count in counts:
        answer = fits(count)
        if answer is None:
            break
        result = answer
    return result


def _from_high(counts: Sequence[int], fits: Callable[[int], T | None]) -> T | None:
    return next((answer for count in reversed(counts) if (answer := fits(count)) is not None), None)


def choose(experience: Mapping[str, float]) -> str:
    """Name the way that would have asked least so far; bisection without experience."""
    return min(WAYS, key=lambda way: (experience.get(way, 0.0), WAYS.index(way)))


def learn(experience: Mapping[str, float], counts: Sequence[int], result: int) -> dict[str, float]:
    """Return the experience after a search over `counts` that ended at `result` (0: none fits)."""
    place = sum(1 for count in counts if count <= result)
    request = {
        "bisection": float(len(counts).bit_length()),
        "low": float(min(place + 1, len(counts))),
        "high": float(min(len(counts) - place + 1, len(counts))),
    }
    return {way: round((1 - NEW) * experience.get(way, request[way]) + NEW * request[way], 6) for way in WAYS}
