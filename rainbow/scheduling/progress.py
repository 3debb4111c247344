"""How a class whose share is less than one worker runs its share over time.

    credit   the part of all starts a class was due since it waits, less the starts it had
    turn     the class with the most credit, once that is a whole start: it has the first seat until it runs something

A class of 1 % of 50 workers has a target of 0, but every hundredth start is its own. See docs/decisions/0031.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WHOLE = 1 - 1e-6  # a start, less what summing fractions may lose


@dataclass(frozen=True, slots=True)
class ClassCount:
    """One class: its percent, and how many workers its tasks hold and wait for."""

    name: str
    percent: float
    running: int
    waiting: int


def turn(classes: Sequence[ClassCount], credit: Mapping[str, float]) -> str:
    """Name the class that is due a worker its percent may not round up to; an empty text if there is none.

    The number of workers has no part in it: one more must not pass the turn, and so a seat, to another class.

    >>> turn([ClassCount("a", 99, 5, 5), ClassCount("b", 1, 0, 1)], {"b": 1.0})
    'b'
    """
    due = [
        (-credit[c.name], c.name)
        for c in classes
        if credit.get(c.name, 0.0) >= WHOLE and c.percent > 0 and c.waiting and not c.running
    ]
    return min(due)[1] if due else ""


def credited(
    credit: Mapping[str, float], classes: Sequence[ClassCount], target: Mapping[str, int], granted: Mapping[str, int]
) -> dict[str, float]:
    """Return the credit after a round in which so many workers were granted; `target` without any turn."""
    total, all_granted = sum(c.percent for c in classes), sum(granted.values())
    kept = {}
    for c in classes:
        gains = c.waiting > granted[c.name] and (not target[c.name] or not c.running + granted[c.name])
        due = credit.get(c.name, 0.0) - granted[c.name] + c.percent / total * all_granted
        if gains and due > 0:
            kept[c.name] = round(due, 9)
    return kept
