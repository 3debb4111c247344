"""A command and a few numbers → the jobspec somebody would have written for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def jobspec_of(
    argv: Sequence[str], nodes: int = 0, cores: int = 1, gpus: int = 0, duration: float = 0, name: str = ""
) -> dict[str, Any]:
    """Write the RFC 14 jobspec of `rainbow submit -n NODES -c CORES -g GPUS -- argv`; one slot a node.

    >>> jobspec_of(["hostname"], cores=2)["resources"]
    [{'type': 'slot', 'count': 1, 'label': 'default', 'with': [{'type': 'core', 'count': 2}]}]
    """
    inside: list[dict[str, Any]] = [{"type": "core", "count": cores}]
    if gpus:
        inside.append({"type": "gpu", "count": gpus})
    slot: dict[str, Any] = {"type": "slot", "count": 1, "label": "default", "with": inside}
    top = {"type": "node", "count": nodes, "with": [slot]} if nodes else slot
    system: dict[str, Any] = {"duration": duration}
    if name:
        system["job"] = {"name": name}
    task = {"command": list(argv), "slot": "default", "count": {"per_slot": 1}}
    return {"version": 1, "resources": [top], "tasks": [task], "attributes": {"system": system}}
