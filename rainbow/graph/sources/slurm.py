"""Slurm: `scontrol show nodes --json`, `scontrol show node` (also --oneliner) and `sinfo --json`, from 21.08 on.

cluster > node > socket > core, and gpu, memory, ssd (TmpDisk) and every other countable gres on the node. What Slurm
keeps for itself (CoreSpecCount, CPUSpecList, MemSpecLimit) is not there. Features are properties as they are called;
a partition is the property `partition=NAME`, a GPU's type `gpu=TYPE`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rainbow.errors import GraphError, InputError
from rainbow.graph.document import given, mapping, sequence, text
from rainbow.graph.limits import LIMITS, Limits
from rainbow.graph.resource_set import host_list
from rainbow.graph.sources.decoding import decode
from rainbow.graph.sources.laying import lay_out
from rainbow.graph.sources.nodes import Node
from rainbow.graph.sources.slurm_fields import Record
from rainbow.graph.sources.slurm_node import node_of
from rainbow.graph.sources.slurm_rows import records_of_rows
from rainbow.graph.sources.slurm_text import records_of_text


def read_slurm(text: str, limits: Limits = LIMITS) -> dict[str, Any]:
    """Turn what `scontrol` or `sinfo` printed into a document."""
    text = text.removeprefix("\ufeff")  # what some editors write first
    if text.lstrip().startswith(("{", "[")):
        document = decode(text)
        return lay_out(_merged(_json_nodes(document, limits)), limits, _cluster_name(document))
    return lay_out(_merged(_text_nodes(text, limits)), limits)


def _json_nodes(document: Mapping[str, Any], limits: Limits) -> Iterator[Node]:
    if "sinfo" in document:
        records = records_of_rows(sequence(document["sinfo"], "/sinfo", "sinfo"))
    elif "nodes" in document:
        records = _listed(document["nodes"])
    else:
        raise GraphError("this is no output of Slurm: there are neither nodes nor sinfo", pointer="")
    total = 0
    for record in records:
        for node in _named(record, limits):
            total += 1  # a short text can name the same million hosts again and again
            limits.check("vertices", total, record.pointer)
            yield node


def _listed(nodes: Any) -> Iterator[Record]:
    for place, entry in enumerate(sequence(nodes, "/nodes", "nodes")):
        at = f"/nodes/{place}"
        fields = mapping(entry, at, "a node")
        yield Record(fields, at, [text(fields.get("name"), f"{at}/name", "the name of a node")])


def _text_nodes(text: str, limits: Limits) -> Iterator[Node]:
    for line, record in records_of_text(text):
        try:
            yield from _named(record, limits)
        except InputError as fault:
            fault.pointer, fault.line, fault.column = None, line, 1  # text has lines, not pointers
            raise


def _named(record: Record, limits: Limits) -> Iterator[Node]:
    """Yield the nodes a record describes: one, or one for each host of its host list."""
    pattern: Node | None = None
    for listed in record.names:
        for name in host_list(listed, record.at("name"), limits):
            pattern = pattern or node_of(record, limits)
            yield Node(name, pattern.parts, pattern.pointer, pattern.properties, metadata=pattern.metadata)


def _merged(nodes: Iterator[Node]) -> list[Node]:
    """Make one of the rows that `sinfo` prints for a node, one for each of its partitions."""
    found: dict[str, Node] = {}
    for node in nodes:
        first = found.setdefault(node.name, node)
        if first is node:
            continue
        if first.parts != node.parts or not node.pointer.startswith("/sinfo"):
            raise GraphError(f"the node {node.name[:60]!r} is described twice", pointer=node.pointer)
        properties = tuple(sorted({*first.properties, *node.properties}))
        found[node.name] = Node(node.name, first.parts, first.pointer, properties, metadata=first.metadata)
    return list(found.values())


def _cluster_name(document: Mapping[str, Any]) -> str:
    """Return the name that Slurm 23.11 and newer give, "" where there is none."""
    meta = mapping(given(document, "meta", {}), "/meta", "meta")
    slurm = given(meta, "Slurm", given(meta, "slurm", {}))
    name = given(mapping(slurm, "/meta/slurm", "slurm"), "cluster", "")
    return text(name, "/meta/slurm/cluster", "the name of the cluster")
