"""The priority policy: Grid Engine's dispatcher over one resource diagram.

1 items     what waits, in order of submission
2 lines     what is booked: running tasks, advance reservations, closed hours
3 order     priority of every item, best first
4 dispatch  start, reserve or refuse each
5 tell      orders, reasons, figures
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rainbow.scheduling.policy import JobView, Kept, Order, Plan, View
from rainbow.scheduling.priority.advance import keep
from rainbow.scheduling.priority.asks import read_asks
from rainbow.scheduling.priority.assign import Assigner
from rainbow.scheduling.priority.dispatch import Dispatch, Outcome
from rainbow.scheduling.priority.lines import Lines
from rainbow.scheduling.priority.model import Item, owners
from rainbow.scheduling.priority.order import ordered, prioritise
from rainbow.scheduling.priority.orders import orders, remembered
from rainbow.scheduling.priority.settings import GRID_ENGINE, check_settings
from rainbow.scheduling.priority.suspension import paced, suspended_spots, suspensions
from rainbow.scheduling.priority.tickets import tickets
from rainbow.scheduling.priority.usage import counted, expected, lengths
from rainbow.scheduling.priority.waits import figures, waits
from rainbow.scheduling.priority.work import environments, items

NAME = "priority"  # what this policy remembers stands under its name, beside what others left


@dataclass(frozen=True, slots=True)
class Run:
    """One scheduling run, done: what was decided, and the diagram with everything booked."""

    settings: Mapping[str, Any]
    lines: Lines
    assigner: Assigner
    outcomes: list[Outcome]
    memory: dict[str, Any]


def dispatch(view: View) -> Run:
    """Decide about everything that waits."""
    settings = check_settings(view.settings)
    waiting = items(view, settings)
    memory = _prioritise(view, waiting, settings)
    lines = Lines(view, settings, environments(settings).values())
    assigner = Assigner(lines, settings, view.memory.get("slot_search", {}))
    outcomes = Dispatch(view, settings, lines, assigner).run(ordered(waiting))
    return Run(settings, lines, assigner, outcomes, memory)


def _prioritise(view: View, waiting: list[Item], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Set the priority of every item; return the memory with usage brought up to now."""
    given = settings["tickets"]
    memory: dict[str, Any] = {}
    if not any((given["share"], given["functional"], *given["override"].values())):
        prioritise(waiting, view.now, settings, [0.0] * len(waiting))
        return memory
    held = {run.task: owners(run.job, run.requestor, read_asks(run)) for run in view.runs}
    used: Mapping[str, float] = {}
    length: float | None = None
    if given["share"] and given["share_tree"]:
        memory["usage"] = counted(view, settings)
        used = memory["usage"]["used"]
        if settings["compat"] != GRID_ENGINE:
            memory["lengths"] = lengths(view)
            length = memory["lengths"]["mean"]
            used = expected(view, used, length, settings)
    active = list({own["job"]: own for own in held.values()}.values())
    prioritise(waiting, view.now, settings, tickets(waiting, active, used, given, length))
    return memory


class Priority:
    """Plans by priority, with reservations and backfilling."""

    needs_workers = True

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with every default filled in; PolicyError names the first fault."""
        return check_settings(settings)

    def names(self, settings: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
        """Return the queues and parallel environments there are."""
        queues, environments_ = settings.get("queues", {}), settings.get("parallel_environments", {})
        return {"queue": queues, "master_queue": queues, "pe": environments_}

    def plan(self, view: View) -> Plan:
        """Start what fits in order of priority, and promise times to those that do not."""
        run = dispatch(own_view(view))
        held: list[Order] = []
        if run.lines.queues:
            held.extend(suspensions(run.lines, suspended_spots(run.lines)))
        times = paced(run.lines, held)
        own = run.memory | ({"paced": times} if times else {})
        own |= remembered(run.lines.view, run.settings, run.outcomes, held)
        if run.assigner.experience:
            own["slot_search"] = run.assigner.experience
        memory = {key: value for key, value in view.memory.items() if key != NAME}
        made = (*orders(view, run.outcomes), *held)
        told = tuple(waits(run.lines, run.outcomes))
        return Plan(made, told, figures(run.outcomes), {**memory, NAME: own} if own else memory)

    def promising(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return settings under which every job may be promised a time."""
        given = {key: value for key, value in settings.items() if key != "max_reservation"}
        return {**given, "discipline": "conservative", "max_jobs_per_user": 0, "compat": "", "search": "gaps"}

    def counted_until(self, memory: Mapping[str, Any]) -> float | None:
        """Return from when on it needs the record of what has ended: since it counted usage last; None: never."""
        at = memory.get(NAME, {}).get("usage", {}).get("at")
        return None if at is None else float(at)

    def keep(self, view: View, job: JobView, start: float | None, seconds: float) -> Kept:
        """Find space for an advance reservation."""
        return keep(view, job, start, seconds)


def own_view(view: View) -> View:
    """Return a view with the memory that is this policy's own."""
    own = view.memory.get(NAME)
    return replace(view, memory=own if isinstance(own, Mapping) else {})
