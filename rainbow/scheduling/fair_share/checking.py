"""Settings as they are written → checked, with inheritance resolved and every default filled in.

Checked settings stay as they are when they are checked again. A fault is a PolicyError that points at it; in a YAML
text it has a line and a column (written.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.errors import PolicyError
from rainbow.jobspec.text import step
from rainbow.scheduling.fair_share.classes import check_classes
from rainbow.scheduling.fair_share.nodepools import check_nodepools
from rainbow.scheduling.fair_share.values import Check, entries, flag, mapping, number, one_of, optional, text, whole

DEFAULTS: dict[str, Any] = {
    "quantum": {"type": "memory", "amount": 1},
    "nodepools": {"default": {}},
    "classes": {
        "fair": {"policy": "FAIR_SHARE", "default": True},
        "fixed": {"policy": "FIXED_SHARE", "default": True},
        "reserve": {"policy": "RESERVE", "default": True},
    },
    "users": {},
    "allotment": None,  # of what cannot be preempted, by user; null: no limit
    "fragmentation_threshold": 2,
    "defragmentation": True,
    "reserve_overage": 0,
    "epoch": 10,  # seconds between two plans, for the prediction
    "mode": "own",  # classic: apportioning, caps and eviction order as in the original, faults included
}
QUANTUM: dict[str, Check] = {"type": text, "amount": whole(1, "the quantum")}
OTHERS: dict[str, Check] = {
    "allotment": optional(number("allotment")),
    "fragmentation_threshold": whole(1, "fragmentation_threshold"),
    "defragmentation": flag,
    "reserve_overage": whole(0, "reserve_overage"),
    "epoch": number("epoch"),
    "mode": one_of("own", "classic"),
}


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in defaults; PolicyError names the first fault by pointer."""
    for key in settings:
        if key not in DEFAULTS:
            raise PolicyError(
                f"fair_share has no setting {str(key)[:40]}; it has: {', '.join(DEFAULTS)}", pointer=f"/{step(key)}"
            )
    filled = {**DEFAULTS, **settings}
    for key, check in OTHERS.items():
        check(filled[key], f"/{key}")
    filled["quantum"] = {**DEFAULTS["quantum"], **entries(filled["quantum"], "/quantum", QUANTUM, "quantum")}
    filled["nodepools"] = check_nodepools(filled["nodepools"])
    filled["classes"] = check_classes(filled["classes"], filled["nodepools"])
    filled["users"] = _check_users(filled["users"], filled["classes"])
    return filled


def _check_users(given: Any, classes: Mapping[str, Any]) -> dict[str, Any]:
    """Check how much each user may hold that cannot be preempted: in all, and by class."""

    def by_class(value: Any, pointer: str) -> None:
        for name, most in mapping(value, pointer).items():
            if name not in classes or classes[name].get("policy") == "FAIR_SHARE":
                raise PolicyError(f"no class {name!r} that cannot be preempted", pointer=f"{pointer}/{step(name)}")
            number("an allotment")(most, f"{pointer}/{step(name)}")

    checks: dict[str, Check] = {"max_allotment": optional(number("max_allotment")), "allotments": by_class}
    return {
        name: entries({} if user is None else user, f"/users/{step(name)}", checks, f"user {name}")
        for name, user in mapping(given, "/users").items()
    }
