"""What people are told of a load-based round: the table of the founding text, and why jobs wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rainbow.scheduling.policy import Wait

if TYPE_CHECKING:
    from rainbow.scheduling.load_based import Round


def figures(round_: Round) -> dict[str, Any]:
    """Return workers in all, the spread, since when it is too large, and by class the table's columns."""
    return {
        "workers": round_.placing.ready,
        "unit": round_.placing.unit,
        "units": round_.placing.total,
        "idle": round_.placing.left,
        "spread": round(round_.spread, 3) if round_.placing.ready else 0.0,
        "over_since": round_.excess,
        "classes": {name: _row(round_, name, round_.target[name]) for name in round_.classes.percents},
    }


def _row(round_: Round, name: str, target: int) -> dict[str, Any]:
    kept = sum(one.units for one in round_.reserved if one.owner == name)
    held = round_.held[name] + kept
    return {
        "percent": round(round_.classes.percents[name], 3),
        "target": target,
        "running": round_.running[name],
        "held": held,
        "reserved": kept,
        "loaned": max(0, held - target),
        "unused": max(0, target - held),
        "waiting": round_.queues[name].tasks,
    }


def waits(round_: Round) -> Iterator[Wait]:
    """Say of the jobs that came to their turn and could not start why that is."""
    for queue in round_.queues.values():
        yield from queue.stuck.values()
