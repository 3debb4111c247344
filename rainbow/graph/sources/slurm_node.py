"""One node's record, whichever of Slurm's commands printed it, and how its fields are read.

Fields are called as in `scontrol show nodes --json`. Since 23.02 a number may be {"set", "infinite", "number"},
and what was a text with commas may be a list.

How many GPUs a node has, its record says. gres.conf adds to each its device file and its cores; a GPU whose cores are
all of one socket is below that socket, so that a job can ask for cores and GPUs of one socket.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rainbow.errors import GraphError, InputError
from rainbow.graph.document import LARGEST, LIMITS, Limits, step, text, whole
from rainbow.graph.formats import host_list
from rainbow.graph.sources.node_list import Node, Part, amount
from rainbow.graph.sources.slurm_topology import conf_lines
from rainbow.jobspec.hostlist import expand_ids

_CPUS = re.compile(r"(?:^|,)cpu=([0-9]{1,9})(?:,|$)")


def cores_of(record: Record, limits: Limits) -> tuple[Part, ...]:
    """Return the sockets with their cores; cores alone where sockets are not said, or cannot be equal."""
    sockets, each = _grid(record)
    limits.check("vertices", max(sockets, 1) * (1 + each), record.pointer)
    remaining = [each] * max(sockets, 1)
    for socket in _reserved(record, len(remaining), each, limits):
        remaining[socket] -= 1
    if not sum(remaining):
        raise GraphError("no core is left for jobs", pointer=record.pointer)
    if not sockets:
        return (Part("core", remaining[0]),)
    if min(remaining) == each:
        return (Part("socket", sockets, parts=(Part("core", each),)),)
    return tuple(Part("socket", first=n, parts=(Part("core", c),) if c else ()) for n, c in enumerate(remaining))


def _grid(record: Record) -> tuple[int, int]:
    """Return how many sockets, 0 for none, and how many cores in each: no more than CPUs are handed out."""
    sockets, each, cpus = (record.number(key, 1) for key in ("sockets", "cores", "cpus"))
    if sockets and each and (cpus is None or cpus >= sockets * each):
        return sockets, each
    if cpus is None:
        raise GraphError("a node must have cpus, or sockets and cores", pointer=record.pointer)
    if sockets and each:  # CPUs=8 for two sockets of 16 cores: Slurm hands out 8
        return (0, cpus) if cpus % sockets else (sockets, cpus // sockets)
    return 0, max(1, cpus // (record.number("threads", 1) or 1))


def _reserved(record: Record, sockets: int, each: int, limits: Limits) -> list[int]:
    """Return the socket of every core that is reserved: those listed, else as many as are said.

    Without a list Slurm takes the last core of the last socket first, then the last of the socket before, and on.
    """
    cores = sockets * each
    cpus = record.number("cpus") or cores
    threads = max(1, cpus // cores)
    if listed := record.said("specialized_cpus"):
        ids = expand_ids(listed, min(cores * threads, limits.vertices))
        if ids is None or max(ids) >= cores * threads:
            text = f'a list of CPUs reads like "0-1,31", all below {cores * threads}'
            raise GraphError(text, pointer=record.at("specialized_cpus"))
        return [core // each for core in {cpu // threads for cpu in ids}]
    effective = record.number("effective_cpus") or _in_tres(record) or cpus
    count = record.number("specialized_cores") or -(-(cpus - effective) // threads)
    return [sockets - 1 - taken % sockets for taken in range(min(max(count, 0), cores))]


def _in_tres(record: Record) -> int | None:
    """Return the CPUs for jobs as JSON before 23.02 has them: "cpu=29,mem=500G,billing=29"."""
    result = _CPUS.search(record.said("tres"))
    return int(result[1]) if result else None


_NOTHING = ("", "(null)", "N/A", "n/a", "None")
_LONGEST_LIST = 2**16


@dataclass(frozen=True)
class Record:
    """The fields of a node, where they stand, and the host lists of the nodes they describe."""

    fields: Mapping[str, Any]
    pointer: str
    names: list[str]

    def at(self, key: str) -> str:
        """The pointer of a field."""
        return step(self.pointer, key)

    def number(self, key: str, least: int = 0) -> int | None:
        """Return a whole number, None where it is absent or not set."""
        value, at = self.fields.get(key), self.at(key)
        if isinstance(value, Mapping):
            if value.get("set") is False:
                return None
            if value.get("infinite") is True:
                raise GraphError(f"{key} must not be infinite", pointer=at)
            value, at = value.get("number"), step(at, "number")
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(LARGEST)):
            value = int(value)
        return None if value is None or value in _NOTHING else whole(value, at, key, least)

    def words(self, key: str) -> list[str]:
        """Return a list of texts, or the parts of a text with commas."""
        value, at = self.fields.get(key), self.at(key)
        if value is None:
            return []
        if isinstance(value, str):
            value = text(value, at, key, _LONGEST_LIST).split(",")
        if not isinstance(value, list):
            raise GraphError(f"{key} must be a list or text", pointer=at)
        results = [text(word, step(at, place), key).strip() for place, word in enumerate(value)]
        return [word for word in results if word not in _NOTHING]

    def said(self, key: str) -> str:
        """Return a text, "" where there is none."""
        value = self.fields.get(key)
        said = text("" if value is None else value, self.at(key), key, _LONGEST_LIST).strip()
        return "" if said in _NOTHING else said


_ONE = re.compile(r"([^\s,:()]+)((?::[^\s,:()]*)*)(?:\(([^()]*)\))?(?:,|$)")
_COUNT = re.compile(r"([0-9]{1,16})([kKmMgGtTpP]?)")
_DEVICES = ("gpu", "mig")
_SHARING = ("shard", "mps")  # parts of the same GPUs: counted, they would be there twice
_TAKEN = ("cluster", "node", "socket", "core", "memory", "ssd")


class Gres(NamedTuple):
    """So many of a gres; `consumed` is False where jobs only want it to be there."""

    name: str
    model: str
    number: int
    consumed: bool
    affinity: str


def gres_of(record: Record) -> list[Gres]:
    """Read the field `gres`."""
    said, pointer = record.said("gres"), record.at("gres")
    gres: list[Gres] = []
    at = 0
    while at < len(said):
        one = _ONE.match(said, at)
        if one is None:
            raise GraphError('gres reads like "gpu:a100:4(S:0-1),nvme:1"', pointer=pointer)
        at = one.end()
        gres.append(_gres(one, pointer))
    return _once(gres, record.said("tres"))


_SLICE = re.compile(r"[0-9]+[cg]\.[0-9]+gb", re.ASCII | re.IGNORECASE)
_IN_TRES = re.compile(r"(?:^|,)gres/gpu=([0-9]{1,9})(?:,|$)")


def _once(printed: list[Gres], tres: str) -> list[Gres]:
    """Return each gres once: some versions print one twice, with its type repeated or without it."""
    result: list[Gres] = []
    for one in printed:
        words = one.model.split(":")
        model = words[0] if len(set(words)) == 1 else one.model
        one = one._replace(model=model, name="mig" if one.name == "gpu" and _SLICE.search(model) else one.name)
        if not any((o.name, o.model, o.number) == (one.name, one.model, one.number) for o in result):
            result.append(one)
    for bare in [one for one in result if not one.model]:
        typed = sum(one.number for one in result if one.name == bare.name and one.model)
        counted = _IN_TRES.search(tres) if bare.name == "gpu" else None
        if typed and (int(counted[1]) == typed if counted else typed == bare.number):
            result.remove(bare)
    return result


def _gres(one: re.Match[str], pointer: str) -> Gres:
    words = [word for word in one[2].split(":") if word]
    consumed = "no_consume" not in words
    words = [word for word in words if word != "no_consume"]
    number = _COUNT.fullmatch(words[-1]) if words else None
    count = int(number[1]) * 1024 ** " kmgtp".index(number[2].lower() or " ") if number else 1
    if count > LARGEST:
        raise GraphError(f"there cannot be more than {LARGEST} of a gres", pointer=pointer)
    if one[1] in _TAKEN:
        raise GraphError(f"a gres cannot be called {one[1]}", pointer=pointer)
    return Gres(one[1], ":".join(words[:-1] if number else words), count, consumed, one[3] or "")


def parts_of(gres: list[Gres], record: Record, limits: Limits) -> tuple[Part, ...]:
    """Return a vertex for every GPU, and one of that size for every other gres that is consumed."""
    parts: list[Part] = []
    counted: dict[str, int] = {}
    for one in gres:
        if not one.number or not one.consumed or one.name in _SHARING:
            continue
        first = counted.get(one.name, 0)
        many = one.number if one.name in _DEVICES else 1
        limits.check("vertices", many, record.at("gres"))
        counted[one.name] = first + many
        size = 1 if one.name in _DEVICES else one.number
        parts.append(Part(one.name, many, first, size, metadata=_described(one)))
    return tuple(parts)


def _described(one: Gres) -> dict[str, Any]:
    described = {"model": one.model, "affinity": one.affinity}
    return {key: value for key, value in described.items() if value}


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
    threads = {"threads": threads} if (threads := threads_of_core(record)) > 1 else {}
    return Node("", parts, record.pointer, _properties(record, gres), metadata={**threads, **reason})


def threads_of_core(record: Record) -> int:
    """Return the hardware threads of a core that Slurm hands out."""
    sockets, each = _grid(record)
    cores, cpus = max(sockets, 1) * each, record.number("cpus", 1)
    threads = record.number("threads", 1) or 1
    return threads if cpus is None else max(1, min(threads, cpus // cores))


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
    results = [state.strip("~#!%$@^-") for state in states]
    down = [state for state in dict.fromkeys(results) if state in _DOWN]
    if not down:
        return {}
    reason = record.said("reason")[:_LONGEST_REASON]
    return {"unavailable": f"{'+'.join(down)}: {reason}" if reason else "+".join(down)}


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
    result: dict[str, list[Device]] = {}
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
            result.setdefault(host, []).extend(devices)
    return result


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
    remaining = list(devices)
    for gpu in _single(node, "gpu"):
        model = str(gpu.metadata.get("model", "")).lower()
        device = next((one for one in remaining if one.model.lower() in ("", model)), Device("", "", ""))
        if device in remaining:
            remaining.remove(device)
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
    results = {core // size for core in expand_ids(cores, _MOST_DEVICES) or ()}
    return results.pop() if len(results) == 1 and results <= sizes.keys() else None
