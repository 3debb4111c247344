"""The delegate policy: whole jobs are handed over in order to a cluster that schedules for itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.errors import PolicyError
from rainbow.scheduling.interface import Plan, Start, Traits, View, Wait
from rainbow.text import some


class Delegate:
    """Hands over up to `max_handed_over` jobs at a time, without placing them."""

    traits = Traits(by_events=True, hands_over=True)

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with their default; PolicyError names the first fault."""
        for key in settings:
            if key != "max_handed_over":
                raise PolicyError(f"delegate has no setting {key}; it has: max_handed_over", pointer=f"/{key}")
        most = settings.get("max_handed_over", 1_000)
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise PolicyError("max_handed_over is a whole number of at least 1", pointer="/max_handed_over")
        return {"max_handed_over": most}

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
