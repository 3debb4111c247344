"""Requirements on subsystems: a need is met by one vertex of a subsystem, asked condition by condition.

match   a field equals a value
range   a version lies between `min` and `max`
flat    a key has a value, as the first format wrote it

Matchers are plug-ins and answer for one vertex. The vertex that meets a need is attached to the located vertex, to
what contains it (a file system on a rack serves its nodes), or to something inside it. The order of neighbours never
decides.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from rainbow.jobspec.version import in_range
from rainbow.plugins import Registry
from rainbow.text import LONGEST, meant

if TYPE_CHECKING:
    from collections.abc import Iterator

    import networkx as nx

    from rainbow.jobspec import Condition, Need
    from rainbow.matching.model.layout import Layout


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
    result = vertex["metadata"].get(field)
    return vertex.get(field) if result is None and field in ("type", "name", "size", "unit") else result


def equal(requirement: Any, result: Any) -> bool:
    """Compare as people do: text with text, numbers with numbers, "1" equals 1, true only true (or its text).

    >>> equal("1", 1), equal("no", False), equal("true", True), equal(1, True), equal("1.0", "1")
    (True, False, True, False, False)
    """
    if isinstance(requirement, bool) or isinstance(result, bool):
        return str(requirement).lower() == str(result).lower()
    if isinstance(requirement, str) == isinstance(result, str):
        return bool(requirement == result)
    try:
        return float(requirement) == float(result)
    except (TypeError, ValueError, OverflowError):
        return False


@matchers.add("match")
def match_field(
    options: Mapping[str, Any], vertex: Mapping[str, Any], subsystem: nx.DiGraph[str] | None
) -> str | None:
    """Meet a field that equals a value."""
    result = field_of(vertex, options["field"])
    return (
        None
        if equal(options["value"], result)
        else f"{options['field']} is {_shown(result)}, requested {options['value']}"
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
    result = field_of(vertex, field)
    if result is None or isinstance(result, (bool, dict, list)):
        return f"{field} is {_shown(result)}, no version"
    inside = in_range(result, low, high)
    if inside is None:
        return f"{field} {_shown(result)} is not a valid version"
    bounds = " and ".join(f"{side} {bound}" for side, bound in (("min", low), ("max", high)) if bound is not None)
    return None if inside else f"{field} {result} does not satisfy {bounds}"


def _shown(result: Any) -> str:
    return "absent" if result is None else str(result)


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
def likeness(target: str, text: str) -> float:
    """Return how alike two texts are spelled, 0 to 1.

    >>> likeness("gc", "gcc") > likeness("gc", "cmake"), likeness("", "")
    (True, 0.0)
    """
    return difflib.SequenceMatcher(None, target[:LONGEST], text[:LONGEST]).ratio() if target else 0.0


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
            result, requirement = field_of(vertex, condition.options.get("field", "")), condition.options.get("value")
            texts = (requirement, result) if isinstance(requirement, str) and isinstance(result, str) else ("", "")
            return NearMiss(met, f"{called}: {why}", result is not None, *texts)
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
