"""Switches and blocks above nodes, from Slurm's topology: topology.conf, or what `scontrol show topology` prints.

A leaf switch (Level=0) has the type `switch`, those above it `switch1`, `switch2` and so on, by Slurm's Level. So a
request for {type: switch, with: [{type: node, count: 4}]} asks for four nodes below one leaf switch, and one for
{type: switch1, ...} for nodes below one switch of the next level. A block has the type `block`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rainbow.errors import GraphError, InputError
from rainbow.graph.document import LIMITS, Limits, short
from rainbow.graph.formats import host_list

Above = tuple[tuple[str, str], ...]  # (type, name) of what contains a node, from the top down

DEEPEST = 32  # levels of switches
_FIELD = re.compile(r"(\w+)=(\S*)")
_NAMES = {"switchname": "switch", "blockname": "block"}
_SHOWN = 5


class Unread(NamedTuple):
    """What of a topology is not in the graph, and why."""

    what: str
    why: str


@dataclass
class _Switch:
    """A switch or block as its line says."""

    kind: str
    line: int
    nodes: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    parent: str = ""
    level: int = 0

    @property
    def type(self) -> str:
        """The type of its vertex."""
        return f"{self.kind}{self.level}" if self.level else self.kind


def read_topology(
    text: str, limits: Limits = LIMITS, nodes: Collection[str] | None = None
) -> tuple[Mapping[str, Above], list[Unread]]:
    """Return what is above each node that is below a switch, and what is not read; GraphError says what is wrong.

    `nodes` are those there are, None: not known.
    """
    unread: list[Unread] = []
    switches = _of_yaml(text, limits) if _YAML.search(text) else _switches(text, limits)
    if rings := _RING.findall(text):
        unread.append(Unread(f"ring {', '.join(rings[:_SHOWN])}", "a ring has no levels above nodes"))
    if not switches and (unread or nodes is not None):
        return {}, unread
    if not switches:
        raise GraphError(
            "this is no topology of Slurm: no line begins with SwitchName= or BlockName=", line=1, column=1
        )
    unread += _merge_spines(switches)
    for name, switch in switches.items():
        for below in switch.below:
            _adopt(name, below, switches)
    _set_levels(switches)
    above: dict[str, Above] = {}
    for name, switch in switches.items():
        chain = tuple((switches[one].type, one) for one in reversed([name, *_upward(name, switches)]))
        for node in switch.nodes:
            if node in above:
                raise _fault(switch, f"the node {short(node)} is below {above[node][-1][1]} and {short(name)}")
            above[node] = chain
    if nodes is not None and (strange := [node for node in above if node not in nodes]):
        names = ", ".join(strange[:_SHOWN]) + (", ..." if len(strange) > _SHOWN else "")
        unread.append(Unread(f"below switches: {names}", "no node of this text is called so"))
    return above, unread


_YAML = re.compile(r"^[ \t]*- topology:", re.MULTILINE)
_RING = re.compile(r"^[ \t]*RingName=(\S+)", re.MULTILINE | re.IGNORECASE)


def _merge_spines(switches: dict[str, _Switch]) -> list[Unread]:
    """Leave one of several switches that have the same ones below them: in a fat tree they are one level."""
    first: dict[frozenset[str], str] = {}
    unread = []
    for name, switch in list(switches.items()):
        below = frozenset(switch.below)
        if below and first.setdefault(below, name) != name:
            one = first[below]
            unread.append(Unread(f"switch {name}", f"it is above the same switches as {one}: one level of the graph"))
            del switches[name]
            for other in switches.values():
                other.below = [below for below in other.below if below != name]
    return unread


def _of_yaml(text: str, limits: Limits) -> dict[str, _Switch]:
    """Read the first topology of a topology.yaml (Slurm 25.05), a tree or blocks."""
    import yaml  # few sites have this file

    try:
        document = yaml.safe_load(text[result.start() :] if (result := _YAML.search(text)) else text)
        entries = [entry for entry in document if isinstance(entry, Mapping)]
    except (yaml.YAMLError, TypeError):
        raise GraphError("topology.yaml must be a list of topologies, each with tree or block") from None
    entry = next((one for one in entries if one.get("cluster_default")), entries[0] if entries else {})
    switches: dict[str, _Switch] = {}
    for kind, plural, listed in (("switch", "switches", entry.get("tree")), ("block", "blocks", entry.get("block"))):
        for one in (listed or {}).get(plural, []) if isinstance(listed or {}, Mapping) else []:
            switch = _Switch(kind, 1)
            switch.below = host_list(str(one["children"]), "", limits) if one.get("children") else []
            switch.nodes = host_list(str(one["nodes"]), "", limits) if one.get("nodes") and not switch.below else []
            switches[str(one.get(kind, ""))] = switch
    return switches


def _switches(text: str, limits: Limits) -> dict[str, _Switch]:
    result: dict[str, _Switch] = {}
    total = 0
    for line, fields in conf_lines(text):
        key = next((key for key in _NAMES if key in fields), None)
        if key is None:
            continue
        switch = _Switch(_NAMES[key], line)
        try:
            switch.below = host_list(fields["switches"], "", limits) if fields.get("switches") else []
            # scontrol lists at a switch of switches all nodes below them, too
            if not switch.below and fields.get("nodes"):
                switch.nodes = host_list(fields["nodes"], "", limits)
        except InputError as fault:
            fault.pointer, fault.line, fault.column = None, line, 1
            raise
        if fields[key] in result:
            raise _fault(switch, f"{short(fields[key])} is described twice")
        result[fields[key]] = switch
        total += 1 + len(switch.nodes) + len(switch.below)  # a short text can name the same million hosts again
        limits.check("vertices", total, "")
    return result


def conf_lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the fields of each line by their names in small letters, and its number; a backslash continues a line."""
    joined, first = "", 1
    for number, line in enumerate(text.splitlines(), 1):
        joined += line.partition("#")[0].rstrip()
        if joined.endswith("\\"):
            joined = joined[:-1] + " "
            continue
        yield first, {key.lower(): value for key, value in _FIELD.findall(joined)}
        joined, first = "", number + 1


def _adopt(name: str, below: str, switches: Mapping[str, _Switch]) -> None:
    child = switches.get(below)
    if child is None:
        raise _fault(switches[name], f"the switch {short(below)} is not described")
    if child.parent:
        raise _fault(switches[name], f"the switch {short(below)} is below {short(child.parent)} and {short(name)}")
    child.parent = name


def _set_levels(switches: Mapping[str, _Switch]) -> None:
    for name, switch in switches.items():
        if not switch.below:
            for level, parent in enumerate(_upward(name, switches), 1):
                if switches[parent].level >= level:
                    break  # what is above it was counted from a longer way
                switches[parent].level = level
    for switch in switches.values():
        if switch.below and not switch.level:
            raise _fault(switch, f"the switches form a ring, or more than {DEEPEST} levels")


def _upward(name: str, switches: Mapping[str, _Switch]) -> Iterator[str]:
    """Yield what is above a switch, the nearest first."""
    seen = {name}
    while name := switches[name].parent:
        if name in seen or len(seen) > DEEPEST:
            raise _fault(switches[name], f"the switches form a ring, or more than {DEEPEST} levels")
        seen.add(name)
        yield name


def _fault(switch: _Switch, text: str) -> GraphError:
    return GraphError(text, line=switch.line, column=1)
