"""Clusters written as one line: `cluster(rack*2(node*3(core*4 memory:64GB)))`."""

from __future__ import annotations

import re
from typing import Any

import rainbow
from rainbow.graph import Cluster

_PART = re.compile(r"\s*([a-z]+)(?:\*(\d+))?(?::(\d+)([A-Za-z]*))?(\(?)|\s*(\))")


def cluster(
    shape: str,
    name: str = "test",
    hung: list[dict[str, Any]] | None = None,
    properties: dict[str, list[str]] | None = None,
    **options: Any,
) -> Cluster:
    """Build the cluster of a shape; `hung` lists subsystem vertices as {at, subsystem, type, ...metadata}.

    `properties` gives some vertices theirs.

    Vertices are called type + number in order of appearance: node0, node1, core0, ...
    """
    graph = document(shape)
    for vertex, names in (properties or {}).items():
        graph["graph"]["nodes"][vertex]["metadata"]["properties"] = names
    built = rainbow.read_cluster(graph, name=name, **options)
    for subsystem, hanging in subsystems(hung or []).items():
        built = built.with_subsystem(subsystem, hanging)
    return built


def document(shape: str) -> dict[str, Any]:
    """Write the graph of a shape as a document."""
    nodes: dict[str, Any] = {}
    edges: list[dict[str, str]] = []
    _grow(_parse(shape), None, nodes, edges)
    return {"graph": {"nodes": nodes, "edges": edges}}


def _parse(shape: str) -> list[Any]:
    stack: list[list[Any]] = [[]]
    for kind, times, size, unit, opens, closes in _PART.findall(shape):
        if closes:
            stack.pop()
            continue
        part: tuple[str, int, int, str, list[Any]] = (kind, int(times or 1), int(size or 1), unit, [])
        stack[-1].append(part)
        if opens:
            stack.append(part[4])
    return stack[0]


def _grow(parts: list[Any], parent: str | None, nodes: dict[str, Any], edges: list[dict[str, str]]) -> None:
    for kind, times, size, unit, below in parts:
        for _ in range(times):
            name = f"{kind}{sum(1 for node in nodes.values() if node['metadata']['type'] == kind)}"
            nodes[name] = {"metadata": {"type": kind, "name": name, "size": size, "unit": unit}}
            if parent:
                edges.append({"source": parent, "target": name, "relation": "contains"})
            _grow(below, name, nodes, edges)


def subsystems(hung: list[dict[str, Any]]) -> dict[str, Any]:
    """Write subsystem graphs by their names."""
    documents: dict[str, Any] = {}
    for k, entry in enumerate(hung):
        document = documents.setdefault(entry["subsystem"], {"graph": {"nodes": {}, "edges": []}})["graph"]
        metadata = {key: value for key, value in entry.items() if key not in ("at", "subsystem")}
        document["nodes"][f"hung{k}"] = {"metadata": {"name": f"hung{k}", **metadata}}
        document["edges"].append({"source": entry["at"], "target": f"hung{k}", "relation": "contains"})
    return documents
