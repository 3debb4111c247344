"""Which cores each GPU of a node is near, from Slurm's gres.conf.

How many GPUs a node has, its own record says. gres.conf adds to each its device file and its cores; a GPU whose
cores are all of one socket is below that socket, so that a job can ask for cores and GPUs of one socket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rainbow.errors import GraphError, InputError
from rainbow.graph.document import LIMITS, Limits
from rainbow.graph.formats import host_list
from rainbow.graph.sources.node_list import Node, Part
from rainbow.graph.sources.slurm_topology import conf_lines
from rainbow.jobspec.hostlist import expand_ids

EVERY_HOST = ""  # the host of lines without NodeName
_MOST_DEVICES = 4096  # devices and cores of one node


class Device(NamedTuple):
    """One GPU: its type, its file, and its cores as gres.conf writes them; "" for what it does not say."""

    model: str
    file: str
    cores: str


Devices = Mapping[str, Sequence[Device]]  # by host, in the order of the lines


def read_gres(text: str, limits: Limits = LIMITS) -> Devices:
    """Return the GPUs that the lines of gres.conf describe; GraphError says which line is wrong."""
    found: dict[str, list[Device]] = {}
    total = 0
    for line, fields in conf_lines(text):
        if fields.get("name", "").lower() != "gpu":
            continue
        try:
            hosts = host_list(fields["nodename"], "", limits) if "nodename" in fields else [EVERY_HOST]
            devices = list(_devices(fields, limits))
        except InputError as fault:
            fault.pointer, fault.line, fault.column = None, line, 1
            raise
        total += len(hosts) * len(devices)
        limits.check("vertices", total, "")
        for host in hosts:
            found.setdefault(host, []).extend(devices)
    return found


def _devices(fields: Mapping[str, str], limits: Limits) -> Iterator[Device]:
    cores = fields.get("cores", fields.get("cpus", ""))
    if cores and expand_ids(cores, _MOST_DEVICES) is None:
        raise GraphError('Cores must read like "0-15,32"')
    files = host_list(fields["file"], "", limits) if fields.get("file") else []
    count = fields.get("count", "1")
    if not files and not (count.isascii() and count.isdigit() and int(count[:9]) <= _MOST_DEVICES):
        raise GraphError(f"Count must be an integer from 0 to {_MOST_DEVICES}")
    for file in files or [""] * int(count):
        yield Device(fields.get("type", ""), file, cores)


def near_their_cores(nodes: Sequence[Node], devices: Devices) -> list[Node]:
    """Put the GPUs of each node below the socket of their cores, and say their cores and files."""
    return [_arranged(node, [*devices.get(EVERY_HOST, ()), *devices.get(node.name, ())]) for node in nodes]


def _arranged(node: Node, devices: list[Device]) -> Node:
    gpus = list(_with_devices(node, devices))
    sockets = list(_single(node, "socket"))
    cores = {one.first: sum(part.count for part in one.parts if part.type == "core") for one in sockets}
    below = {gpu.first: _socket(gpu.metadata.get("cores", ""), cores) for gpu in gpus}
    if all(socket is None for socket in below.values()):
        sockets = [one for one in node.parts if one.type == "socket"]  # still alike
    inside = [replace(one, parts=(*one.parts, *(g for g in gpus if below[g.first] == one.first))) for one in sockets]
    outside = [gpu for gpu in gpus if below[gpu.first] is None]
    others = [one for one in node.parts if one.type not in ("socket", "gpu")]
    return replace(node, parts=(*inside, *outside, *others)) if devices else node


def _with_devices(node: Node, devices: Sequence[Device]) -> Iterator[Part]:
    """Yield each GPU with what the first device of its type, not yet used, says of it."""
    left = list(devices)
    for gpu in _single(node, "gpu"):
        model = str(gpu.metadata.get("model", "")).lower()
        device = next((one for one in left if one.model.lower() in ("", model)), Device("", "", ""))
        if device in left:
            left.remove(device)
        said = {"cores": device.cores, "file": device.file}
        yield replace(gpu, metadata={**gpu.metadata, **{key: value for key, value in said.items() if value}})


def _single(node: Node, kind: str) -> Iterator[Part]:
    for part in node.parts:
        if part.type == kind:
            yield from (replace(part, count=1, first=part.first + k) for k in range(part.count))


def _socket(cores: str, sizes: Mapping[int, int]) -> int | None:
    """Return the socket that has all of these cores, None if there is none, or sockets have not equally many."""
    each = set(sizes.values())
    if not cores or len(each) != 1 or not (size := each.pop()):
        return None
    found = {core // size for core in expand_ids(cores, _MOST_DEVICES) or ()}
    return found.pop() if len(found) == 1 and found <= sizes.keys() else None
