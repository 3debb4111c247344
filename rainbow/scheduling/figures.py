"""What people are told of a load-based round: the table of the founding text, and why jobs wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rainbow.scheduling.policy import JobView, Wait

if TYPE_CHECKING:
    from rainbow.scheduling.load_based import Round


def figures(round_: Round) -> dict[str, Any]:
    """Return workers in all, the spread, since when it is too large, and by class the table's columns."""
    target = round_.counting.targets(round_.counts(1))
    return {
        "workers": round_.placing.ready,
        "unit": round_.placing.unit,
        "units": round_.placing.total,
        "idle": round_.placing.left,
        "spread": round(round_.spread, 3) if round_.placing.ready else 0.0,
        "over_since": round_.excess,
        "classes": {name: _row(round_, name, target[name]) for name in round_.classes.percents},
    }


def _row(round_: Round, name: str, target: int) -> dict[str, Any]:
    held = round_.held[name]
    return {
        "percent": round(round_.classes.percents[name], 3),
        "target": target,
        "running": round_.running[name],
        "held": held,
        "loaned": max(0, held - target),
        "unused": max(0, target - held),
        "waiting": round_.queues[name].tasks,
    }


def waits(round_: Round) -> Iterator[Wait]:
    """Say of every job with something waiting why it waits."""
    target = round_.counting.targets(round_.counts(1))
    for name, queue in round_.queues.items():
        for ahead, job in enumerate(queue.in_order()):
            yield queue.stuck.get(job.id) or _share_used(round_, name, job, target[name], ahead)


def _share_used(round_: Round, name: str, job: JobView, target: int, ahead: int) -> Wait:
    held, idle = round_.held[name], round_.placing.left
    facts = {"class": name, "held": held, "target": target, "idle": idle, "ahead": ahead}
    text = f"class {name} holds {held} of its {target} {round_.placing.unit}s, {idle} idle; {ahead} jobs ahead"
    return Wait(job.id, "share-used", text, facts)
