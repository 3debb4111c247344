"""Constraints on workers (RFC 31), and requirements on subsystems (needs).

Matchers (plug-ins) answer for one subsystem vertex. A need is met by one subsystem vertex attached to the located
vertex, on what contains it (a file system on a rack serves its nodes), or on something inside it. The order of
neighbours never decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from rainbow.jobspec import Constraint
from rainbow.jobspec.attributes import MOST_NAMES
from rainbow.jobspec.hostlist import expand_hosts, expand_ids
from rainbow.matching.model.budget import FREE, Meter
from rainbow.text import LONGEST, meant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rainbow.matching.model.layout import Layout


MOST_PARTS = 64  # of a constraint, that are asked one by one to explain it
MOST_CLUES = 64  # of one operand: hosts or ranks it names


class Rule:
    """A constraint with its hostlists and idsets expanded once; `any_of_none`: what `or` of nothing is."""

    def __init__(self, constraint: Constraint, any_of_none: bool = True) -> None:
        self.any_of_none = any_of_none
        self.operator = constraint.operator
        self.properties = constraint.values if constraint.operator == "properties" else ()
        self.operands = [Rule(operand, any_of_none) for operand in constraint.operands]
        self.least = [_fact(text) for text in constraint.values] if constraint.operator == "at_least" else []
        self.asks_amounts: bool = bool(self.least) or any(operand.asks_amounts for operand in self.operands)
        own: list[Any] = []
        for text in constraint.values:
            if constraint.operator == "hostlist":
                own.extend(expand_hosts(text, MOST_NAMES) or ())
            elif constraint.operator == "ranks":
                own.extend(expand_ids(text, MOST_NAMES) or ())
        self.own = frozenset(own)
        self.by_clue, self.without_clue = self._filed() if self.operator == "or" else ({}, [])
        # names are texts and ranks are integers: one set holds both
        self.named: frozenset[str | int] = self.own.union(*(operand.named for operand in self.operands))

    def clues(self) -> frozenset[tuple[str, Any]] | None:
        """Return facts of which a worker that passes has at least one; None if there are no such facts, or many."""
        if self.operator == "properties":
            return next((frozenset({("", p)}) for p in self.properties if not p.startswith("^")), None)
        if self.operator == "and":
            results = [clues for operand in self.operands if (clues := operand.clues()) is not None]
            return min(results, key=len, default=None)
        if self.operator not in ("hostlist", "ranks"):
            return None
        field = "name" if self.operator == "hostlist" else "rank"
        return frozenset((field, own) for own in self.own) if len(self.own) <= MOST_CLUES else None

    def _filed(self) -> tuple[dict[tuple[str, Any], list[Rule]], list[Rule]]:
        """File operands by their clues: a worker is asked about those alone that it has a clue of."""
        filed: dict[tuple[str, Any], list[Rule]] = {}
        others: list[Rule] = []
        for operand in self.operands:
            clues = operand.clues()
            for clue in clues or ():
                filed.setdefault(clue, []).append(operand)
            if clues is None:
                others.append(operand)
        return filed, others

    def _any(self, vertex: Mapping[str, Any], meter: Meter) -> bool:
        facts = [("name", vertex["name"]), ("rank", vertex["rank"]), *(("", p) for p in vertex["properties"])]
        filed = (operand for fact in facts for operand in self.by_clue.get(fact, ()))
        return any(operand.passes(vertex, meter) for operand in chain(filed, self.without_clue))

    def passes(self, vertex: Mapping[str, Any], meter: Meter = FREE) -> bool:
        """Return whether a worker of these properties, name and rank satisfies it (RFC 31)."""
        meter.step()
        if self.operator in ("and", "not"):
            return all(operand.passes(vertex, meter) for operand in self.operands) == (self.operator == "and")
        if self.operator == "at_least":
            return all(vertex["amounts"].has(fact, least) for fact, least in self.least)
        if self.operator in OF_CHOICE:
            return True
        if self.operator == "or":
            return self._any(vertex, meter) if self.operands else self.any_of_none
        if self.operator == "properties":
            has = vertex["properties"]
            return all((p.removeprefix("^") in has) != p.startswith("^") for p in self.properties)
        return vertex["name" if self.operator == "hostlist" else "rank"] in self.own


OF_CHOICE = frozenset({"counts", "same"})  # said of the chosen nodes together, settled before the search


def _fact(text: str) -> tuple[str, int]:
    name, _, least = text.rpartition("=")
    return name, int(least)


def barred(constraint: Constraint | None, layout: Layout, meter: Meter = FREE) -> list[int]:
    """Return the positions of the workers that fail the constraint."""
    if constraint is None:
        return []
    rule = Rule(constraint)
    return [i for i in layout.workers if not rule.passes(layout.facts(i), meter)]


def conjuncts(constraint: Constraint) -> Iterator[Constraint]:
    """Yield what must hold all at once."""
    if constraint.operator == "and":
        for operand in constraint.operands:
            yield from conjuncts(operand)
    elif constraint.operator == "properties":
        yield from (Constraint("properties", (value,)) for value in constraint.values)
    else:
        yield constraint


def in_words(constraint: Constraint) -> str:
    """Write a constraint in words."""
    if constraint.operator in ("at_least", "counts"):
        facts = [f"{least} {name}" for name, least in map(_fact, constraint.values)]
        return f"at least {', '.join(facts)}"
    if not constraint.operands:
        return f"{constraint.operator} {', '.join(constraint.values)}".strip()
    return f"{constraint.operator} ({'; '.join(in_words(operand) for operand in constraint.operands)})"


def least_met(constraint: Constraint | None, workers: Sequence[tuple[Mapping[str, Any], int]], meter: Meter) -> str:
    """Say which part of a constraint fewest workers satisfy: "0 have property a1000; did you mean a100?".

    `workers`: what is known of some that are alike, and how many they are.
    """
    passing: list[tuple[int, Constraint]] = []
    for part in islice(conjuncts(constraint), MOST_PARTS) if constraint else ():
        rule = Rule(part)
        passing.append((sum(many for facts, many in workers if rule.passes(facts, meter)), part))
    if not passing:
        return "the request needs more"
    many, part = min(passing, key=lambda one: one[0])
    if part.operator != "properties":
        return f"{many} satisfy {in_words(part)[:LONGEST]}"
    name = part.values[0]
    known = frozenset[str]().union(*(facts["properties"] for facts, _ in workers))
    hint = meant(name, sorted(known)) if name not in known and not name.startswith("^") else ""
    said = f"lack property {name.removeprefix('^')}" if name.startswith("^") else f"have property {name}"
    return f"{many} {said}{hint and f'; {hint}'}"
