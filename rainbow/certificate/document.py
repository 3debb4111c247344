"""Certificates and what others hold, as JSON documents: read with a pointer to each fault, and written.

{"version": 1, "graph": 12, "variant": 0, "rows": [[0, -1, "at", "n0", 0], [1, 0, "of", "core0", 4]]}
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from rainbow.errors import InputError

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Resource

VERSION = 1
MOST_ROWS = 1_000_000
HOW = ("at", "on", "all", "of")
KEYS = ("version", "graph", "variant", "rows", "requests")  # `requests` names them for people, and proves nothing
MOST_STORED = 10_000  # rows; of more a digest is kept


class Row(NamedTuple):
    """One line: request number, row above (-1: none), "at", "on", "all" or "of", vertex, base units."""

    request: int
    up: int
    how: str
    vertex: str | None
    amount: int


class Certificate(NamedTuple):
    """The rows of one variant; `graph` is the revision of the graph that they hold for."""

    variant: int
    rows: tuple[Row, ...]
    graph: int | None = None


class Stored(NamedTuple):
    """What a store keeps of a start's check; of very many rows, or without any, the certificate is None."""

    certificate: Certificate | None
    rows: int
    slots: int
    graph: int | None
    milliseconds: float
    sha256: str = ""


def folded(certificate: Certificate, milliseconds: float) -> bytes:
    """Write a certificate as a store keeps it, compressed: rows of equal nodes take a few bytes each."""
    rows = [list(row) for row in certificate.rows]
    slots, digest = sum(row.how == "at" for row in certificate.rows), ""
    stored: Any = rows
    if len(rows) > MOST_STORED:
        digest, stored = hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest(), None
    content = [certificate.graph, certificate.variant, len(rows), slots, milliseconds, digest, stored]
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode())


def unfolded(content: bytes) -> Stored:
    """Read what a store keeps.

    >>> one = Certificate(0, (Row(0, -1, "at", "n0", 0), Row(1, 0, "of", "core0", 4)), 12)
    >>> unfolded(folded(one, 0.1)) == Stored(one, 2, 1, 12, 0.1)
    True
    """
    graph, variant, rows, slots, milliseconds, digest, stored = json.loads(zlib.decompress(content))
    certificate = None if stored is None else Certificate(variant, tuple(Row(*row) for row in stored), graph)
    return Stored(certificate, rows, slots, graph, milliseconds, digest)


def names_of(trees: Sequence[Resource]) -> list[str]:
    """Name the requests of a variant in the order of their numbers: "slot run", "core × 4".

    >>> from rainbow.jobspec import Count, Resource
    >>> names_of([Resource("slot", label="run", children=(Resource("core", Count(4, 4)),))])
    ['slot run', 'core × 4']
    """
    parts = [part for tree in trees for part in tree.walk()]
    counted = ["" if part.is_slot or part.count.min == 1 else f" × {part.count.min} {part.unit}" for part in parts]
    called = [f"slot {part.label}".strip() if part.is_slot else part.type for part in parts]
    return [f"{name}{many}".strip() for name, many in zip(called, counted, strict=True)]


def written(certificate: Certificate) -> dict[str, Any]:
    """Write a certificate as a JSON document."""
    return {
        "version": VERSION,
        "graph": certificate.graph,
        "variant": certificate.variant,
        "rows": [list(row) for row in certificate.rows],
    }


def read_certificate(document: Any) -> Certificate:
    """Read a certificate; InputError with a JSON Pointer to the first fault."""
    if not isinstance(document, Mapping):
        raise InputError("a certificate is a mapping with version, variant and rows", pointer="")
    unknown = next((key for key in document if key not in KEYS), None)
    if unknown is not None:
        raise InputError(f"a certificate has no {str(unknown)[:60]}", pointer=f"/{str(unknown)[:60]}")
    if document.get("version", VERSION) != VERSION or isinstance(document.get("version"), bool):
        raise InputError(f"this certificate is not of version {VERSION}", pointer="/version")
    graph = document.get("graph")
    if graph is not None:
        _whole(graph, "/graph")
    rows = document.get("rows")
    if not isinstance(rows, list):
        raise InputError("rows must be a list", pointer="/rows")
    if len(rows) > MOST_ROWS:
        raise InputError(f"{len(rows)} rows, at most {MOST_ROWS} are read", pointer="/rows")
    variant = _whole(document.get("variant", 0), "/variant")
    return Certificate(variant, tuple(_row(row, n) for n, row in enumerate(rows)), graph)


def _row(row: Any, n: int) -> Row:
    at = f"/rows/{n}"
    if not isinstance(row, list) or len(row) != len(Row._fields):
        raise InputError("a row is [request, up, how, vertex, amount]", pointer=at)
    request, up, how, vertex, amount = row
    _whole(request, f"{at}/0")
    if isinstance(up, bool) or not isinstance(up, int) or not -1 <= up < n:
        raise InputError(f"{str(up)[:60]} is no earlier row", pointer=f"{at}/1")
    if how not in HOW:
        raise InputError(f"{str(how)[:60]} is none of {', '.join(HOW)}", pointer=f"{at}/2")
    if not (isinstance(vertex, str) or (vertex is None and how == "at")):
        raise InputError("a vertex is the id of one, or null for a slot without a place", pointer=f"{at}/3")
    _whole(amount, f"{at}/4", least=1 if how in ("all", "of") else 0)
    return Row(request, up, how, vertex, amount)


def _whole(value: Any, pointer: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"expected a whole number of at least {least}, got {str(value)[:60]}", pointer=pointer)
    return value


def read_held(document: Any, cluster: Cluster) -> dict[str, int | None]:
    """Read what others hold, {vertex: base units, or null for all of it}; InputError with a JSON Pointer."""
    if not isinstance(document, Mapping):
        raise InputError("what others hold is a mapping {vertex: amount, or null for all of it}", pointer="/held")
    held: dict[str, int | None] = {}
    for vertex, amount in document.items():
        at = f"/held/{str(vertex)[:60]}"
        if vertex not in cluster.graph:
            near = get_close_matches(str(vertex)[:60], list(cluster.graph), n=1)
            raise InputError(f"no such vertex{f'; {near[0]}?' if near else ''}", pointer=at)
        held[vertex] = amount if amount is None else _whole(amount, at, least=1)
    return held
