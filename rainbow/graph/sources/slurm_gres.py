"""Generic resources (gres) of Slurm: "gpu:a100:4(S:0-1),nvme:1,lustre:no_consume:4G"."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from rainbow.errors import GraphError
from rainbow.graph.document import LARGEST
from rainbow.graph.limits import Limits
from rainbow.graph.sources.nodes import Part
from rainbow.graph.sources.slurm_fields import Record

_ONE = re.compile(r"([^\s,:()]+)((?::[^\s,:()]*)*)(?:\(([^()]*)\))?(?:,|$)")
_COUNT = re.compile(r"([0-9]{1,16})([kKmMgGtTpP]?)")
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
    found: list[Gres] = []
    at = 0
    while at < len(said):
        one = _ONE.match(said, at)
        if one is None:
            raise GraphError('gres reads like "gpu:a100:4(S:0-1),nvme:1"', pointer=pointer)
        at = one.end()
        found.append(_gres(one, pointer))
    return found


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
        many = one.number if one.name == "gpu" else 1
        limits.check("vertices", many, record.at("gres"))
        counted[one.name] = first + many
        size = 1 if one.name == "gpu" else one.number
        parts.append(Part(one.name, many, first, size, metadata=_described(one)))
    return tuple(parts)


def _described(one: Gres) -> dict[str, Any]:
    described = {"model": one.model, "affinity": one.affinity}
    return {key: value for key, value in described.items() if value}
