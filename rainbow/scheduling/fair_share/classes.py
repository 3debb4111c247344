"""Checks of the classes: inheritance, what each rule allows, priorities and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.errors import PolicyError
from rainbow.jobspec.text import step
from rainbow.scheduling.fair_share.values import (
    Check,
    entries,
    flag,
    mapping,
    number,
    one_of,
    optional,
    text,
    texts,
    whole,
)

PRIORITIES = {"FAIR_SHARE": 10, "FIXED_SHARE": 5, "RESERVE": 1}
NOT_INHERITED = {"parent", "abstract", "default"}

COMMON: dict[str, Check] = {
    "parent": optional(text),
    "abstract": flag,
    "default": flag,
    "policy": one_of(*PRIORITIES),
    "priority": whole(0, "priority"),
    "nodepool": text,
    "users": optional(texts),
}
OWN: dict[str, dict[str, Check]] = {
    "FAIR_SHARE": {
        "weight": number("weight", 1e-6),
        "cap": whole(0, "cap"),
        "initialization_cap": whole(0, "initialization_cap"),
        "expand_by_doubling": flag,
        "use_prediction": flag,
        "prediction_fudge": number("prediction_fudge"),
        "debug": text,
    },
    "FIXED_SHARE": {"max_processes": whole(0, "max_processes")},
    "RESERVE": {"max_machines": whole(0, "max_machines")},
}
ALL = {**COMMON, **OWN["FAIR_SHARE"], **OWN["FIXED_SHARE"], **OWN["RESERVE"]}


def check_classes(given: Any, pools: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Resolve inheritance, check every class, then what they are to each other."""
    written = {
        name: entries({} if one is None else one, f"/classes/{step(name)}", ALL, f"class {name}")
        for name, one in mapping(given, "/classes").items()
    }
    resolved = {name: _resolved(name, written) for name in written}
    for name, one in resolved.items():
        _check_class(name, one, pools, resolved)
    concrete = {name: one for name, one in resolved.items() if not one["abstract"]}
    if not concrete:
        raise PolicyError("there is at least one class that is not abstract", pointer="/classes")
    _check_priorities(concrete)
    _check_defaults(concrete)
    return resolved


def _resolved(name: str, written: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Fill a class from its ancestors, nearest first; what is its own stays its own."""
    here, chain = f"/classes/{step(name)}", [name]
    while (parent := written[chain[-1]].get("parent")) is not None:
        if parent not in written:
            raise PolicyError(f"there is no class {parent!r}", pointer=f"/classes/{step(chain[-1])}/parent")
        if parent in chain:
            raise PolicyError(
                f"classes inherit in a circle: {' from '.join([*chain, parent])}", pointer=f"{here}/parent"
            )
        chain.append(parent)
    inherited: dict[str, Any] = {}
    for ancestor in reversed(chain[1:]):
        inherited.update({key: value for key, value in written[ancestor].items() if key not in NOT_INHERITED})
    return {"abstract": False, "default": False, **inherited, **written[name]}


def _check_class(name: str, one: dict[str, Any], pools: Mapping[str, Any], classes: Mapping[str, Any]) -> None:
    here = f"/classes/{step(name)}"
    if one["abstract"]:
        return
    if "policy" not in one:
        raise PolicyError(f"class {name} has no policy: {', '.join(PRIORITIES)}", pointer=here)
    allowed = {*COMMON, *OWN[one["policy"]]}
    for key in one:
        if key not in allowed:
            raise PolicyError(f"a {one['policy']} class has no setting {key}", pointer=f"{here}/{key}")
    one.setdefault("priority", PRIORITIES[one["policy"]])
    one.setdefault("nodepool", next(iter(pools)))
    if one["nodepool"] not in pools:
        raise PolicyError(f"there is no nodepool {one['nodepool']!r}", pointer=f"{here}/nodepool")
    if one.get("debug") is not None and one["debug"] not in classes:
        raise PolicyError(f"there is no class {one['debug']!r}", pointer=f"{here}/debug")


def _check_priorities(classes: Mapping[str, Any]) -> None:
    """One phase serves one priority, so it has one rule."""
    first: dict[int, str] = {}
    for name, one in classes.items():
        other = first.setdefault(one["priority"], name)
        if classes[other]["policy"] != one["policy"]:
            raise PolicyError(
                f"class {name} has the priority {one['priority']} of {other}, but another policy",
                pointer=f"/classes/{step(name)}/priority",
            )


def _check_defaults(classes: Mapping[str, Any]) -> None:
    for rule in PRIORITIES:
        own = [name for name, one in classes.items() if one["policy"] == rule]
        defaults = [name for name in own if classes[name]["default"]]
        if own and not defaults:
            raise PolicyError(f"no {rule} class is the default", pointer="/classes")
        if len(defaults) > 1:
            raise PolicyError(
                f"class {defaults[0]} is the {rule} default already", pointer=f"/classes/{step(defaults[1])}/default"
            )
