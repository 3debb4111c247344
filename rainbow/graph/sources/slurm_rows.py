"""Rows of `sinfo --json` since 23.02: nodes that look alike, once for every partition they are in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rainbow.errors import GraphError
from rainbow.graph.document import given, mapping, sequence, text
from rainbow.graph.sources.slurm_fields import Record

_BOUNDED = {
    "cpus": "cpus",
    "sockets": "sockets",
    "cores": "cores",
    "threads": "threads",
    "memory": "real_memory",
    "disk": "temporary_disk",
}
_NESTED = {
    "gres": ("gres", "total"),
    "features": ("features", "total"),
    "active_features": ("features", "active"),
    "state": ("node", "state"),
    "reason": ("reason", "description"),
    "partitions": ("partition", "name"),
}


def records_of_rows(rows: Sequence[Any]) -> Iterator[Record]:
    """Yield a record for every row that has nodes."""
    for place, row in enumerate(rows):
        at = f"/sinfo/{place}"
        row = mapping(row, at, "a row")
        nodes = mapping(row.get("nodes"), f"{at}/nodes", "nodes")
        listed = sequence(nodes.get("nodes"), f"{at}/nodes/nodes", "the list of nodes")
        names = [text(name, f"{at}/nodes/nodes/{n}", "the name of a node") for n, name in enumerate(listed)]
        if names:
            yield Record(_flat(row, at), at, names)


def _flat(row: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Name the fields of a row as `scontrol` does."""
    fields = {field: _same(row, key, at) for key, field in _BOUNDED.items()}
    for field, (key, inner) in _NESTED.items():
        fields[field] = mapping(given(row, key, {}), f"{at}/{key}", key).get(inner)
    return fields


def _same(row: Mapping[str, Any], key: str, at: str) -> Any:
    """Return what the nodes of a row have each; where they differ, a row does not say which has what."""
    bounds = mapping(given(row, key, {}), f"{at}/{key}", key)
    if bounds.get("minimum") != bounds.get("maximum"):
        advice = "`scontrol show nodes --json` lists each by itself"
        raise GraphError(f"the nodes of this row differ in {key}; {advice}", pointer=f"{at}/{key}")
    return bounds.get("minimum")
