"""The names of lines, and what workers and cluster have of their own."""

from __future__ import annotations

from rainbow.scheduling.policy import View
from rainbow.scheduling.priority.model import Spot

CLUSTER = ""
MANY = 2**53  # slots of a queue that does not limit them


def queue_line(spot: Spot) -> str:
    """Name the line of a queue on a worker."""
    return f"queue {spot.queue}@{spot.worker}"


def reserved_line(reservation: str, worker: str) -> str:
    """Name the line of what an advance reservation keeps of a worker, or of the cluster."""
    return f"in {reservation}@{worker}"


def capacity(view: View) -> dict[str, dict[str, int]]:
    """Return what workers and cluster have: no more than what is free there and what their tasks hold."""
    found = {worker.id: dict(worker.free) for worker in view.workers}
    found[CLUSTER] = dict(view.consumables)
    for run in view.runs:
        for line, amounts in run.placement.items():
            held = found.setdefault(line, {})
            for kind, amount in amounts.items():
                held[kind] = held.get(kind, 0) + amount
    return found
