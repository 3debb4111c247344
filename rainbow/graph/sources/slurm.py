"""Graphs from the output of Slurm's commands.

Slurm: `scontrol show nodes --json`, `scontrol show node` (also --oneliner) and `sinfo --json`, from 21.08 on.

cluster > node > socket > core, and gpu, memory, ssd (TmpDisk) and every other countable gres on the node. What Slurm
keeps for itself (CoreSpecCount, CPUSpecList, MemSpecLimit) is not there. Features are properties as they are called;
a partition is the property `partition=NAME`, a GPU's type `gpu=TYPE`. Lines of topology.conf or of `scontrol show
topology` after the nodes add switches or blocks between cluster and node; those of gres.conf put GPUs below sockets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rainbow.errors import GraphError, InputError
from rainbow.graph.document import LIMITS, Limits, given, mapping, sequence, text
from rainbow.graph.formats import host_list
from rainbow.graph.sources.node_list import Node, decode, lay_out
from rainbow.graph.sources.slurm_node import Record, near_their_cores, node_of, read_gres
from rainbow.graph.sources.slurm_site import parted, read_words
from rainbow.graph.sources.slurm_topology import Above, read_topology


def read_slurm(text: str, limits: Limits = LIMITS) -> dict[str, Any]:
    """Turn what `scontrol` or `sinfo` printed into a document; topology.conf and gres.conf may follow."""
    text, conf = _parted(text.removeprefix("\ufeff"))  # what some editors write first
    text, of_site = parted(text)
    name = ""
    if text.lstrip().startswith(("{", "[")):
        document = decode(text)
        nodes, name = _merged(_json_nodes(document, limits)), _cluster_name(document)
    else:
        nodes = _merged(_text_nodes(text, limits))
    words, remaining = read_words(of_site, nodes)
    above, unread = read_topology(conf, limits, {node.name for node in nodes}) if conf else ({}, ())
    remaining += [{"what": one.what, "why": one.why} for one in unread]
    nodes = _below(near_their_cores(nodes, read_gres(conf, limits)), above)
    return lay_out(nodes, limits, name, metadata={**words, "import": {"left_out": remaining}})


def _parted(text: str) -> tuple[str, str]:
    """Return what describes the nodes, and the lines of configuration, numbered as in the whole text."""
    result = _CONF.search(text)
    if result is None:
        return text, ""
    nodes = text[: result.start()]
    while nodes.rstrip().rpartition("\n")[2].lstrip().startswith("#"):  # such a file begins with comments
        nodes = nodes.rstrip().rpartition("\n")[0]
    return nodes, "\n" * text.count("\n", 0, result.start()) + text[result.start() :]


def _below(nodes: list[Node], above: Mapping[str, Above]) -> list[Node]:
    """Put nodes below their switches; those that the topology does not name stay below the cluster."""
    return [replace(node, above=above.get(node.name, ())) for node in nodes] if above else nodes


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
    results: dict[str, Node] = {}
    for node in nodes:
        first = results.setdefault(node.name, node)
        if first is node:
            continue
        if first.parts != node.parts or not node.pointer.startswith("/sinfo"):
            raise GraphError(f"the node {node.name[:60]!r} is described twice", pointer=node.pointer)
        properties = tuple(sorted({*first.properties, *node.properties}))
        results[node.name] = Node(node.name, first.parts, first.pointer, properties, metadata=first.metadata)
    return list(results.values())


def _cluster_name(document: Mapping[str, Any]) -> str:
    """Return the name that Slurm 23.11 and newer give, "" where there is none."""
    meta = mapping(given(document, "meta", {}), "/meta", "meta")
    slurm = given(meta, "Slurm", given(meta, "slurm", {}))
    name = given(mapping(slurm, "/meta/slurm", "slurm"), "cluster", "")
    return text(name, "/meta/slurm/cluster", "the name of the cluster")


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


_CONF = re.compile(
    r"^[ \t]*(?:---$|- topology:|(?:SwitchName|BlockName|RingName|AutoDetect|Name)="
    r"|NodeName=\S+[ \t]+(?:AutoDetect|Name)=)",
    re.MULTILINE | re.IGNORECASE,
)
_RECORD = re.compile(r"^NodeName=", re.MULTILINE)
_FIELD = re.compile(r"(?<!\S)([A-Za-z_]{1,40})=(\S*)")
# free text, printed after all that is read here: what stands in it is not the node's
_FREE = re.compile(r"(?<!\S)(?:Reason|Comment|Extra)=")
_REASON = re.compile(r"(?<!\S)Reason=(.*?)(?= \[[^\[\]\n]*\]|$)", re.MULTILINE)
_KEYS = {
    "NodeName": "name",
    "CPUTot": "cpus",
    "CPUEfctv": "effective_cpus",
    "Sockets": "sockets",
    "CoresPerSocket": "cores",
    "ThreadsPerCore": "threads",
    "RealMemory": "real_memory",
    "TmpDisk": "temporary_disk",
    "MemSpecLimit": "specialized_memory",
    "CoreSpecCount": "specialized_cores",
    "CPUSpecList": "specialized_cpus",
    "AvailableFeatures": "features",
    "ActiveFeatures": "active_features",
    "Partitions": "partitions",
    "Gres": "gres",
    "State": "state",
    "CfgTRES": "tres",
}


def records_of_text(text: str) -> Iterator[tuple[int, Record]]:
    """Yield every node's record and the line it begins in."""
    starts = [result.start() for result in _RECORD.finditer(text)]
    if not starts:
        raise GraphError("this is no output of Slurm: no line begins with NodeName=", line=1, column=1)
    line, counted = 1, 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        line, counted = line + text.count("\n", counted, start), start
        yield line, _record(text[start:end])


def _record(value: str) -> Record:
    free = _FREE.search(value)
    fields: dict[str, str] = {}
    for result in _FIELD.finditer(value, 0, free.start() if free else len(value)):
        if result[1] in _KEYS:
            fields.setdefault(_KEYS[result[1]], result[2])
    reason = _REASON.search(value)
    if reason:
        fields["reason"] = reason[1]
    return Record(fields, "", [fields["name"]])
