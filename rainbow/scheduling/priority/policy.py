"""The priority policy: Grid Engine's dispatcher over one resource diagram.

1 items     what waits, in order of submission
2 lines     what is booked: running tasks, advance reservations, closed hours
3 order     priority of every item, best first
4 dispatch  start, reserve or refuse each
5 tell      orders, reasons, figures
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.scheduling.policy import Plan, View
from rainbow.scheduling.priority.assign import Assigner
from rainbow.scheduling.priority.dispatch import Dispatch, orders
from rainbow.scheduling.priority.lines import Lines
from rainbow.scheduling.priority.order import ordered
from rainbow.scheduling.priority.settings import check_settings
from rainbow.scheduling.priority.waits import waits
from rainbow.scheduling.priority.work import items


class Priority:
    """Plans by priority, with reservations and backfilling."""

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with every default filled in; PolicyError names the first fault."""
        return check_settings(settings)

    def plan(self, view: View) -> Plan:
        """Start what fits in order of priority, and promise times to those that do not."""
        settings = check_settings(view.settings)
        waiting = items(view, settings)
        lines = Lines(view, settings, {e.name: e for item in waiting for e in item.environments}.values())
        assigner = Assigner(lines, settings, view.memory.get("slot_search", {}))
        dispatch = Dispatch(view, settings, lines, assigner)
        outcomes = dispatch.run(ordered(waiting))
        memory = {**view.memory, "slot_search": assigner.experience} if assigner.experience else view.memory
        return Plan(tuple(orders(view, outcomes)), tuple(waits(view, outcomes)), {}, memory)
