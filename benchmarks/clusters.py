"""Clusters and requests to measure with."""

from __future__ import annotations

import random
from typing import Any

import rainbow
from rainbow.graph import Cluster
from rainbow.jobspec import Condition, Constraint, Count, Need, Request, Resource

CORES = 24


def flat(nodes: int, name: str = "flat") -> Cluster:
    """A cluster of equal nodes with 24 cores each, written as a template."""
    vertices = {
        "c": {"type": "cluster"},
        "n": {"type": "node", "count": nodes},
        "k": {"type": "core", "count": CORES},
    }
    edges = [{"source": "c", "target": "n"}, {"source": "n", "target": "k"}]
    document = {"graph": {"nodes": {key: {"metadata": data} for key, data in vertices.items()}, "edges": edges}}
    return rainbow.read_cluster(document, name=name)


def with_memory(nodes: int, differ: bool = False) -> Cluster:
    """A cluster of nodes with two sockets, each of 12 cores and 64 of memory; `differ`: each has its own property."""
    inside = {"s": {"type": "socket", "count": 2}, "k": {"type": "core", "count": CORES // 2}}
    vertices: dict[str, Any] = {"c": {"type": "cluster"}}
    edges: list[dict[str, str]] = []
    for i in range(nodes if differ else 1):
        one = (
            {"type": "node", "name": f"node{i}", "properties": [f"own{i}"]}
            if differ
            else {"type": "node", "count": nodes}
        )
        own = {key: f"{key}{i}" for key in ("n", *inside, "m")}
        vertices |= {own["n"]: one, own["m"]: {"type": "memory", "size": 64}}
        vertices |= {own[key]: data for key, data in inside.items()}
        below = (("c", own["n"]), (own["n"], own["s"]), (own["s"], own["k"]), (own["s"], own["m"]))
        edges += [{"source": source, "target": target} for source, target in below]
    document = {"graph": {"nodes": {key: {"metadata": data} for key, data in vertices.items()}, "edges": edges}}
    return rainbow.read_cluster(document, name="memory")


def listed(nodes: int, differ: bool = False) -> dict[str, Any]:
    """The same as a document that lists every vertex; `differ`: no two nodes are alike."""
    vertices: dict[str, Any] = {"c": {"metadata": {"type": "cluster", "paths": {"containment": "/c"}}}}
    edges: list[dict[str, str]] = []
    for i in range(nodes):
        path = f"/c/node{i}"
        vertices[f"n{i}"] = _vertex("node", f"node{i}", path, rank=i)
        edges.append({"source": "c", "target": f"n{i}", "relation": "contains"})
        for k in range(CORES):
            size = i + 1 if differ and not k else 1
            vertices[f"n{i}k{k}"] = _vertex("core", f"core{k}", f"{path}/core{k}", size=size)
            edges.append({"source": f"n{i}", "target": f"n{i}k{k}", "relation": "contains"})
    return {"graph": {"nodes": vertices, "edges": edges}}


def _vertex(kind: str, name: str, path: str, **more: int) -> dict[str, Any]:
    return {"metadata": {"type": kind, "name": name, "paths": {"containment": path}, **more}}


def packaged(nodes: int, packages: int) -> Cluster:
    """Nodes with packages hung on each of them, in versions drawn at random."""
    chance = random.Random(1)
    vertices: dict[str, Any] = {}
    edges: list[dict[str, str]] = []
    for i in range(nodes):
        for p in range(packages):
            version = f"{chance.randrange(4)}.{chance.randrange(6)}.0"
            vertices[f"p{i}-{p}"] = {"metadata": {"type": "package", "name": f"package-{p}", "version": version}}
            edges.append({"source": f"n{i}", "target": f"p{i}-{p}"})
    return rainbow.read_cluster(listed(nodes)).with_subsystem("spack", {"graph": {"nodes": vertices, "edges": edges}})


def many(n: int) -> Count:
    """Just so many."""
    return Count(n, n)


def cores(n: int) -> Resource:
    """Cores, wherever they are."""
    return Resource("core", many(n))


def nodes(n: int, *below: Resource) -> Resource:
    """Nodes, whole or with something in them."""
    return Resource("node", many(n), children=below)


def slots(n: int, *below: Resource, needs: tuple[Need, ...] = (), label: str = "work") -> Request:
    """A request of n slots."""
    return asking(Resource("slot", many(n), label=label, needs=needs, children=below))


def asking(*resources: Resource, constraint: Constraint | None = None) -> Request:
    """A request for resources."""
    return Request((resources,), (), constraint=constraint)


def named(field: str, value: str) -> Condition:
    """A field that equals a value."""
    return Condition("match", {"field": field, "value": value})


def between(field: str, low: str, high: str) -> Condition:
    """A version between two others."""
    return Condition("range", {"field": field, "min": low, "max": high})
