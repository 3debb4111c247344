"""One machine, as an agent that runs on it describes it (agent/machine.py): its cores, memory and gpus."""

from __future__ import annotations

from typing import Any

from rainbow.errors import GraphError
from rainbow.graph.document import given, mapping, whole
from rainbow.graph.document import text as text_of
from rainbow.graph.limits import LIMITS, Limits
from rainbow.graph.sources.decoding import decode
from rainbow.graph.sources.laying import lay_out
from rainbow.graph.sources.nodes import Node, Part, amount

AT = "/machine"


def read_local(text: str, limits: Limits = LIMITS) -> dict[str, Any]:
    """Turn `{"machine": {"name", "cores", "memory_mib", "gpus"}}` into a document of one node."""
    document = decode(text)
    if "machine" not in document:
        raise GraphError("this describes no machine: there is no machine", pointer="")
    machine = mapping(document["machine"], AT, "machine")
    cores = Part("core", whole(machine.get("cores"), f"{AT}/cores", "cores"))
    gpus = whole(given(machine, "gpus", 0), f"{AT}/gpus", "gpus", 0)
    memory = whole(given(machine, "memory_mib", 0), f"{AT}/memory_mib", "memory_mib", 0)
    parts = (cores, *((Part("gpu", gpus),) if gpus else ()), *amount("memory", memory, "MiB"))
    return lay_out([Node(text_of(machine.get("name"), f"{AT}/name", "the name of the machine"), parts, AT)], limits)
