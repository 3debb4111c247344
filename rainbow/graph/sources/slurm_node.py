"""What a node of Slurm is made of, and whether jobs can start on it."""

from __future__ import annotations

import re
from typing import Any

from rainbow.graph.limits import Limits
from rainbow.graph.sources.nodes import Node, amount
from rainbow.graph.sources.slurm_cores import cores_of
from rainbow.graph.sources.slurm_fields import Record
from rainbow.graph.sources.slurm_gres import Gres, gres_of, parts_of

# IDLE+POWERED_DOWN, PLANNED or RESERVED are none of these: jobs start there, by and by
_DOWN = {
    *("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "UNKNOWN", "FUTURE", "MAINT"),
    *("MAINTENANCE", "NOT_RESPONDING", "NO_RESPOND", "INVALID", "INVALID_REG", "INVAL"),
}
_LONGEST_REASON = 256


def node_of(record: Record, limits: Limits) -> Node:
    """Return the node a record describes, its name left empty."""
    gres = gres_of(record)
    memory = (record.number("real_memory") or 0) - (record.number("specialized_memory") or 0)
    parts = (
        *cores_of(record, limits),
        *parts_of(gres, record, limits),
        *amount("memory", max(memory, 0), "MiB"),
        *amount("ssd", record.number("temporary_disk") or 0, "MiB"),
    )
    reason = _unavailable(record)
    return Node("", parts, record.pointer, _properties(record, gres), metadata=reason)


def _properties(record: Record, gres: list[Gres]) -> tuple[str, ...]:
    features = record.words("active_features") or record.words("features")
    partitions = [f"partition={name}" for name in record.words("partitions")]
    models = [f"{one.name}={one.model}" for one in gres if one.model]
    marks = [one.name for one in gres if not one.consumed]
    return tuple(sorted({*features, *partitions, *models, *marks}))


def _unavailable(record: Record) -> dict[str, Any]:
    """Say why jobs cannot start: states as 21.08 (text and flags) to 24.11 (a list) and `scontrol` write them."""
    said = record.words("state") + record.words("state_flags")
    states = [state.upper() for text in said for state in re.split(r"[+\s]+", text.replace("*", "+NOT_RESPONDING"))]
    found = [state.strip("~#!%$@^-") for state in states]
    down = [state for state in dict.fromkeys(found) if state in _DOWN]
    if not down:
        return {}
    reason = record.said("reason")[:_LONGEST_REASON]
    return {"unavailable": f"{'+'.join(down)}: {reason}" if reason else "+".join(down)}
