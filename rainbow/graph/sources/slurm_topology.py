"""Switches and blocks above nodes, from Slurm's topology: topology.conf, or what `scontrol show topology` prints.

A leaf switch (Level=0) has the type `switch`, those above it `switch1`, `switch2` and so on, by Slurm's Level. So a
request for {type: switch, with: [{type: node, count: 4}]} asks for four nodes below one leaf switch, and one for
{type: switch1, ...} for nodes below one switch of the next level. A block has the type `block`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rainbow.errors import GraphError, InputError
from rainbow.graph.document import LIMITS, Limits, short
from rainbow.graph.formats import host_list

Above = tuple[tuple[str, str], ...]  # (type, name) of what contains a node, from the top down

DEEPEST = 32  # levels of switches
_FIELD = re.compile(r"(\w+)=(\S*)")
_NAMES = {"switchname": "switch", "blockname": "block"}


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


def read_topology(text: str, limits: Limits = LIMITS) -> Mapping[str, Above]:
    """Return what is above each node that is below a switch; GraphError says which line is wrong."""
    switches = _switches(text, limits)
    if not switches:
        raise GraphError(
            "this is no topology of Slurm: no line begins with SwitchName= or BlockName=", line=1, column=1
        )
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
    return above


def _switches(text: str, limits: Limits) -> dict[str, _Switch]:
    found: dict[str, _Switch] = {}
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
        if fields[key] in found:
            raise _fault(switch, f"{short(fields[key])} is described twice")
        found[fields[key]] = switch
        total += 1 + len(switch.nodes) + len(switch.below)  # a short text can name the same million hosts again
        limits.check("vertices", total, "")
    return found


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
