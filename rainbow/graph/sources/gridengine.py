"""The graph of a Grid Engine, by what `qhost -q -xml` prints: cluster > node > core, memory.

A host has as many cores as its largest queue has slots, for these are what jobs are given; without a queue as many
as it has processors. One that reports no load is unavailable.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from rainbow.errors import GraphError
from rainbow.graph.document import LIMITS, Limits
from rainbow.graph.document import text as text_of
from rainbow.graph.sources.node_list import Node, Part, amount, lay_out

AMOUNT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([KMGT]?)")
MIB = {"": 2**-20, "K": 2**-10, "M": 1.0, "G": 2.0**10, "T": 2.0**20}


def read_gridengine(text: str, limits: Limits = LIMITS) -> dict[str, Any]:
    """Turn what `qhost -q -xml` prints into a document."""
    if "<!ENTITY" in text:  # qhost writes none; they are how a short text becomes a long one
        raise GraphError("qhost has no entities", line=1, column=1)
    try:
        root = ElementTree.fromstring(text.removeprefix("\ufeff").strip())  # noqa: S314 - without entities no bomb
    except ElementTree.ParseError as error:
        line, column = error.position
        raise GraphError(f"this is not XML: {error.msg}", line=line, column=column + 1) from error
    except ValueError as error:  # NUL, or half a character
        raise GraphError("this is not XML: it has characters that no text has", line=1, column=1) from error
    if root.tag != "qhost":
        raise GraphError("this is no output of qhost -q -xml", line=1, column=1)
    hosts = [host for host in root.iterfind("host") if host.get("name") != "global"]
    return lay_out([_node(host, at, limits) for at, host in enumerate(hosts)], limits)


def _node(host: ElementTree.Element, at: int, limits: Limits) -> Node:
    values = {one.get("name", ""): (one.text or "").strip() for one in host.iterfind("hostvalue")}
    slots = [_count(one.text) for one in host.iterfind("queue/queuevalue[@name='slots']")]
    cores = max([*slots, 0]) or _count(values.get("num_proc")) or 1
    limits.check("vertices", cores, f"/qhost/host/{at}")
    down = {"unavailable": "it reports no load"} if values.get("load_avg", "-") == "-" else {}
    parts = (Part("core", cores), *amount("memory", _mebibytes(values.get("mem_total", "")), "MiB"))
    return Node(
        text_of(host.get("name", ""), f"/qhost/host/{at}", "the name of the host"), parts, f"/{at}", metadata=down
    )


def _count(text: str | None) -> int:
    said = (text or "").strip()
    return int(said) if said.isascii() and said.isdigit() and len(said) < 10 else 0


def _mebibytes(text: str) -> int:
    """Read an amount of memory.

    >>> _mebibytes("23.5G"), _mebibytes("-")
    (24064, 0)
    """
    result = AMOUNT.fullmatch(text)
    return int(float(result[1]) * MIB[result[2]]) if result else 0
