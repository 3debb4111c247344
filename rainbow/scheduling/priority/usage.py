"""What owners have used, fading with a half-life; kept in the policy's memory from one run to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.scheduling.policy import View
from rainbow.scheduling.priority.share_tree import key
from rainbow.scheduling.priority.tickets import Owners, leaf_of

NOTHING = 1e-9


def decayed(used: float, seconds: float, halftime: float) -> float:
    """Return what is left of usage after some seconds; without a half-life (0) all of it."""
    return used * 0.5 ** (seconds / halftime) if halftime else used


def counted(view: View, owners: Mapping[str, Owners], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the memory of usage, {"at", "used"}, brought up to now with what ran since the last time."""
    earlier = view.memory.get("usage", {})
    at = earlier.get("at", view.now)
    given = settings["tickets"]
    halftime = given["halftime"] * 3600
    used = {name: decayed(value, view.now - at, halftime) for name, value in earlier.get("used", {}).items()}
    for run in view.runs:
        name = key(leaf_of(owners[run.task]))
        seconds = max(0.0, view.now - max(at, run.started))
        for held in run.placement.values():
            more = sum(given["usage_weights"].get(kind, 0.0) * amount for kind, amount in held.items()) * seconds
            used[name] = used.get(name, 0.0) + more
    return {"at": view.now, "used": {name: value for name, value in sorted(used.items()) if value > NOTHING}}
