"""The entry: text, a mapping, or a command and numbers → `Request`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from rainbow.errors import InputError, JobspecError
from rainbow.jobspec.dialects.founding_text import read_founding
from rainbow.jobspec.dialects.nextgen import read_nextgen
from rainbow.jobspec.dialects.rfc14 import read_rfc14
from rainbow.jobspec.request import Request
from rainbow.jobspec.validation import sound
from rainbow.jobspec.yaml_reader import Limits, Positions, load, step
from rainbow.text import as_json, meant


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


NO_JOBSPECS = {"graph": "a cluster's graph (see rainbow cluster register)", "apiVersion": "a Kubernetes manifest"}
LOOKED_AT = 100  # keys, for the one that was meant


def parse_jobspec(source: str | bytes | Mapping[str, Any], limits: Limits | None = None) -> Request:
    """Read a jobspec of any dialect; JobspecError (or LimitError) with pointer and, for text, line and column.

    >>> parse_jobspec("resources: {work: {type: node, replicas: 2}}").resources[0].label
    'work'
    """
    limits = limits or Limits()
    if not isinstance(source, str | bytes | Mapping):
        text = f"a jobspec is text or a mapping, got {type(source).__name__}"
        raise JobspecError(f"{text}; of a file give its text (path.read_text())", pointer="")
    loaded, positions = (source, Positions()) if isinstance(source, Mapping) else load(source, limits)
    try:
        document = sound(loaded, limits)
        if not isinstance(document, Mapping):
            hint = "; a batch script begins with #!, such as #!/bin/bash" if isinstance(document, str) else ""
            raise JobspecError(f"a jobspec must be a mapping, got {as_json(document)}{hint}", pointer="")
        _check_resources(document)
        return replace(dialect_of(document)(document), document=source)
    except InputError as fault:
        _locate(fault, positions)
        raise


def dialect_of(document: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Request]:
    """Tell the dialect by its keys."""
    if isinstance(document.get("resources"), Mapping):
        return read_nextgen
    if "task" in document:
        return read_founding
    return read_rfc14


def _check_resources(document: Mapping[str, Any]) -> None:
    """Refuse a misspelt `resources`, whose form would tell the dialect."""
    if "resources" in document or "task" in document:
        return
    if result := next((what for key, what in NO_JOBSPECS.items() if key in document), ""):
        raise JobspecError(f"this is {result}, no jobspec: it has no key resources", pointer="")
    for key in islice(document, LOOKED_AT):
        if hint := meant(key, ["resources"]):
            raise JobspecError(f"the jobspec has no key {key}; {hint}", pointer=f"/{step(key)}")
    if "tasks" in document and "version" not in document:  # of which dialect it is, its resources would tell
        raise JobspecError("missing key in the jobspec: resources", pointer="")


def _locate(fault: InputError, positions: Positions) -> None:
    """Say where in the text a pointer leads, or the nearest thing above it."""
    result = positions.nearest(fault.pointer or "")
    if fault.line is None and result:
        fault.line, fault.column = result
