"""Requests that are hard to decide, each with the cluster that makes it hard; `size` scales both.

The tests of the budget and the benchmark ask the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rainbow
from rainbow.graph import Cluster
from rainbow.jobspec import Condition, Constraint, Count, Need, Request, Resource

Nodes = list[dict[str, Any]]
Hard = tuple[Request, Cluster]


def hard_cluster(nodes: Nodes, name: str = "c") -> Cluster:
    """Make a cluster of nodes, each {type: amount, or a list of what one vertex of the type contains}.

    An amount of a pair is one vertex of that size, and what it contains.
    """
    vertices: list[dict[str, Any]] = [{"id": "c", "metadata": {"type": "cluster", "name": name}}]
    edges: list[dict[str, str]] = []

    def add(above: str, kind: str, size: int, properties: list[str]) -> str:
        id_ = f"v{len(vertices)}"
        metadata = {"type": kind, "name": id_, "size": size, "properties": properties}
        vertices.append({"id": id_, "metadata": metadata})
        edges.append({"source": above, "target": id_})
        return id_

    def fill(above: str, contents: dict[str, Any]) -> None:
        for kind, amount in contents.items():
            if isinstance(amount, tuple):
                fill(add(above, kind, amount[0], []), amount[1])
                continue
            for inner in amount if isinstance(amount, list) else ():
                fill(add(above, kind, 1, []), inner)
            if not isinstance(amount, list):
                add(above, kind, amount, [])

    for k, contents in enumerate(nodes):
        fill(add("c", "node", 1, [f"p{k}", f"q{k % 7}"]), contents)
    return rainbow.read_cluster({"graph": {"nodes": vertices, "edges": edges}}, name=name)


def wanted(kind: str, count: int = 1, *children: Resource, exclusive: bool = False) -> Resource:
    """Ask for so many of a type."""
    return Resource(kind, Count(count, count), exclusive=exclusive, children=children)


def asked(*resources: Resource, constraint: Constraint | None = None) -> Request:
    """Make a request of resources."""
    return Request((resources,), (), constraint=constraint)


def differing_nodes(size: int = 2_400) -> Hard:
    """Ask for siblings that collide, on nodes of which no two are equal; nothing of the packing is left over."""
    nodes: Nodes = [
        {"socket": [{"core": 3 + k % 5}, {"core": 4 + k // 5 % 7}], "gpu": 1 + k % 3, "memory": 100 + k}
        for k in range(size)
    ]
    cores = sum(inner["core"] for node in nodes for inner in node["socket"])
    gpus = sum(node["gpu"] for node in nodes)
    half = size // 2
    return asked(
        wanted("node", half, wanted("core", 9)),
        wanted("socket", half, wanted("core", 4)),
        wanted("core", cores - half * 13 - size // 4),
        wanted("gpu", gpus - 1),
    ), hard_cluster(nodes)


def exclusive_groups(size: int = 4_000) -> Hard:
    """Ask for three groups of exclusive nodes, a third of the cluster each, on nodes of which no two are equal."""
    nodes: Nodes = [{"core": 8 + k % 11, "gpu": 1 + k % 5, "memory": 1_000 + k} for k in range(size)]
    third = size // 3
    return asked(
        wanted("node", third, wanted("core", 12), exclusive=True),
        wanted("node", third, wanted("gpu", 3), exclusive=True),
        wanted("node", third, wanted("memory", 1_000 + size // 2), exclusive=True),
    ), hard_cluster(nodes)


def many_slots(size: int = 1_000) -> Hard:
    """Ask for slots of different sizes that fill a few nodes to the last core."""
    sizes = [17 + k % 83 for k in range(size)]
    room = -(-sum(sizes) // 20)
    slots = [Resource("slot", label=f"s{k}", children=(wanted("core", cores),)) for k, cores in enumerate(sizes)]
    return asked(*slots), hard_cluster([{"core": room, "memory": 100 + k} for k in range(20)])


def many_types(size: int = 1_000) -> Hard:
    """Ask for one whole of every type, on nodes that have all the types."""
    types = {f"type{k}": 2 + k % 3 for k in range(size)}
    one = wanted("node", 10, *(wanted(kind, 2) for kind in types))
    return asked(one, *(wanted(kind, 3) for kind in types)), hard_cluster(
        [{**types, "memory": 100 + k} for k in range(20)]
    )


def many_constraints(size: int = 5_000) -> Hard:
    """Ask under an OR of ANDs, of which no node meets any."""
    ands = tuple(
        Constraint("and", operands=(Constraint("properties", (f"p{k}",)), Constraint("properties", (f"x{k}",))))
        for k in range(size)
    )
    nodes: Nodes = [{"core": 4, "memory": 100 + k} for k in range(500)]
    return asked(wanted("core", 1), constraint=Constraint("or", operands=ands)), hard_cluster(nodes)


def wholes_beside_sockets(size: int = 500) -> Hard:
    """Ask for whole nodes beside exclusive sockets, together one socket more than there is."""
    nodes: Nodes = [{"socket": [{"core": 4 + k % 3}, {"core": 5 + k % 4}], "memory": 100 + k} for k in range(size)]
    half = size // 2
    return asked(
        wanted("node", half, exclusive=True),
        wanted("socket", 2 * (size - half) + 1 - size % 2, wanted("core", 4), exclusive=True),
        wanted("core", half // 2),
    ), hard_cluster(nodes)


HARD: dict[str, tuple[Callable[[int], Hard], int]] = {
    "siblings on different nodes": (differing_nodes, 2_400),
    "three exclusive node groups": (exclusive_groups, 4_000),
    "slots": (many_slots, 1_000),
    "types on 20 nodes": (many_types, 1_000),
    "an OR of ANDs": (many_constraints, 5_000),
    "whole nodes beside sockets": (wholes_beside_sockets, 500),
}


def many_needs(size: int = 3_000) -> Hard:
    """Ask for slots of different sizes, each with a need of its own, on nodes that are too small for them."""
    gcc = Condition("match", {"field": "name", "value": "gcc"})
    slots = [
        Resource(
            "slot",
            Count(2, 2),
            label=f"s{k}",
            needs=(Need("spack", (gcc,)),),
            children=(wanted("core", 34 + k % 50),),
        )
        for k in range(size)
    ]
    return asked(*slots), hard_cluster([{"core": 8} for _ in range(30)])
