"""The graph of a single machine, from its own description or from `lstopo --of xml` (hwloc 1 and 2).

cluster > node > socket > core, gpu, memory.

A GPU is seen by several libraries; the one that sees most of them is believed. Hardware threads are not vertices.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any
from xml.etree import ElementTree

from rainbow.errors import GraphError
from rainbow.graph.document import LARGEST, LIMITS, Limits, given, mapping, whole
from rainbow.graph.document import text as text_of
from rainbow.graph.sources.node_list import Node, Part, amount, decode, lay_out

_GPU = re.compile(r"(cuda|nvml|rsmi|ze|opencl\d+d)\d+")
_MIB = 2**20


def read_hwloc(text: str, limits: Limits = LIMITS) -> dict[str, Any]:
    """Turn the XML of `lstopo` into a document of one node."""
    machine = _machine(text)
    sockets = [*machine.iterfind(".//object[@type='Package']"), *machine.iterfind(".//object[@type='Socket']")]
    allowed = _allowed(machine)
    cores = [_cores(socket, limits, allowed) for socket in sockets] or [_cores(machine, limits, allowed)]
    if not any(cores):
        raise GraphError("there is no core in it", line=1, column=1)
    gpus = _gpus(machine)
    parts = (
        *_sockets(cores, bool(sockets)),
        *((Part("gpu", gpus),) if gpus else ()),
        *amount("memory", _memory(machine), "MiB"),
    )
    return lay_out([Node(_host(machine), parts, "/topology")], limits)


def _machine(said: str) -> ElementTree.Element:
    if "<!ENTITY" in said:  # hwloc writes none; they are how a short text becomes a long one
        raise GraphError("hwloc has no entities", line=1, column=1)
    try:
        root = ElementTree.fromstring(said.removeprefix("\ufeff"))  # noqa: S314 - without entities there is no bomb
    except ElementTree.ParseError as error:
        line, column = error.position
        raise GraphError(f"this is not XML: {error.msg}", line=line, column=column + 1) from error
    except ValueError as error:  # NUL, or half a character
        raise GraphError("this is not XML: it has characters that no text has", line=1, column=1) from error
    machine = root.find("object[@type='Machine']") if root.tag == "topology" else None
    if machine is None:
        raise GraphError("this is no output of lstopo: there is no machine", line=1, column=1)
    return machine


def _allowed(machine: ElementTree.Element) -> int | None:
    """Return the set of PUs that this machine may use, as a number of bits; None where all are."""
    words = [word for word in (machine.get("allowed_cpuset") or "").split(",") if word]
    if not words or any(not re.fullmatch(r"0x[0-9a-fA-F]{1,8}|", word) for word in words):
        return None
    result = 0
    for word in words:  # 32 bits each, the highest first
        result = (result << 32) | int(word, 16)
    return result


def _cores(element: ElementTree.Element, limits: Limits, allowed: int | None) -> int:
    """Count the cores of which some PU may be used."""
    cores = element.findall(".//object[@type='Core']") or element.findall(".//object[@type='PU']")
    limits.check("vertices", len(cores), "/topology")
    return len(cores) if allowed is None else sum(1 for core in cores if _is_allowed(core, allowed))


def _is_allowed(core: ElementTree.Element, allowed: int) -> bool:
    units = core.findall(".//object[@type='PU']") or [core]
    numbers = [unit.get("os_index", "") for unit in units]
    return any(not number.isdecimal() or bool(allowed >> min(int(number), 2**16) & 1) for number in numbers)


def _sockets(cores: list[int], named: bool) -> tuple[Part, ...]:
    if not named:
        return (Part("core", cores[0]),)
    if len(set(cores)) == 1:
        return (Part("socket", len(cores), parts=(Part("core", cores[0]),)),)
    return tuple(
        Part("socket", first=number, parts=(Part("core", many),) if many else ()) for number, many in enumerate(cores)
    )


_NVIDIA, _AMD, _INTEL = ("cuda", "nvml"), ("rsmi", "opencl"), ("ze",)


def _gpus(machine: ElementTree.Element) -> int:
    """Count GPUs: each PCI address once; those without one by maker, as the interface that shows most of them."""
    addresses: set[str] = set()
    loose: Counter[str] = Counter()
    above = {one: device for device in machine.iterfind(".//object[@type='PCIDev']") for one in device.iter()}
    for one in machine.iterfind(".//object[@type='OSDev']"):
        match = _GPU.fullmatch(one.get("name", ""))
        address = above[one].get("pci_busid", "") if one in above else ""
        if match and address:
            addresses.add(address)
        elif match:
            loose[re.sub(r"\d.*", "", match[1])] += 1
    if loose["cuda"] or loose["nvml"]:
        inside = [device for device in set(above.values()) if not device.get("pci_busid")]
        loose["opencl"] = min(loose["opencl"], sum(1 for device in inside if _shows_opencl_alone(device)))
    makers = (_NVIDIA, _AMD, _INTEL)
    return len(addresses) + sum(max(loose[interface] for interface in maker) for maker in makers)


def _shows_opencl_alone(device: ElementTree.Element) -> bool:
    """Return whether OpenCL shows a device that CUDA does not: it is of another maker."""
    names = [one.get("name", "") for one in device.iterfind(".//object[@type='OSDev']")]
    return any(name.startswith("opencl") for name in names) and not any(name.startswith(_NVIDIA) for name in names)


def _memory(machine: ElementTree.Element) -> int:
    total = 0
    for element in (machine, *machine.iterfind(".//object[@type='NUMANode']")):
        said = element.get("local_memory", "0")
        if not (said.isascii() and said.isdigit()) or len(said) > len(str(LARGEST)):
            raise GraphError("local_memory must be a number of bytes", line=1, column=1)
        total += int(said)
    return total // _MIB


def _host(machine: ElementTree.Element) -> str:
    result = machine.find("info[@name='HostName']")
    host = result.get("value", "") if result is not None else ""
    return text_of(host or "node0", "/topology", "the name of the host")


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
