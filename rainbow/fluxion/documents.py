"""A cluster as JGF and a request as a canonical jobspec, both in base units; and what Fluxion allocated, read.

Vertices are called by their position in the layout (`uniq_id`); the k-th worker has rank k, and what is in it is
numbered by type, as R numbers it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rainbow.errors import JobspecError
from rainbow.jobspec.handover import handover
from rainbow.jobspec.hostlist import expand_ids
from rainbow.matching.model.layout import OUTSIDE, ClusterLayout

if TYPE_CHECKING:
    from rainbow.jobspec import Count, Request, Resource

IN_R = ("core", "gpu")  # the types whose ids R has; what else a node gives it does not say
SLOT = "slot"


class NotAllocated(ValueError):
    """What the library returned is no set of resources of this graph."""


# ── written ──


def graph_of(laid_out: ClusterLayout, workers: Collection[str] | None = None) -> str:
    """Write a cluster as Fluxion reads it; with `workers` only these, and what lies outside all."""
    ranks = {start: rank for rank, start in enumerate(sorted(laid_out.workers))}
    nodes, edges, paths, counts = [], [], dict[int, str](), Counter[tuple[int, str]]()
    for i, kind in enumerate(laid_out.types):
        start, above = laid_out.worker[i], laid_out.parents[i]
        if workers is not None and start != OUTSIDE and laid_out.worker_names[start] not in workers:
            continue
        number = counts[start, kind] if start != i else ranks[i]
        counts[start, kind] += 1
        name = f"{kind}{number}" if start != OUTSIDE else f"{kind}{i}"
        paths[i] = f"{paths.get(above, '')}/{name}"
        described = {
            "type": kind,
            "basename": kind,
            "name": name,
            "id": number,
            "uniq_id": i,
            "unit": "",
            "exclusive": False,
        }
        described |= {"size": laid_out.amount(i), "rank": ranks.get(start, -1), "paths": {"containment": paths[i]}}
        nodes.append({"id": str(i), "metadata": described})
        if above in paths and above != i:
            edges.append({"source": str(above), "target": str(i), "metadata": {"subsystem": "containment"}})
    return json.dumps({"graph": {"nodes": nodes, "edges": edges}})


def jobspec_of(request: Request, resources: Sequence[Resource]) -> str:
    """Write one variant of a request as a canonical jobspec; JobspecError names what Fluxion cannot be asked for."""
    named = sorted({need.subsystem for resource in resources for part in resource.walk() for need in part.needs})
    if named:
        text = f"backend fluxion: requirements of subsystems ({', '.join(named)}) cannot be put to Fluxion; use index"
        raise JobspecError(text, pointer="/resources")
    parts = [_part(resource, is_in_slot=False) for resource in resources]
    labels = [part.label or "default" for resource in resources for part in resource.walk() if part.is_slot]
    if not labels:
        parts, labels = [{"type": SLOT, "count": 1, "label": "default", "with": parts}], ["default"]
    tasks = [{"command": ["true"], "slot": label, "count": {"per_slot": 1}} for label in dict.fromkeys(labels)]
    system: dict[str, Any] = {"duration": 0}
    if request.constraint is not None:
        system["constraints"] = handover(request, (), 1, "", "")["constraint"]
    return json.dumps({"version": 9999, "resources": parts, "tasks": tasks, "attributes": {"system": system}})


def _part(resource: Resource, *, is_in_slot: bool) -> dict[str, Any]:
    if resource.is_slot and is_in_slot:
        raise JobspecError(
            "backend fluxion: a slot in a slot cannot be put to Fluxion; use index", pointer="/resources"
        )
    results: dict[str, Any] = {"type": resource.type, "count": _count(resource.count)}
    if resource.is_slot:
        results["label"] = resource.label or "default"
    if resource.exclusive:
        results["exclusive"] = True
    if resource.shared:
        results["exclusive"] = False
    below = [_part(child, is_in_slot=is_in_slot or resource.is_slot) for child in resource.children]
    return {**results, "with": below} if below else results


def _count(count: Count) -> Any:
    """Write the least of a count: the verdict is about that, as every backend's is."""
    return count.min


# ── read ──


def held_by_others(allocated: str, laid_out: ClusterLayout) -> dict[str, int | None]:
    """Return {vertex: None} of every leaf that was not allocated; NotAllocated if it is no R of this graph."""
    try:
        document = json.loads(allocated)
        free = set(_free(document, laid_out))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as fault:
        raise NotAllocated(f"{type(fault).__name__}: {str(fault)[:100]}") from None
    if not free:
        raise NotAllocated("it names no resource")
    return {laid_out.vertex(i): None for i in range(len(laid_out)) if laid_out.is_leaf(i) and i not in free}


def _free(document: Mapping[str, Any], laid_out: ClusterLayout) -> Iterator[int]:
    """Yield the leaves that were allocated: by the graph that R may have, else by its ranks and ids."""
    starts = sorted(laid_out.workers)
    if graph := (document.get("scheduling") or {}).get("graph"):
        for node in graph["nodes"]:
            i = int(node["metadata"]["uniq_id"])
            yield from (k for k in range(i, laid_out.last[i]) if node["metadata"].get("exclusive") or k == i)
        return
    for entry in document["execution"]["R_lite"]:
        ids = {kind: set(expand_ids(str(text), len(laid_out)) or ()) for kind, text in entry["children"].items()}
        for rank in expand_ids(str(entry["rank"]), len(laid_out)) or ():
            yield from _on(starts[rank], ids, laid_out)
    yield from (i for i in range(len(laid_out)) if laid_out.worker[i] == OUTSIDE)


def _on(start: int, ids: Mapping[str, set[int]], laid_out: ClusterLayout) -> Iterator[int]:
    counts: Counter[str] = Counter()
    for i in range(start, laid_out.last[start]):
        kind = laid_out.types[i]
        if kind not in IN_R or counts[kind] in ids.get(kind, ()):
            yield i
        counts[kind] += 1
