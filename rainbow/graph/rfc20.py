"""R, version 1 (Flux RFC 20): what Flux says a job or an instance holds → Draft."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rainbow.errors import GraphError
from rainbow.graph.draft import Draft, DraftEdge, DraftVertex, Limits, mapping, within
from rainbow.jobspec.names import expand_hosts, expand_ids


def from_r(document: Mapping[str, Any], limits: Limits) -> Draft:
    """Read R_lite: one node for each rank, its children numbered as there, under one cluster vertex."""
    execution = mapping(document.get("execution"), "execution", "/execution")
    lite = execution.get("R_lite")
    if not isinstance(lite, list) or not lite:
        raise GraphError("R_lite must be a list with at least one entry", pointer="/execution/R_lite")
    draft = Draft([DraftVertex("cluster0", {"type": "cluster", "name": "cluster0"}, "", "/execution")])
    hosts = list(_hosts(execution.get("nodelist", []), limits))
    properties = _properties(execution.get("properties", {}), limits)
    for k, entry in enumerate(lite):
        at = f"/execution/R_lite/{k}"
        record = mapping(entry, "an entry of R_lite", at)
        for rank in _ids(record.get("rank"), f"{at}/rank", limits):
            _add_node(draft, rank, properties.get(rank, {}), record.get("children", {}), at, limits)
    return _named(draft, hosts)


def _named(draft: Draft, hosts: list[str]) -> Draft:
    """Give the nodes their host names: the nodelist names ranks in ascending order (RFC 20)."""
    nodes = sorted((v for v in draft.vertices if v.metadata["type"] == "node"), key=lambda v: v.metadata["rank"])
    if hosts and len(hosts) != len(nodes):
        raise GraphError(f"{len(hosts)} hosts for {len(nodes)} ranks", pointer="/execution/nodelist")
    names = {v.id: host for v, host in zip(nodes, hosts, strict=False)}
    named = [v._replace(metadata={**v.metadata, "name": names.get(v.id, v.metadata["name"])}) for v in draft.vertices]
    return Draft(named, draft.edges, draft.name)


def _add_node(draft: Draft, rank: int, properties: dict[str, str], children: Any, at: str, limits: Limits) -> None:
    node = f"rank{rank}"
    metadata = {"type": "node", "name": f"node{rank}", "rank": rank, "properties": properties}
    draft.vertices.append(DraftVertex(node, metadata, "", at))
    draft.edges.append(DraftEdge("cluster0", node, True, at))
    for kind, ids in mapping(children, "children", f"{at}/children").items():
        for number in _ids(ids, f"{at}/children/{kind}", limits):
            child = f"{node}/{kind}{number}"
            draft.vertices.append(
                DraftVertex(child, {"type": kind, "name": f"{kind}{number}"}, "", f"{at}/children/{kind}")
            )
            draft.edges.append(DraftEdge(node, child, True, at))
    within(len(draft.vertices), limits.vertices, "vertices", at)


def _ids(value: Any, pointer: str, limits: Limits) -> list[int]:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    ids = expand_ids(text, limits.vertices) if isinstance(text, str) else None
    if ids is None:
        raise GraphError('an idset reads like "0-3,7"', pointer=pointer)
    return ids


def _hosts(nodelist: Any, limits: Limits) -> Iterator[str]:
    texts = nodelist if isinstance(nodelist, list) else [nodelist]
    for k, text in enumerate(texts):
        names = expand_hosts(text, limits.vertices) if isinstance(text, str) else None
        if names is None:
            raise GraphError('a hostlist reads like "node[0-3,7]"', pointer=f"/execution/nodelist/{k}")
        yield from names


def _properties(value: Any, limits: Limits) -> dict[int, dict[str, str]]:
    """{rank: its properties} from {property: ranks}."""
    ranks: dict[int, dict[str, str]] = {}
    for name, ids in mapping(value, "properties", "/execution/properties").items():
        for rank in _ids(ids, f"/execution/properties/{name}", limits):
            ranks.setdefault(rank, {})[str(name)] = ""
    return ranks
