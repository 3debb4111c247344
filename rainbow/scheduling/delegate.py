"""The delegate policy: whole jobs are handed over in order to a cluster that schedules for itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.scheduling.interface import Plan, Start, Traits, View, Wait
from rainbow.scheduling.settings_schema import LARGEST_NUMBER, integer, number, one_of, record
from rainbow.text import some

ON_STUCK = ("withdraw", "hold", "cancel")
_SETTINGS = record(
    {
        "max_handed_over": (1_000, integer(1)),
        "stuck_after": (60.0, number(0, LARGEST_NUMBER)),  # seconds that a job may wait for what never comes
        "on_stuck": ("withdraw", one_of(*ON_STUCK)),  # what becomes of it then: withdraw: it moves if it can
    },
    owner="delegate",
)


class Delegate:
    """Hands over up to `max_handed_over` jobs at a time, without placing them."""

    traits = Traits(by_events=True, hands_over=True)

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with their defaults; PolicyError names the first fault."""
        return _SETTINGS(settings, "")

    def plan(self, view: View) -> Plan:
        """Hand over the oldest jobs while there is room."""
        most = self.check(view.settings)["max_handed_over"]
        handed = {run.job for run in view.runs}
        orders: list[Start] = []
        waits: list[Wait] = []
        for job in view.jobs:
            if job.id in handed or len(handed) < most:
                handed.add(job.id)
                orders.extend(Start(task, {}) for gang in job.gangs for task in gang.tasks)
            elif not view.quiet:
                facts = {"handed_over": len(handed), "ahead": len(waits)}
                waits.append(
                    Wait(
                        job.id,
                        "handed-over-full",
                        f"{some(len(handed), 'job is', 'jobs are')} handed over; the limit max_handed_over is {most}",
                        facts,
                    )
                )
        return Plan(tuple(orders), tuple(waits), {"handed_over": len(handed)}, view.memory)
