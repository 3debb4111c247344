"""What is to be done about the outcomes of a run, and what the next run must know of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rainbow.scheduling.policy import Order, Reserve, Resume, Start, Suspend, View
from rainbow.scheduling.priority.capacity import CLUSTER
from rainbow.scheduling.priority.dispatch import STARTED, Outcome
from rainbow.scheduling.priority.model import Grant


def orders(view: View, outcomes: Iterable[Outcome]) -> list[Order]:
    """Return the starts and reservations of a run."""
    made: list[Order] = []
    for outcome in outcomes:
        grant, gang = outcome.grant, outcome.item.gang
        if grant is None:
            continue
        if outcome.verdict == STARTED:
            placed = view.divide(gang.demand, grant.take())
            made.extend(Start(task, held) for task, held in zip(gang.tasks, placed, strict=True))
        else:
            workers = {CLUSTER, *(spot.worker for spot, _ in grant.spots)}
            held = {line: dict(amounts) for line, amounts in grant.booking.items() if line in workers}
            made.append(Reserve(outcome.item.job.id, held, grant.start, grant.end))
    return made


def remembered(
    view: View, settings: Mapping[str, Any], outcomes: Iterable[Outcome], held: Sequence[Order]
) -> dict[str, Any]:
    """Return the memory of where tasks lie, as far as queues, environments or quotas count it, and who is held."""
    memory: dict[str, Any] = {}
    if settings["queues"] or settings["quotas"] or settings["parallel_environments"]:
        known = view.memory.get("running", {})
        kept = {run.task: known[run.task] for run in view.runs if run.task in known}
        for outcome in outcomes:
            if outcome.verdict == STARTED and outcome.grant is not None:
                kept[outcome.item.gang.tasks[0]] = _where(outcome.grant)
        memory["running"] = kept
    suspended = {run.task for run in view.runs} & set(view.memory.get("suspended", []))
    suspended |= {order.task for order in held if isinstance(order, Suspend)}
    suspended -= {order.task for order in held if isinstance(order, Resume)}
    return {**memory, "suspended": sorted(suspended)} if suspended else memory


def _where(grant: Grant) -> dict[str, Any]:
    spots = [[spot.worker, spot.queue, count] for spot, count in grant.spots]
    return {"pe": grant.environment.name, "spots": spots}
