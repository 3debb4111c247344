"""Queues, limits and licenses, from what `scontrol show partition` and `scontrol show lic` print.

They may follow the nodes in one text. Without them the queues are those that the nodes name, their limits not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rainbow.graph.sources.node_list import Node
from rainbow.jobspec.times import seconds_of

_BEGIN = re.compile(r"^[ \t]*(PartitionName|LicenseName)=", re.MULTILINE)
_FIELD = re.compile(r"(?<!\S)([A-Za-z_]{1,40})=(\S*)")
_STATES = {"UP": "up", "DOWN": "down", "DRAIN": "drain", "INACTIVE": "inactive"}
_ACCESS = {
    "AllowGroups": "allow-group",
    "AllowAccounts": "allow-account",
    "DenyAccounts": "deny-account",
    "AllowQos": "allow-qos",
    "DenyQos": "deny-qos",
}
_NONE = ("", "ALL", "NONE", "N/A", "UNLIMITED", "(null)")
NOT_MATCHED = ("PriorityTier", "GraceTime")  # of the order of jobs, and of their end
Left = dict[str, str]  # {"what": ..., "why": ...}


def parted(text: str) -> tuple[str, str]:
    """Return the text before the first partition or license, and the rest."""
    result = _BEGIN.search(text)
    return (text, "") if result is None else (text[: result.start()], text[result.start() :])


def read_words(text: str, nodes: Sequence[Node]) -> tuple[dict[str, Any], list[Left]]:
    """Return the words of a site for a graph's metadata, and what was left out with the reason."""
    partitions, licenses = dict[str, Mapping[str, str]](), dict[str, int]()
    for kind, name, fields in _records(text):
        if kind == "PartitionName":
            partitions[name] = fields
        elif fields.get("Total", "").isdecimal():
            licenses[name] = int(fields["Total"])
    named = sorted({name for node in nodes for name in _queues_of(node)})
    queues = {name: _queue(name, fields, name in named) for name, fields in partitions.items()}
    queues |= {name: {"requires": [f"partition={name}"]} for name in named if name not in queues}
    words: dict[str, Any] = {"queues": queues, "features": "complete"}
    remaining: list[Left] = []
    for name in [name for name in queues if name not in named]:
        del queues[name]["requires"]
        remaining.append({"what": f"queue {name}", "why": "no node of this text is in it"})
        queues[name] |= {"state": "down"}
    if default := next((name for name, fields in partitions.items() if fields.get("Default") == "YES"), ""):
        words["policy"] = {"jobspec": {"defaults": {"system": {"queue": default}}}}
    if licenses or "LicenseName=" in text or partitions:
        words["licenses"] = licenses
    if not partitions:
        remaining.append({"what": "limits of queues", "why": "not in this text (scontrol show partition)"})
    remaining.append({"what": "QOS", "why": "not in this text (sacctmgr show qos -P)"})
    if partitions:
        remaining.append({"what": ", ".join(NOT_MATCHED), "why": "no part of matching"})
    return words, remaining


def _records(text: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    starts = [(result.start(), result[1]) for result in _BEGIN.finditer(text)]
    for (start, kind), end in zip(
        starts, [*(at for at, _ in starts[1:]), *([len(text)] if starts else [])], strict=True
    ):
        fields = dict(_FIELD.findall(text[start:end]))
        yield kind, fields.pop(kind), fields


def _queues_of(node: Node) -> Iterable[str]:
    return (name.partition("=")[2] for name in node.properties if name.startswith("partition="))


def _queue(name: str, fields: Mapping[str, str], has_nodes: bool) -> dict[str, Any]:
    """Return a queue in RFC 33's form."""
    limits: dict[str, Any] = {}
    if (most := _seconds(fields.get("MaxTime", ""))) is not None:
        limits["duration"] = most
    size: dict[str, Any] = {}
    if (least := _number(fields.get("MinNodes", ""))) is not None and least > 1:
        size["min"] = {"nnodes": least}
    if (nodes := _number(fields.get("MaxNodes", ""))) is not None:
        size["max"] = {"nnodes": nodes}
    limits |= {"job-size": size} if size else {}
    if (memory := _number(fields.get("MaxMemPerNode", ""))) is not None:
        limits["memory-per-node"] = f"{memory}MiB"
    access = {key: fields[field].split(",") for field, key in _ACCESS.items() if fields.get(field, "") not in _NONE}
    policy: dict[str, Any] = {"limits": limits} if limits else {}
    policy |= {"access": access} if access else {}
    if (usual := _seconds(fields.get("DefaultTime", ""))) is not None:
        policy["jobspec"] = {"defaults": {"system": {"duration": usual}}}
    results: dict[str, Any] = {"requires": [f"partition={name}"] if has_nodes else []}
    if (state := _STATES.get(fields.get("State", "UP"), "up")) != "up":
        results["state"] = state
    results |= {"policy": policy} if policy else {}
    return results | ({"whole_nodes": True} if fields.get("OverSubscribe") == "EXCLUSIVE" else {})


def _seconds(text: str) -> float | None:
    result = None if text in _NONE else seconds_of(text, plain=60)
    return int(result) if result else None


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
