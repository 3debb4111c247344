"""Priority: in which order items are tried.

npprio  POSIX priority, normalised over its fixed range
rrc     urgency of the resources asked for: Σ urgency of a type × amount × slots assumed
wtc     urgency of waiting: weight × seconds since submission
dlc     urgency of a deadline: weight / seconds left, all of the weight once it has passed
nurg    rrc + wtc + dlc, normalised over the items of this run
ntix    tickets (tickets.py), normalised from 0 to the most of this run

priority = weight.priority · npprio + weight.urgency · nurg + weight.ticket · ntix
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rainbow.jobspec.request import HIGHEST, LOWEST
from rainbow.scheduling.priority.model import Item


def normalised(value: float, low: float, high: float) -> float:
    """Return where a value lies between two bounds, from 0 to 1; 0.5 if they are the same."""
    if high - low < 2.2e-16:
        return 0.5
    return min(1.0, max(0.0, (value - low) / (high - low)))


def urgency(item: Item, now: float, settings: Mapping[str, Any]) -> dict[str, float]:
    """Return the three parts of an item's urgency."""
    weights = settings["weights"]
    deadline = item.asks.deadline
    users = settings["deadline_users"]
    due = weights["deadline"] / max(1.0, deadline - now) if deadline and (not users or item.user in users) else 0.0
    return {
        "rrc": resource_urgency(item, settings["urgency"]),
        "wtc": weights["waiting_time"] * max(0.0, now - item.job.submitted),
        "dlc": due,
    }


def resource_urgency(item: Item, urgencies: Mapping[str, float]) -> float:
    """Return the urgency of what an item asks for."""
    if not urgencies:
        return 0.0
    total = 0.0
    for group in item.groups:
        slots = assumed_slots(item) if len(item.groups) == 1 else group.least
        amounts = {"slots": 1, **group.amounts, **group.outside}
        total += slots * sum(urgencies.get(kind, 0.0) * amount for kind, amount in amounts.items())
    return total


def assumed_slots(item: Item) -> float:
    """How many slots of a range count for urgency."""
    how = item.environments[0].urgency_slots
    if isinstance(how, int):
        return how
    return {"min": item.counts[0], "max": item.counts[-1], "avg": (item.counts[0] + item.counts[-1]) / 2}[how]


def prioritise(waiting: Sequence[Item], now: float, settings: Mapping[str, Any], tickets: Sequence[float]) -> None:
    """Set the priority of every item and the terms it is made of."""
    weights = settings["weights"]
    by_priority, by_urgency, by_ticket = weights["priority"], weights["urgency"], weights["ticket"]
    may_ask = settings["most_asked_priority"]
    parts = [urgency(item, now, settings) for item in waiting]
    urgencies = [sum(part.values()) for part in parts]
    low, high = min(urgencies, default=0.0), max(urgencies, default=0.0)
    most = max(tickets, default=0.0)
    for item, part, urgent, own in zip(waiting, parts, urgencies, tickets, strict=True):
        npprio = normalised(item.job.priority + min(item.asks.priority, may_ask), LOWEST, HIGHEST)
        nurg, ntix = normalised(urgent, low, high), normalised(own, 0.0, most)
        item.terms = {**part, "tickets": own, "npprio": npprio, "nurg": nurg, "ntix": ntix}
        item.priority = by_priority * npprio + by_urgency * nurg + by_ticket * ntix


def ordered(waiting: Sequence[Item]) -> list[Item]:
    """Return items by priority, the best first; ties by submission, then id."""
    return sorted(waiting, key=lambda item: (-item.priority, item.job.submitted, item.place))
