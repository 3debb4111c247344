"""The largest count of a slot range that fits: by bisection, from the smallest up, or from the largest down.

Among admissible counts whoever can have more can have less, so all three find the same count; they differ in how
often they ask. Experience chooses: an average of the questions each would have needed, new ones weighing a fifth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
WAYS = ("bisection", "low", "high")
NEW = 0.2


def largest(counts: Sequence[int], fits: Callable[[int], T | None], way: str = "bisection") -> T | None:
    """Return the answer for the largest count that has one; counts ascend."""
    return {"bisection": _bisect, "low": _from_low, "high": _from_high}[way](counts, fits)


def _bisect(counts: Sequence[int], fits: Callable[[int], T | None]) -> T | None:
    found, low, high = None, 0, len(counts) - 1
    while low <= high:
        middle = (low + high) // 2
        answer = fits(counts[middle])
        if answer is None:
            high = middle - 1
        else:
            found, low = answer, middle + 1
    return found


def _from_low(counts: Sequence[int], fits: Callable[[int], T | None]) -> T | None:
    found = None
    for count in counts:
        answer = fits(count)
        if answer is None:
            break
        found = answer
    return found


def _from_high(counts: Sequence[int], fits: Callable[[int], T | None]) -> T | None:
    return next((answer for count in reversed(counts) if (answer := fits(count)) is not None), None)


def choose(experience: Mapping[str, float]) -> str:
    """Name the way that would have asked least so far; bisection without experience."""
    return min(WAYS, key=lambda way: (experience.get(way, 0.0), WAYS.index(way)))


def learn(experience: Mapping[str, float], counts: Sequence[int], found: int) -> dict[str, float]:
    """Return the experience after a search over `counts` that ended at `found` (0: none fits)."""
    place = sum(1 for count in counts if count <= found)
    asked = {
        "bisection": float(len(counts).bit_length()),
        "low": float(min(place + 1, len(counts))),
        "high": float(min(len(counts) - place + 1, len(counts))),
    }
    return {way: round((1 - NEW) * experience.get(way, asked[way]) + NEW * asked[way], 6) for way in WAYS}
