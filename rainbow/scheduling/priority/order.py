"""The order of waiting jobs by an expression.

The setting `order` ranks items within their POSIX priority: smaller is first, ties go by priority, submission and
place. An item whose order has no value (a limit is missing, something is divided by zero) goes behind those that have
one. The setting `starve` puts the oldest jobs that are late before all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from typing import Any

from rainbow.scheduling.interface import View
from rainbow.scheduling.priority.config.orders import read_order
from rainbow.scheduling.priority.model import Item
from rainbow.selection.expression.compiler import Fault, evaluate_with
from rainbow.selection.expression.scalar import Unknown, admit, is_number


class Ranking:
    """What items are worth to an order."""

    def __init__(self, view: View, settings: Mapping[str, Any], origin: float) -> None:
        self.now = view.now
        self.origin = origin
        self.expression = read_order(settings["order"])
        self.most_asked: float = settings["most_asked_priority"]
        self.offset: float = settings["duration_offset"]
        running = {(run.job, run.requestor) for run in view.runs}
        self.running = Counter(requestor for _, requestor in running)
        self.read: Mapping[str, Callable[[Item], float]] = {
            "walltime": self._walltime,
            "length": lambda item: min(item.gang.length or inf, self._walltime(item)),
            "slots": _slots,
            "cores": _cores,
            "waited": lambda item: max(0.0, self.now - item.job.submitted),
            "submitted": lambda item: item.job.submitted - self.origin,
            "priority": self._asked,
            "urgency": lambda item: sum(item.terms.get(part, 0.0) for part in ("rrc", "wtc", "dlc")),
            "tickets": lambda item: item.terms["tickets"],
            "ahead": lambda item: item.place,
            "running_of_owner": lambda item: self.running[item.job.requestor],
        }

    def rank(self, item: Item) -> None:
        """Set an item's rank, and beside its terms the value of its order or why it has none."""

        def get(name: str) -> Any:
            value = self.read[name](item)
            if not isfinite(value):
                raise Unknown(name)
            return admit(name, value)

        value = evaluate_with(self.expression, get)
        if not isinstance(value, Fault) and not is_number(value):
            value = Fault("the result is not a number")
        if isinstance(value, Fault):
            item.unordered, item.rank = value.reason, (-self._asked(item), 1.0, 0.0)
        else:
            item.terms, item.rank = {**item.terms, "order": value}, (-self._asked(item), 0.0, value)
            item.unordered = ""

    def _asked(self, item: Item) -> float:
        return item.job.priority + min(item.asks.priority, self.most_asked)

    def _walltime(self, item: Item) -> float:
        return item.duration - self.offset


def _slots(item: Item) -> int:
    """Return the fewest slots of an item; what only the matcher can place counts one for each task."""
    return item.counts[0] if item.groups else len(item.gang.tasks)


def _cores(item: Item) -> int:
    if not item.groups:
        raise Unknown("cores")
    if len(item.groups) == 1:
        return item.counts[0] * item.groups[0].amounts.get("core", 0)
    return sum(group.least * group.amounts.get("core", 0) for group in item.groups)


def rank(view: View, waiting: Sequence[Item], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Rank items by the setting `order`; return from when on submissions count, to be remembered."""
    if not settings["order"] or not waiting:
        return {}
    first = min(item.job.submitted for item in waiting)
    origin = min(first, float(view.memory.get("origin", first)))
    ranking = Ranking(view, settings, origin)
    for item in waiting:
        ranking.rank(item)
    return {"origin": origin}


def late_first(ordered: Sequence[Item], now: float, starve: Mapping[str, Any]) -> list[Item]:
    """Put the oldest jobs that have waited longer than `after` before all others, at most `first` of them."""
    after = starve.get("after", 0.0)
    late = [item for item in ordered if after and now - item.job.submitted > after and not item.asks.fault]
    if not late:
        return list(ordered)
    oldest = list(dict.fromkeys(item.job.id for item in sorted(late, key=lambda i: (i.job.submitted, i.place))))
    place = {job: k for k, job in enumerate(oldest[: starve["first"]])}
    return sorted(ordered, key=lambda item: place.get(item.job.id, len(place)))
