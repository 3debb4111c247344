"""A graph in plain form, which every accepted form becomes before it is checked, and the limits of its size.

pointer   JSON Pointer (RFC 6901) into the document as it was sent; the pointer of the whole is ""
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rainbow.errors import GraphError, LimitError

CONTAINMENT = "containment"  # the subsystem of an edge that names none
CONTAINS = "contains"  # the relation of an edge that names none
IN = "in"  # the same seen from below: redundant
LONGEST = 1024  # characters of a name; templates and host lists repeat it
LARGEST = 2**53  # the largest integer every JSON reader keeps exact


class Vertex(NamedTuple):
    """A vertex, its metadata not yet checked; `fields` points at the mapping that holds the metadata."""

    id: str
    label: str
    metadata: Mapping[str, Any]
    pointer: str
    fields: str


class Edge(NamedTuple):
    """An edge; only those of relation "contains" build a graph. `place` is its index in the document."""

    source: str
    target: str
    relation: str
    subsystem: str
    place: int


@dataclass(frozen=True, slots=True)
class Document:
    """A graph as it was sent; `name` is "" where the document gives none."""

    name: str
    vertices: Sequence[Vertex]
    vertices_at: str
    edges: Sequence[Edge] = ()
    edges_at: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)  # of the graph itself, not yet checked
    metadata_at: str = ""

    def edge_at(self, edge: Edge) -> str:
        """The pointer of an edge."""
        return f"{self.edges_at}/{edge.place}"

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Let faults of a vertex name it: who built the graph knows its ids, not its pointers."""
        try:
            yield
        except GraphError as fault:
            at = fault.pointer or ""
            results = [
                v for v in self.vertices if at == v.pointer or at.startswith((f"{v.pointer}/", f"{v.fields}/"))
            ]
            if len(results) != 1 or short(results[0].id) in fault.message:
                raise
            raise GraphError(f"vertex {short(results[0].id)}: {fault.message}", pointer=at) from None


def step(pointer: str, key: str | int) -> str:
    """Go one step down a JSON Pointer.

    >>> step("/graph/nodes", "a/b")
    '/graph/nodes/a~1b'
    """
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def short(text: str) -> str:
    """Quote a name a user gave, cut to a length fit for a message."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def given(fields: Mapping[str, Any], key: str, default: Any) -> Any:
    """Return a field, or `default` where it is absent, null or the empty text."""
    value = fields.get(key)
    return default if value is None or (isinstance(value, str) and not value) else value


def mapping(value: Any, pointer: str, what: str) -> Mapping[str, Any]:
    """Return a mapping, or raise GraphError."""
    if not isinstance(value, Mapping):
        raise GraphError(f"{what} must be a mapping", pointer=pointer)
    return value


def sequence(value: Any, pointer: str, what: str) -> Sequence[Any]:
    """Return a list, or raise GraphError."""
    if not isinstance(value, (list, tuple)):
        raise GraphError(f"{what} must be a list", pointer=pointer)
    return value


def text(value: Any, pointer: str, what: str, longest: int = LONGEST) -> str:
    """Return a text that can be stored and shown, or raise GraphError (LimitError if it is too long)."""
    if not isinstance(value, str):
        raise GraphError(f"{what} must be text", pointer=pointer)
    if len(value) > longest:
        raise LimitError(f"{what} exceeds {longest} characters", pointer=pointer, limit="text", allowed=longest)
    # half a surrogate pair is legal in JSON and cannot be written as UTF-8
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise GraphError(f"{what} must be text that Unicode allows", pointer=pointer)
    return value


def whole(value: Any, pointer: str, what: str, least: int = 1) -> int:
    """Return an integer from `least` to 2**53 (true and 1.0 are none), or raise GraphError."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST:
        raise GraphError(f"{what} must be an integer between {least} and {LARGEST}", pointer=pointer)
    return value


def identity(value: Any, pointer: str) -> str:
    """Return an id as text: documents write 1 and "1" for the same vertex."""
    if isinstance(value, str) and value:
        return text(value, pointer, "an id")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST:
        return str(value)
    raise GraphError(f"an id must be text (not empty) or an integer, got {_printed(value)}", pointer=pointer)


def _printed(value: Any) -> str:
    try:
        return f"{value!r:.40}"
    except ValueError:  # Python prints no number of more than 4,300 digits
        return f"a long {type(value).__name__}"


def name_of(fields: Mapping[str, Any], pointer: str) -> str:
    """Return the name a document gives its graph, "" if it gives none."""
    return text(given(fields, "name", ""), f"{pointer}/name", "the name of a graph")


def directed(fields: Mapping[str, Any], pointer: str, listed: Any) -> None:
    """Refuse a graph that says its edges have no direction, unless each names its relation, from source to target."""
    if fields.get("directed") is False and not (isinstance(listed, list) and listed and all(map(_relates, listed))):
        text = 'the graph must be directed, or each edge must name its relation ("contains")'
        raise GraphError(text, pointer=f"{pointer}/directed")


def _relates(item: Any) -> bool:
    """Return whether an edge names its relation."""
    inside = item.get("metadata") if isinstance(item, Mapping) else None
    named = inside if isinstance(inside, Mapping) else {}
    keys = ("relation", "relationship")
    return isinstance(item, Mapping) and bool(named.get("name") or any(item.get(k) or named.get(k) for k in keys))


def edges(items: Any, pointer: str, limits: Limits) -> list[Edge]:
    """Read the list of edges, in which all JSON forms agree; no list is an empty one."""
    results = sequence([] if items is None else items, pointer, "the edges")
    limits.check("edges", len(results), pointer)
    return [edge(item, f"{pointer}/{place}", place) for place, item in enumerate(results)]


def edge(item: Any, pointer: str, place: int) -> Edge:
    """Read one edge: its relation and subsystem are in it or in its metadata."""
    item = mapping(item, pointer, "an edge")
    source = identity(item.get("source"), f"{pointer}/source")
    target = identity(item.get("target"), f"{pointer}/target")
    metadata = mapping(given(item, "metadata", {}), f"{pointer}/metadata", "the metadata of an edge")
    if isinstance(names := metadata.get("name"), Mapping) and names:
        relation, subsystem = _by_subsystem(names, f"{pointer}/metadata/name")
    else:
        relation = _said("relation", item, metadata, pointer) or _said("relationship", item, metadata, pointer)
        subsystem = _said("subsystem", item, metadata, pointer)
    return Edge(source, target, relation or CONTAINS, subsystem or CONTAINMENT, place)


def _said(key: str, item: Mapping[str, Any], metadata: Mapping[str, Any], pointer: str) -> str:
    if item.get(key) is not None:
        return text(item[key], f"{pointer}/{key}", f"the {key} of an edge")
    if metadata.get(key) is not None:
        return text(metadata[key], f"{pointer}/metadata/{key}", f"the {key} of an edge")
    return ""


def _by_subsystem(names: Mapping[Any, Any], pointer: str) -> tuple[str, str]:
    """Read how Flux wrote an edge until 2023: {"name": {"containment": "contains"}}."""
    key = CONTAINMENT if CONTAINMENT in names else next(iter(names))
    subsystem = text(key, pointer, "the subsystem of an edge")
    return text(names[key], step(pointer, subsystem), "the relation of an edge"), subsystem


@dataclass(frozen=True, slots=True)
class Limits:
    """The most of everything a graph may have. Templates count as what they stand for."""

    vertices: int = 2_000_000
    edges: int = 8_000_000  # of a subsystem also: how many times its vertices may be attached
    depth: int = 10_000  # vertices on the way from the root down
    templates: int = 64  # one inside the other: each lengthens the ids of all copies in it

    def check(self, limit: str, count: int, pointer: str) -> None:
        """Raise LimitError, naming the limit, if `count` is more than it allows."""
        allowed = getattr(self, limit)
        if count > allowed:
            text = f"graph exceeds the limit {limit} ({allowed})"
            raise LimitError(text, pointer=pointer, limit=limit, allowed=allowed)


LIMITS = Limits()
