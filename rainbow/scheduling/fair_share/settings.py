"""Settings of the fair-share policy, compiled: nodepools, classes and users (the ideas of `ducc.classes`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rainbow.regex import Regex, compile_regex
from rainbow.scheduling.fair_share.caps import Growth


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
    weight: float = 100.0
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
    """Everything the policy is told."""

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

    def allotment_of(self, user: str) -> float | None:
        """How much a user may hold that cannot be preempted, in amounts of the quantum's type."""
        return self.user_allotments.get(user, self.allotment)

    def default_class(self, *rules: Rule) -> ClassSettings | None:
        """Find the default class of the first rule that has one."""
        for rule in rules:
            for found in self.classes.values():
                if found.default and found.rule is rule:
                    return found
        return None


def compile_settings(checked: Mapping[str, Any]) -> Settings:
    """Turn checked settings (checking.py) into what the phases work with."""
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


def _class(name: str, given: Mapping[str, Any], epoch: float) -> ClassSettings:
    growth = Growth(
        given.get("initialization_cap", 2),
        given.get("expand_by_doubling", True),
        given.get("use_prediction", True),
        given.get("prediction_fudge", 60.0) * 1000,
        epoch * 1000,
    )
    return ClassSettings(
        name=name,
        rule=Rule(given["policy"]),
        priority=given["priority"],
        nodepool=given["nodepool"],
        weight=given.get("weight", 100),
        default=given.get("default", False),
        users=frozenset(given["users"]) if given.get("users") is not None else None,
        most=given.get("cap", given.get("max_processes", given.get("max_machines"))),
        debug=given.get("debug"),
        growth=growth,
    )
