"""Small clusters written as paths: `tree("n0 node+amd", "n0/core0 core*4", "n0/memory0 memory*512GB")`."""

from __future__ import annotations

import re

import rainbow

_WHAT = re.compile(r"([a-z]+)(?:\*(\d+)([A-Za-z]*))?((?:\+[a-z0-9]+)*)")


def document(*lines: str, root: str = "cluster") -> dict:
    """Return the graph of some vertices: a path of names, the type, its size and unit, its properties."""
    nodes = {root: {"metadata": {"type": "cluster", "name": root}}}
    edges = []
    for line in lines:
        path, what = line.split()
        kind, size, unit, properties = _WHAT.fullmatch(what).groups()
        above, _, name = path.rpartition("/")
        fields = {"type": kind, "name": name, "size": int(size or 1), "unit": unit or ""}
        fields["properties"] = dict.fromkeys(filter(None, properties.split("+")), "")
        nodes[name] = {"metadata": fields}
        edges.append({"source": above.rpartition("/")[2] or root, "target": name, "relation": "contains"})
    return {"graph": {"nodes": nodes, "edges": edges}}


def tree(*lines: str, **options) -> rainbow.Cluster:
    """Return the cluster of some vertices."""
    return rainbow.read_cluster(document(*lines), name="c", **options)


def groups(constraint: list[str] | None = None, **resources) -> rainbow.Request:
    """Return a request of named groups, all run by one task."""
    written = {"version": 1, "resources": resources, "tasks": [{"command": ["x"]}]}
    if constraint:
        written["attributes"] = {"system": {"constraints": {"properties": constraint}}}
    return rainbow.parse_jobspec(written)


def slots(*resources: dict, per_slot: int = 1) -> rainbow.Request:
    """Return an RFC 14 request whose task runs in the slots of label "run"."""
    task = {"command": ["x"], "slot": "run", "count": {"per_slot": per_slot}}
    return rainbow.parse_jobspec({"version": 1, "resources": list(resources), "tasks": [task], "attributes": {}})


def slot(count: int, *inside: dict, kind: str = "slot", label: str = "run") -> dict:
    """Return a slot of some resources."""
    return {"type": kind, "count": count, "label": label, "with": list(inside)}


def some(kind: str, count: int = 1, **more) -> dict:
    """Return a resource."""
    return {"type": kind, "count": count, **more}
