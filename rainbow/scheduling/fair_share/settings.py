"""Nodepools, classes and users: settings checked, inheritance resolved, every default filled in.

Checked settings stay as they are when they are checked again. A fault is a PolicyError that points at it; in a YAML
text it has a line and a column (scheduling/settings_schema.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from rainbow.errors import PolicyError
from rainbow.jobspec.yaml_reader import step
from rainbow.regex import Regex, compile_regex
from rainbow.scheduling.settings_schema import (
    Check,
    at,
    filled,
    flag,
    integer,
    listed,
    number,
    one_of,
    optional,
    record,
    regex,
    some,
    table,
)

MOST_AMOUNT = 10**12  # no setting is meant to be larger; sums of them stay exact
EPOCH = 10  # seconds between two plans, for the prediction


@dataclass(frozen=True, slots=True)
class Growth:
    """How a class lets its jobs grow; times in milliseconds."""

    initialization_cap: int = 2  # 0: none
    expand_by_doubling: bool = True
    use_prediction: bool = True
    prediction_fudge: float = 60_000.0
    epoch: float = EPOCH * 1000.0


COUNT, AMOUNT = integer(0, MOST_AMOUNT), number(0, MOST_AMOUNT)
QUANTUM = {"type": ("memory", filled), "amount": (1, integer(1, MOST_AMOUNT))}
CLASSES = {
    "fair": {"policy": "FAIR_SHARE", "default": True},
    "fixed": {"policy": "FIXED_SHARE", "default": True},
    "reserve": {"policy": "RESERVE", "default": True},
}


def _any(value: Any, _pointer: str) -> Any:
    """What is checked with what it refers to."""
    return value


SCHEMA: dict[str, tuple[Any, Check]] = {
    "quantum": (record(QUANTUM)({}, ""), record(QUANTUM)),
    "nodepools": ({"default": {}}, _any),
    "classes": (CLASSES, _any),
    "users": ({}, _any),
    "allotment": (None, optional(AMOUNT)),  # of what cannot be preempted, by user; null: no limit
    "fragmentation_threshold": (2, integer(1, MOST_AMOUNT)),
    "defragmentation": (True, flag),
    "reserve_overage": (0, COUNT),
    "epoch": (EPOCH, AMOUNT),
    "patience": (
        3600,
        optional(AMOUNT),
    ),  # seconds a job may hold nothing before room is made for it; null or 0: for ever
    "mode": ("own", one_of("own", "classic")),  # classic: as in the original, faults included
}


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in defaults; PolicyError names the first fault by pointer."""
    checked = record(SCHEMA, owner="fair_share")(settings, "")
    checked["nodepools"] = check_nodepools(checked["nodepools"])
    checked["classes"] = check_classes(checked["classes"], checked["nodepools"])
    checked["users"] = _check_users(checked["users"], checked["classes"])
    return checked


def _none_is(check: Check) -> Check:
    """The same, where nothing written means a mapping without an entry."""
    return lambda value, pointer: check({} if value is None else value, pointer)


def _check_users(options: Any, classes: Mapping[str, Any]) -> dict[str, Any]:
    """Check how much each user may hold that cannot be preempted: in all, and by class."""

    def by_class(value: Any, pointer: str) -> Any:
        for name in (result := table(AMOUNT)(value, pointer)):
            if name not in classes or classes[name].get("policy") == "FAIR_SHARE":
                raise PolicyError(f"no class {name!r} that cannot be preempted", pointer=at(pointer, name))
        return result

    user = some({"max_allotment": optional(AMOUNT), "allotments": by_class})
    return table(_none_is(user))(options, "/users")


PRIORITIES = {"FAIR_SHARE": 10, "FIXED_SHARE": 5, "RESERVE": 1}
NOT_INHERITED = {"parent", "abstract", "default"}

NAMES = listed(filled)
COMMON: dict[str, Check] = {
    "parent": optional(filled),
    "abstract": flag,
    "default": flag,
    "policy": one_of(*PRIORITIES),
    "priority": COUNT,
    "nodepool": filled,
    "users": optional(NAMES),
}
OWN: dict[str, dict[str, Check]] = {
    "FAIR_SHARE": {
        "weight": number(1e-6, MOST_AMOUNT),
        "cap": COUNT,
        "initialization_cap": COUNT,
        "expand_by_doubling": flag,
        "use_prediction": flag,
        "prediction_fudge": AMOUNT,
        "debug": filled,
    },
    "FIXED_SHARE": {"max_processes": COUNT},
    "RESERVE": {"max_machines": COUNT},
}
ALL = {**COMMON, **OWN["FAIR_SHARE"], **OWN["FIXED_SHARE"], **OWN["RESERVE"]}


def check_classes(options: Any, pools: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Resolve inheritance, check every class, then what they are to each other."""
    written = table(_none_is(some(ALL)))(options, "/classes")
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
            raise PolicyError(f"class {parent!r} not found", pointer=f"/classes/{step(chain[-1])}/parent")
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
        raise PolicyError(f"nodepool {one['nodepool']!r} not found", pointer=f"{here}/nodepool")
    if one.get("debug") is not None and one["debug"] not in classes:
        raise PolicyError(f"class {one['debug']!r} not found", pointer=f"{here}/debug")


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
    by_rule = {rule: [name for name, one in classes.items() if one["policy"] == rule] for rule in PRIORITIES}
    missing = [rule for rule, own in by_rule.items() if own and not any(classes[name]["default"] for name in own)]
    if missing:
        *first, last = missing
        named = f"{', '.join(first)} or {last}" if first else last
        raise PolicyError(f"no {named} class is the default; mark one with default: true", pointer="/classes")
    for rule, own in by_rule.items():
        defaults = [name for name in own if classes[name]["default"]]
        if len(defaults) > 1:
            raise PolicyError(
                f"class {defaults[0]} is the {rule} default already", pointer=f"/classes/{step(defaults[1])}/default"
            )


KEYS = {
    "parent": optional(filled),
    "nodes": optional(NAMES),
    "match": optional(regex),
    "search_order": COUNT,
    "quantum": optional(integer(1, MOST_AMOUNT)),
}


def check_nodepools(options: Any) -> dict[str, Any]:
    """Check every nodepool, then what they are to each other."""
    pools = table(_none_is(some(KEYS)))(options, "/nodepools")
    if not pools:
        raise PolicyError("there is at least one nodepool", pointer="/nodepools")
    for name in pools:
        _check_ancestry(name, pools)
    _check_nodes(pools)
    return pools


def _check_ancestry(name: str, pools: Mapping[str, Any]) -> None:
    here = f"/nodepools/{step(name)}"
    seen, above = [name], pools[name].get("parent")
    while above is not None:
        if above not in pools:
            raise PolicyError(f"nodepool {above!r} not found", pointer=f"/nodepools/{step(seen[-1])}/parent")
        if above in seen:
            raise PolicyError(f"nodepools in a circle: {' in '.join([*seen, above])}", pointer=f"{here}/parent")
        seen.append(above)
        above = pools[above].get("parent")
    if pools[name].get("quantum") is not None and len(seen) > 1:
        raise PolicyError("only a top-level nodepool has a quantum of its own", pointer=f"{here}/quantum")


def _check_nodes(pools: Mapping[str, Any]) -> None:
    owner: dict[str, str] = {}
    rest = [name for name, pool in pools.items() if pool.get("nodes") is None and pool.get("match") is None]
    if len(rest) > 1:
        raise PolicyError(
            f"nodepools {rest[0]} and {rest[1]} name no nodes; only one may take the rest",
            pointer=f"/nodepools/{step(rest[1])}",
        )
    for name, pool in pools.items():
        for k, node in enumerate(pool.get("nodes") or ()):
            first = owner.setdefault(node, name)
            if first != name or node in pool["nodes"][:k]:
                raise PolicyError(
                    f"node {node} stands in {first} already", pointer=f"/nodepools/{step(name)}/nodes/{k}"
                )


class Rule(StrEnum):
    """How a class gives space away."""

    FAIR_SHARE = "FAIR_SHARE"  # by weight; grows and shrinks, may be preempted
    FIXED_SHARE = "FIXED_SHARE"  # kept until it ends
    RESERVE = "RESERVE"  # whole machines, kept until released


@dataclass(frozen=True, slots=True)
class NodepoolSettings:
    """One nodepool: where it hangs and which machines are its own."""

    name: str
    parent: str | None
    nodes: frozenset[str]
    match: Regex | None
    rest: bool  # it takes the machines nobody names
    search_order: int
    quantum: int | None  # of a top-level nodepool


@dataclass(frozen=True, slots=True)
class ClassSettings:
    """One class; the smaller `priority`, the better. `most` bounds the shares of all its jobs together."""

    name: str
    rule: Rule
    priority: int
    nodepool: str
    weight: float = 100
    default: bool = False
    users: frozenset[str] | None = None  # None: everybody
    most: int | None = None
    debug: str | None = None  # the class that stands in for it in debug submissions
    growth: Growth = field(default_factory=Growth)

    @property
    def fair(self) -> bool:
        """Whether its shares may be preempted."""
        return self.rule is Rule.FAIR_SHARE


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the policy."""

    quantum_type: str
    quantum: int
    nodepools: Mapping[str, NodepoolSettings]
    classes: Mapping[str, ClassSettings]
    allotment: float | None
    user_allotments: Mapping[str, float]
    class_allotments: Mapping[tuple[str, str], float]  # (user, class)
    threshold: int
    defragmentation: bool
    reserve_overage: int
    classic: bool
    patience: float | None  # seconds; None: jobs may wait for ever
    unit: int = 1  # base units that one unit of the quantum's type is in what the policy was told

    def counted_in(self, unit: int) -> Settings:
        """Return these settings with every amount in base units, of which one unit as told is `unit`."""
        if unit == 1:
            return self
        return replace(
            self,
            unit=unit,
            quantum=self.quantum * unit,
            nodepools={n: replace(p, quantum=p.quantum and p.quantum * unit) for n, p in self.nodepools.items()},
            allotment=None if self.allotment is None else self.allotment * unit,
            user_allotments={user: most * unit for user, most in self.user_allotments.items()},
            class_allotments={key: most * unit for key, most in self.class_allotments.items()},
            reserve_overage=self.reserve_overage * unit,
        )

    def allotment_of(self, user: str) -> float | None:
        """How much a user may hold that cannot be preempted, in amounts of the quantum's type."""
        return self.user_allotments.get(user, self.allotment)

    def default_class(self, *rules: Rule) -> ClassSettings | None:
        """Find the default class of the first rule that has one."""
        for rule in rules:
            for result in self.classes.values():
                if result.default and result.rule is rule:
                    return result
        return None


def compile_settings(checked: Mapping[str, Any]) -> Settings:
    """Turn checked settings (settings.py) into what the phases work with."""
    users = checked["users"]
    return Settings(
        quantum_type=checked["quantum"]["type"],
        quantum=checked["quantum"]["amount"],
        nodepools={name: _nodepool(name, pool) for name, pool in checked["nodepools"].items()},
        classes={n: _class(n, c, checked["epoch"]) for n, c in checked["classes"].items() if not c["abstract"]},
        allotment=checked["allotment"],
        user_allotments={n: u["max_allotment"] for n, u in users.items() if u.get("max_allotment") is not None},
        class_allotments={(n, c): most for n, u in users.items() for c, most in u.get("allotments", {}).items()},
        threshold=checked["fragmentation_threshold"],
        defragmentation=checked["defragmentation"],
        reserve_overage=checked["reserve_overage"],
        classic=checked["mode"] == "classic",
        patience=(checked["patience"] or None) if checked["mode"] == "own" else None,
    )


def _nodepool(name: str, pool: Mapping[str, Any]) -> NodepoolSettings:
    return NodepoolSettings(
        name,
        pool.get("parent"),
        frozenset(pool.get("nodes") or ()),
        compile_regex(pool["match"]) if pool.get("match") is not None else None,
        rest=pool.get("nodes") is None and pool.get("match") is None,
        search_order=pool.get("search_order", 100),
        quantum=pool.get("quantum"),
    )


def _class(name: str, options: Mapping[str, Any], epoch: float) -> ClassSettings:
    own = {key: options[key] for key in ("weight", "debug") if key in options}
    growth = {
        key: options[key] for key in ("initialization_cap", "expand_by_doubling", "use_prediction") if key in options
    }
    if "prediction_fudge" in options:
        growth["prediction_fudge"] = options["prediction_fudge"] * 1000
    return ClassSettings(
        name=name,
        rule=Rule(options["policy"]),
        priority=options["priority"],
        nodepool=options["nodepool"],
        default=options["default"],
        users=frozenset(options["users"]) if options.get("users") is not None else None,
        most=options.get("cap", options.get("max_processes", options.get("max_machines"))),
        growth=Growth(**growth, epoch=epoch * 1000),
        **own,
    )
