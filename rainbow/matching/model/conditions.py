"""Constraints on workers (RFC 31), and requirements on subsystems (needs).

Matchers (plug-ins) answer for one subsystem vertex. A need is met by one subsystem vertex attached to the located
vertex, on what contains it (a file system on a rack serves its nodes), or on something inside it. The order of
neighbours never decides.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

from rainbow.jobspec import Constraint
from rainbow.jobspec.attributes import MOST_NAMES
from rainbow.jobspec.hostlist import expand_hosts, expand_ids
from rainbow.jobspec.version import in_range
from rainbow.matching.model.budget import FREE, Meter
from rainbow.plugins import Registry
from rainbow.text import LONGEST, meant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import networkx as nx

    from rainbow.jobspec import Condition, Need
    from rainbow.matching.model.layout import Layout


MOST_PARTS = 64  # of a constraint, that are asked one by one to explain it
MOST_CLUES = 64  # of one operand: hosts or ranks it names


class Rule:
    """A constraint with its hostlists and idsets expanded once."""

    def __init__(self, constraint: Constraint) -> None:
        self.operator = constraint.operator
        self.properties = constraint.values if constraint.operator == "properties" else ()
        self.operands = [Rule(operand) for operand in constraint.operands]
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
            found = [clues for operand in self.operands if (clues := operand.clues()) is not None]
            return min(found, key=len, default=None)
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
            return self._any(vertex, meter) or not self.operands
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


matchers: Registry[Matcher] = Registry("rainbow.matchers")


class Matcher(Protocol):
    """Answers one condition for one subsystem vertex."""

    def __call__(
        self, options: Mapping[str, Any], vertex: Mapping[str, Any], subsystem: nx.DiGraph[str] | None
    ) -> str | None:
        """Return None for yes, or why not.

        `vertex` has the attributes of graph/cluster.py; `subsystem` is given to the matchers that are not built in.
        """


def field_of(vertex: Mapping[str, Any], field: str) -> Any:
    """Read a field of a subsystem vertex: its metadata as given, else what reading filled in."""
    found = vertex["metadata"].get(field)
    return vertex.get(field) if found is None and field in ("type", "name", "size", "unit") else found


def equal(wanted: Any, found: Any) -> bool:
    """Compare as people do: text with text, numbers with numbers, "1" equals 1, true only true (or its text).

    >>> equal("1", 1), equal("no", False), equal("true", True), equal(1, True), equal("1.0", "1")
    (True, False, True, False, False)
    """
    if isinstance(wanted, bool) or isinstance(found, bool):
        return str(wanted).lower() == str(found).lower()
    if isinstance(wanted, str) == isinstance(found, str):
        return bool(wanted == found)
    try:
        return float(wanted) == float(found)
    except (TypeError, ValueError, OverflowError):
        return False


@matchers.add("match")
def match_field(
    options: Mapping[str, Any], vertex: Mapping[str, Any], subsystem: nx.DiGraph[str] | None
) -> str | None:
    """Meet a field that equals a value."""
    found = field_of(vertex, options["field"])
    return (
        None
        if equal(options["value"], found)
        else f"{options['field']} is {_shown(found)}, requested {options['value']}"
    )


@matchers.add("flat")
def match_flat(
    options: Mapping[str, Any], vertex: Mapping[str, Any], subsystem: nx.DiGraph[str] | None
) -> str | None:
    """Meet a key that has a value, or a vertex whose type is the text `key=value`."""
    if vertex["type"] == f"{options['field']}={options['value']}":
        return None
    return match_field(options, vertex, subsystem)


@matchers.add("range")
def match_range(
    options: Mapping[str, Any], vertex: Mapping[str, Any], subsystem: nx.DiGraph[str] | None
) -> str | None:
    """Meet a version between `min` and `max`, both inclusive, either left out."""
    field, low, high = options["field"], options.get("min"), options.get("max")
    found = field_of(vertex, field)
    if found is None or isinstance(found, (bool, dict, list)):
        return f"{field} is {_shown(found)}, no version"
    inside = in_range(found, low, high)
    if inside is None:
        return f"{field} {_shown(found)} is not a valid version"
    bounds = " and ".join(f"{side} {bound}" for side, bound in (("min", low), ("max", high)) if bound is not None)
    return None if inside else f"{field} {found} does not satisfy {bounds}"


def _shown(found: Any) -> str:
    return "absent" if found is None else str(found)


def has_name(vertex: Mapping[str, Any]) -> bool:
    """Return whether a subsystem vertex has a name that means something, and not a number ("package0") or none."""
    name, basename = vertex["metadata"].get("name"), vertex["metadata"].get("basename") or vertex["type"]
    if not isinstance(name, str) or not name:
        return False
    return name == basename or not (isinstance(basename, str) and name.removeprefix(basename).isdigit())


@dataclass(frozen=True, slots=True)
class NearMiss:
    """How close a need came: the conditions met by the best subsystem vertex, and why the next was not."""

    met: int
    text: str
    has_field: bool = False  # what the next condition asks for is there, but other than wanted
    wanted: str = ""  # the text asked for, and what is there in its place
    found: str = ""

    def nearer(self, other: NearMiss) -> NearMiss:
        """Return the one that met more, then the nearest in spelling; the order of neighbours never decides."""
        if (self.met, self.has_field) != (other.met, other.has_field):
            return max(self, other, key=lambda miss: (miss.met, miss.has_field))
        return min(self, other, key=lambda miss: (-likeness(miss.wanted, miss.found), miss.text))


@lru_cache(maxsize=65_536)  # the same few names stand on every node
def likeness(wanted: str, found: str) -> float:
    """Return how alike two texts are spelled, 0 to 1.

    >>> likeness("gc", "gcc") > likeness("gc", "cmake"), likeness("", "")
    (True, 0.0)
    """
    return difflib.SequenceMatcher(None, wanted[:LONGEST], found[:LONGEST]).ratio() if wanted else 0.0


def judge(need: Need, layout: Layout, i: int) -> NearMiss | None:
    """Ask whether the vertex at position `i` has what `need` wants; None for yes, else the nearest miss."""
    rows = layout.rows(need.subsystem, i)
    if rows is None:
        return no_subsystem(need, layout.subsystem_names)
    nearest, graph = nothing_hung(need), layout.subsystem(need.subsystem)
    for vertex in rows:
        miss = ask(need.conditions, vertex, graph)
        if miss is None:
            return None
        nearest = nearest.nearer(miss)
    return nearest


def no_subsystem(need: Need, known: tuple[str, ...]) -> NearMiss:
    """Say that there is nothing of the kind at all."""
    return _unknown_subsystem(need.subsystem, known)


@lru_cache(maxsize=1_024)  # a search asks this of every vertex
def _unknown_subsystem(name: str, known: tuple[str, ...]) -> NearMiss:
    hint = meant(name, known)
    return NearMiss(0, f"the cluster has no subsystem {name}{hint and f'; {hint}'}")


def nothing_hung(need: Need) -> NearMiss:
    """Say that a vertex has nothing of a subsystem."""
    return NearMiss(-1, f"no vertex of subsystem {need.subsystem} is attached")


def ask(
    conditions: tuple[Condition, ...], vertex: Mapping[str, Any], graph: nx.DiGraph[str] | None
) -> NearMiss | None:
    """Ask one vertex of a subsystem whether it meets all conditions; None for yes."""
    for met, condition in enumerate(conditions):
        why = matchers.get(condition.matcher)(condition.options, vertex, graph)
        if why is not None:
            called = vertex["name"] if has_name(vertex) else vertex["type"]
            found, wanted = field_of(vertex, condition.options.get("field", "")), condition.options.get("value")
            texts = (wanted, found) if isinstance(wanted, str) and isinstance(found, str) else ("", "")
            return NearMiss(met, f"{called}: {why}", found is not None, *texts)
    return None


def meets_condition(condition: Condition, vertex: Mapping[str, Any], graph: nx.DiGraph[str] | None) -> bool:
    """Return whether a vertex of a subsystem meets one condition, by the installed matcher."""
    return matchers.get(condition.matcher)(condition.options, vertex, graph) is None


def needs_met(needs: tuple[Need, ...], layout: Layout, i: int) -> bool:
    """Return whether every need is met at position `i`, each by a subsystem vertex of its own choice."""
    return all(judge(need, layout, i) is None for need in needs)


def misses(needs: tuple[Need, ...], layout: Layout, positions: Iterator[int]) -> NearMiss | None:
    """Return the nearest miss over some vertices, None if one of them meets every need."""
    nearest: NearMiss | None = None
    for i in positions:
        miss = next(filter(None, (judge(need, layout, i) for need in needs)), None)
        if miss is None:
            return None
        nearest = nearest.nearer(miss) if nearest else miss
    return nearest
