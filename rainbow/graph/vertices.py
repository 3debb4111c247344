"""The attributes of a vertex, checked: what graph/cluster.py documents, from what a document gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rainbow.errors import GraphError
from rainbow.graph.document import Document, Vertex, given, identity, mapping, short, step, text, whole
from rainbow.graph.outline import Fields

_LONGEST_PATH = 2**20


def check_vertices(document: Document) -> dict[str, Vertex]:
    """Return the vertices by id; GraphError for none at all and for an id used twice."""
    found: dict[str, Vertex] = {}
    for vertex in document.vertices:
        if vertex.id in found:
            first = found[vertex.id].pointer
            raise GraphError(f"the id {short(vertex.id)} is used twice, first at {first}", pointer=vertex.pointer)
        found[vertex.id] = vertex
    if not found:
        raise GraphError("the graph has no vertices", pointer=document.vertices_at)
    return found


def attributes(vertex: Vertex) -> Fields:
    """Return the attributes of a vertex; `path` is "" where the document gives none."""
    fields, at = vertex.metadata, vertex.fields
    kind = text(fields.get("type"), f"{at}/type", "the type of a vertex")
    if not kind:
        raise GraphError("the type of a vertex must not be empty", pointer=f"{at}/type")
    return Fields(
        kind,
        whole(fields["size"], f"{at}/size", "the size of a vertex") if "size" in fields else 1,
        text(given(fields, "unit", ""), f"{at}/unit", "the unit of a vertex"),
        _name(vertex),
        _path(fields, f"{at}/paths"),
        _rank(fields.get("rank"), f"{at}/rank"),
        _properties(fields.get("properties"), f"{at}/properties"),
        fields,
    )


def _name(vertex: Vertex) -> str:
    """Name a vertex as its metadata does, else by its label, else basename and id (node3), else by its id."""
    fields, at = vertex.metadata, vertex.fields
    name = text(given(fields, "name", ""), f"{at}/name", "the name of a vertex")
    basename = text(given(fields, "basename", ""), f"{at}/basename", "the basename of a vertex")
    if name or vertex.label:
        return name or vertex.label
    number = given(fields, "id", None)
    return vertex.id if not basename or number is None else basename + identity(number, f"{at}/id")


def _path(fields: Mapping[str, Any], pointer: str) -> str:
    paths = mapping(given(fields, "paths", {}), pointer, "paths")
    return text(given(paths, "containment", ""), f"{pointer}/containment", "the path of a vertex", _LONGEST_PATH)


def _rank(rank: Any, pointer: str) -> int | None:
    if rank is None:
        return None
    number = whole(rank, pointer, "the rank of a vertex", least=-1)  # -1: how Flux writes "none"
    return None if number == -1 else number


def _properties(properties: Any, pointer: str) -> frozenset[str]:
    """Read the names of properties (RFC 31): the keys of a mapping, or a list."""
    if properties is None:
        return frozenset()
    if not isinstance(properties, (Mapping, list, tuple, set, frozenset)):
        raise GraphError("properties must be a mapping or a list of names", pointer=pointer)
    names: Iterable[Any] = properties
    return frozenset(
        text(name, step(pointer, place) if isinstance(properties, (list, tuple)) else pointer, "a property")
        for place, name in enumerate(names)
    )
