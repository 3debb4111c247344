"""A list of nodes → a JSON Graph Format document.

Templates (`count`) are used where they say exactly the same: for parts of a node numbered from 0, and for nodes
that are alike and whose names are one word and 0, 1, 2, ... (`node0` to `node99`; their ranks, if any, count on
with them). Every other node is listed by its own name: node001, or node7 where node6 does not exist or differs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any, NoReturn

from rainbow.errors import GraphError
from rainbow.graph.document import CONTAINS, Limits, mapping, short


def decode(text: str) -> Mapping[str, Any]:
    """Return the mapping a JSON text holds; GraphError with line and column says where it is none."""
    try:
        value = json.loads(text.removeprefix("\ufeff"), parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise GraphError(f"this is not JSON: {error.msg}", line=error.lineno, column=error.colno) from error
    except RecursionError as error:
        raise GraphError("this is nested too deeply", pointer="") from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise GraphError("a number has too many digits", pointer="") from error
    return mapping(value, "", "the document")


def _refuse(constant: str) -> NoReturn:
    raise GraphError(f"{constant} is not JSON", pointer="")


ROOT = "cluster"
_NUMBERED = re.compile(r"(.*?\D)(0|[1-9][0-9]{0,8})", re.DOTALL)


def lay_out(
    nodes: Sequence[Node],
    limits: Limits,
    name: str = "",
    left_out: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the document of a cluster of these nodes; GraphError for no node at all and for one given twice."""
    if not nodes:
        raise GraphError("there is no node in it", pointer="")
    drawing = _Drawing(limits)
    for run in _runs(nodes):
        drawing.draw(run)
    graph: dict[str, Any] = {"directed": True, "nodes": drawing.nodes, "edges": drawing.edges}
    if metadata or left_out:
        graph["metadata"] = {**(metadata or {}), **({"left_out": list(left_out)} if left_out else {})}
    return {"name": name, "graph": graph} if name else {"graph": graph}


def _runs(nodes: Iterable[Node]) -> Iterable[list[Node]]:
    """Gather nodes that one template can stand for; every other node is alone."""
    gathered: dict[Any, list[Node]] = {}
    for place, node in enumerate(nodes):
        result = _NUMBERED.fullmatch(node.name)
        gathered.setdefault((node.above, result[1]) if result else place, []).append(node)
    for run in gathered.values():
        run.sort(key=_number)
        alike = sum(1 for _ in takewhile(partial(_continues, run[0]), enumerate(run)))
        if alike > 1:
            yield run[:alike]
        yield from ([node] for node in run[alike if alike > 1 else 0 :])


def _number(node: Node) -> int:
    result = _NUMBERED.fullmatch(node.name)
    return int(result[2]) if result else -1


def _continues(first: Node, placed: tuple[int, Node]) -> bool:
    """Return whether a node is the copy that a template made of `first` has at this place."""
    place, node = placed
    rank = None if first.rank is None else first.rank + place
    return _number(node) == place and node.rank == rank and node.likeness == first.likeness


class _Drawing:
    """The vertices and edges so far."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.total = 1
        self.nodes: dict[str, Any] = {ROOT: {"metadata": {"type": ROOT, "name": ROOT}}}
        self.edges: list[dict[str, str]] = []

    def draw(self, run: list[Node]) -> None:
        """Add one node, or a template for a run of them."""
        node = run[0]
        self.total += len(run) * (1 + sum(part.vertices for part in node.parts))
        self.limits.check("vertices", self.total, node.pointer)
        parent = self._above(node)
        fields = {"type": "node", "name": node.name, **node.metadata}
        called = node.id or node.name
        if len(run) > 1:
            called = f"{node.name[:-1]}[0-{len(run) - 1}]"
            fields |= {"name": node.name[:-1], "count": len(run)}
        if node.rank is not None:
            fields["rank"] = node.rank
        if node.properties:
            fields["properties"] = list(node.properties)
        vertex = self._add(parent, called, fields, node.pointer)
        for part in node.parts:
            self._part(vertex, part, node.pointer)

    def _above(self, node: Node) -> str:
        """Return what contains a node, added where it is new."""
        vertex = ROOT
        for kind, name in node.above:
            inner = f"{vertex}/{kind}={name}"
            if inner not in self.nodes:
                self.total += 1
                self._add(vertex, f"{kind}={name}", {"type": kind, "name": name}, node.pointer)
            vertex = inner
        return vertex

    def _part(self, parent: str, part: Part, pointer: str) -> None:
        if part.count > 1 and not part.first:
            self._vertex(parent, part, {"name": part.type, "count": part.count}, pointer)
            return
        for number in range(part.first, part.first + part.count):
            self._vertex(parent, part, {"name": f"{part.type}{number}"}, pointer)

    def _vertex(self, parent: str, part: Part, called: dict[str, Any], pointer: str) -> None:
        """Add one vertex for a part, with what it contains."""
        fields = {"type": part.type, **called, **part.metadata}
        if part.unit or part.size > 1:
            fields["size"] = part.size
        if part.unit:
            fields["unit"] = part.unit
        vertex = self._add(parent, called["name"], fields, pointer)
        for inner in part.parts:
            self._part(vertex, inner, pointer)

    def _add(self, parent: str, called: str, fields: dict[str, Any], pointer: str) -> str:
        vertex = f"{parent}/{called}"
        if vertex in self.nodes:
            raise GraphError(f"{short(called)} is given twice", pointer=pointer)
        self.nodes[vertex] = {"metadata": fields}
        self.edges.append({"source": parent, "target": vertex, "relation": CONTAINS})
        return vertex


@dataclass(frozen=True)
class Part:
    """Equal parts of a node with what each contains, called by their type and a number that counts from `first`."""

    type: str
    count: int = 1
    first: int = 0
    size: int = 1
    unit: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    @property
    def vertices(self) -> int:
        """How many vertices this stands for."""
        return self.count * (1 + sum(part.vertices for part in self.parts))


@dataclass(frozen=True)
class Node:
    """One node; `above` is what contains it below the cluster, as (type, name), from the top down."""

    name: str
    parts: tuple[Part, ...]
    pointer: str  # of what describes it, for faults
    properties: tuple[str, ...] = ()
    rank: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    above: tuple[tuple[str, str], ...] = ()
    id: str = ""  # where names need not be unique

    @property
    def likeness(self) -> tuple[Any, ...]:
        """What two nodes have in common if only their names and ranks tell them apart."""
        return self.parts, self.properties, self.metadata


def amount(kind: str, size: int, unit: str) -> tuple[Part, ...]:
    """Return one divisible part, none where there is nothing of it."""
    return (Part(kind, size=size, unit=unit),) if size else ()


def numbered(kind: str, numbers: list[int]) -> tuple[Part, ...]:
    """Return parts of one type that carry these numbers.

    >>> [(part.count, part.first) for part in numbered("core", [0, 1, 2])]
    [(3, 0)]
    >>> [(part.count, part.first) for part in numbered("core", [0, 7])]
    [(1, 0), (1, 7)]
    """
    if numbers and numbers == list(range(len(numbers))):
        return (Part(kind, count=len(numbers)),)
    return tuple(Part(kind, first=number) for number in numbers)
