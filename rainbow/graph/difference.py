"""The changes (delta.py) that make one JGF document into another: a large graph is not sent anew for one node."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rainbow.graph.delta import contained

MOST = 200  # vertices that are not as they were; of more the whole graph is sooner read than changes are applied
_BY_OP = {"properties": "set", "size": "resize"}
_ABSENT = object()


class _Parts(NamedTuple):
    nodes: Mapping[str, Any]
    edges: Sequence[Mapping[str, Any]]
    rest: tuple[Any, Any]


def changes_between(before: Any, after: Any) -> list[dict[str, Any]] | None:
    """Return what makes `before` into `after`, but for the order of edges; None where no changes can say it.

    >>> one, two = ({"graph": {"nodes": {"n": {"metadata": {"size": size}}}, "edges": []}} for size in (1, 2))
    >>> changes_between(one, two)
    [{'op': 'resize', 'vertex': 'n', 'size': 2}]
    """
    old, new = _parts(before), _parts(after)
    if old is None or new is None or old.rest != new.rest:
        return None
    altered = {vertex: _altered(vertex, node, new.nodes.get(vertex)) for vertex, node in old.nodes.items()}
    if sum(ops != [] for ops in altered.values()) > MOST:
        return None
    removed, gone = _removed(old, [vertex for vertex, ops in altered.items() if ops is None])
    edges = _more_edges(old, new, gone)
    if edges is None or len(gone) == len(old.nodes):
        return None
    nodes = {vertex: node for vertex, node in new.nodes.items() if vertex in gone or vertex not in old.nodes}
    changed = [op for vertex, ops in altered.items() if vertex not in gone for op in ops or ()]
    return removed + changed + ([{"op": "add", "nodes": nodes, "edges": edges}] if nodes or edges else [])


def _parts(document: Any) -> _Parts | None:
    graph = document.get("graph") if isinstance(document, Mapping) else None
    if not isinstance(graph, Mapping) or not isinstance(graph.get("nodes"), Mapping):
        return None
    around = {key: value for key, value in document.items() if key != "graph"}
    within = {key: value for key, value in graph.items() if key not in ("nodes", "edges")}
    return _Parts(graph["nodes"], graph.get("edges") or [], (around, within))


def _altered(vertex: str, before: Any, after: Any) -> list[dict[str, Any]] | None:
    """Return what changes a vertex; None if it must be removed, and perhaps added again."""
    if after is None or {**before, "metadata": None} != {**after, "metadata": None}:
        return None
    old, new = before.get("metadata") or {}, after.get("metadata") or {}
    differ = [key for key in {**old, **new} if old.get(key, _ABSENT) != new.get(key, _ABSENT)]
    if not all(key in _BY_OP and key in new for key in differ):
        return None
    return [{"op": _BY_OP[key], "vertex": vertex, key: new[key]} for key in differ]


def _removed(old: _Parts, unlike: Sequence[str]) -> tuple[list[dict[str, Any]], set[str]]:
    """Return the removals, and all they take with them."""
    removed: list[dict[str, Any]] = []
    gone: set[str] = set()
    for vertex in unlike:
        if vertex not in gone:
            gone |= contained(old.edges, [vertex])
            removed.append({"op": "remove", "vertex": vertex})
    return removed, gone & set(old.nodes)


def _more_edges(old: _Parts, new: _Parts, gone: set[str]) -> list[Any] | None:
    """Return the edges to add; None if one would have to go whose ends stay."""
    stay = Counter(
        _text(e) for e in old.edges if str(e.get("source")) not in gone and str(e.get("target")) not in gone
    )
    given = {_text(edge): edge for edge in new.edges}
    more = Counter(map(_text, new.edges))
    return None if stay - more else [given[text] for text in (more - stay).elements()]


def _text(edge: Mapping[str, Any]) -> str:
    return json.dumps(edge, sort_keys=True)
