"""Needs: what a located vertex must find in a subsystem, asked of matchers (plug-ins).

A need is met by one subsystem vertex hung on the located vertex, on what contains it (a file system on a rack
serves its nodes), or on something inside it. The order of neighbours never decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rainbow.jobspec.version import in_range
from rainbow.plugins import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    import networkx as nx

    from rainbow.jobspec import Condition, Need
    from rainbow.matching.layout import Layout

matchers: Registry[Matcher] = Registry("rainbow.matchers")


class Matcher(Protocol):
    """Answers one condition for one subsystem vertex."""

    def __call__(
        self, options: Mapping[str, Any], vertex: Mapping[str, Any], subsystem: nx.DiGraph[str]
    ) -> str | None:
        """Return None for yes, or why not. `vertex` has the attributes of graph/cluster.py."""


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
def match_field(options: Mapping[str, Any], vertex: Mapping[str, Any], subsystem: nx.DiGraph[str]) -> str | None:
    """Meet a field that equals a value."""
    found = field_of(vertex, options["field"])
    return (
        None if equal(options["value"], found) else f"{options['field']} is {_shown(found)}, not {options['value']}"
    )


@matchers.add("flat")
def match_flat(options: Mapping[str, Any], vertex: Mapping[str, Any], subsystem: nx.DiGraph[str]) -> str | None:
    """Meet a key that has a value, or a vertex whose type is the text `key=value`."""
    if vertex["type"] == f"{options['field']}={options['value']}":
        return None
    return match_field(options, vertex, subsystem)


@matchers.add("range")
def match_range(options: Mapping[str, Any], vertex: Mapping[str, Any], subsystem: nx.DiGraph[str]) -> str | None:
    """Meet a version between `min` and `max`, both inclusive, either left out."""
    field, low, high = options["field"], options.get("min"), options.get("max")
    found = field_of(vertex, field)
    if found is None or isinstance(found, (bool, dict, list)):
        return f"{field} is {_shown(found)}, no version"
    inside = in_range(found, low, high)
    if inside is None:
        return f"{field} {_shown(found)} is no version"
    bounds = " and ".join(f"{side} {bound}" for side, bound in (("min", low), ("max", high)) if bound is not None)
    return None if inside else f"{field} {found} is outside {bounds}"


def _shown(found: Any) -> str:
    return "absent" if found is None else str(found)


@dataclass(frozen=True, slots=True)
class NearMiss:
    """How close a need came: the conditions met by the best subsystem vertex, and why the next was not."""

    met: int
    vertex: str
    text: str


def judge(need: Need, layout: Layout, i: int) -> NearMiss | None:
    """Ask whether the vertex at position `i` has what `need` wants; None for yes, else the nearest miss."""
    subsystem = layout.cluster.subsystems.get(need.subsystem)
    if subsystem is None:
        return NearMiss(0, "", f"the cluster has no subsystem {need.subsystem}")
    nearest = NearMiss(-1, "", f"nothing of subsystem {need.subsystem} hangs on it")
    for name in layout.hung(need.subsystem, i):
        miss = _ask(need.conditions, name, subsystem.graph)
        if miss is None:
            return None
        nearest = max(nearest, miss, key=lambda candidate: candidate.met)
    return nearest


def _ask(conditions: tuple[Condition, ...], name: str, graph: nx.DiGraph[str]) -> NearMiss | None:
    vertex = graph.nodes[name]
    for met, condition in enumerate(conditions):
        why = matchers.get(condition.matcher)(condition.options, vertex, graph)
        if why is not None:
            return NearMiss(met, name, f"{vertex['name']}: {why}")
    return None


def needs_met(needs: tuple[Need, ...], layout: Layout, i: int) -> bool:
    """Tell whether every need is met at position `i`, each by a subsystem vertex of its own choice."""
    return all(judge(need, layout, i) is None for need in needs)


def misses(needs: tuple[Need, ...], layout: Layout, positions: Iterator[int]) -> NearMiss | None:
    """Return the nearest miss over some vertices, None if one of them meets every need."""
    nearest: NearMiss | None = None
    for i in positions:
        for need in needs:
            miss = judge(need, layout, i)
            if miss is None:
                continue
            if nearest is None or miss.met > nearest.met:
                nearest = miss
            break
        else:
            return None
    return nearest
