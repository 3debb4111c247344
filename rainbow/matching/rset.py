"""What a take holds, in the words of others: containment paths, and RFC 20's R where workers have ranks.

R lists the cores and GPUs a rank holds by id: the ids of the vertices if each is one core (or GPU) and no two
of a worker share one, else their places within the worker, in depth-first order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rainbow.jobspec.names import expand_hosts, fold_hosts, fold_ids
from rainbow.matching.layout import OUTSIDE, layout

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.matching.layout import ClusterLayout
    from rainbow.matching.verdict import Take

KINDS = ("core", "gpu")  # what RFC 20 knows below a rank
Held = dict[int, dict[str, list[int]]]  # {worker: {type: ids}}


def paths(take: Take, cluster: Cluster) -> list[str]:
    """List the containment paths of what is held, lowest first; a vertex without a path is called by its id."""
    held = sorted(take.vertices, key=cluster.order)
    return [cluster.graph.nodes[vertex]["path"] or vertex for vertex in held]


def resource_set(take: Take, cluster: Cluster) -> dict[str, Any] | None:
    """Write a take as R version 1; None unless every worker it touches has a rank of its own."""
    laid_out = layout(cluster)
    held = _held(take, laid_out)
    ranks = {worker: cluster.graph.nodes[laid_out.vertices[worker]]["rank"] for worker in held}
    if not held or None in ranks.values() or len(set(ranks.values())) < len(ranks):
        return None
    by_rank = sorted(held, key=lambda worker: ranks[worker])
    names = [laid_out.worker_names[worker] for worker in by_rank]
    return {
        "version": 1,
        "execution": {
            "R_lite": _lite({ranks[worker]: held[worker] for worker in by_rank}),
            **_nodelist(names),
            "starttime": 0,
            "expiration": 0,
        },
    }


def _held(take: Take, laid_out: ClusterLayout) -> Held:
    """Collect what is held of each worker; whole subtrees are named by their top."""
    held: Held = {}
    for vertex, amount in take.vertices.items():
        top = laid_out.position[vertex]
        for i in range(top, laid_out.last[top]):
            if laid_out.worker[i] == OUTSIDE:
                continue
            ids = held.setdefault(laid_out.worker[i], {})
            if laid_out.types[i] in KINDS:
                units = amount if i == top else laid_out.sizes[i]
                ids.setdefault(laid_out.types[i], []).extend(_ids(i, laid_out)[:units])
    return held


def _ids(i: int, laid_out: ClusterLayout) -> range:
    """Return the ids of the units of the vertex at position `i`."""
    worker, kind = laid_out.worker[i], laid_out.types[i]
    below = [k for k in laid_out.by_type[kind] if worker <= k < laid_out.last[worker]]
    own = [laid_out.cluster.graph.nodes[laid_out.vertices[k]]["metadata"].get("id") for k in below]
    numbers = [int(str(number)) for number in own if _is_number(number)]
    if len(set(numbers)) == len(below) and all(laid_out.sizes[k] == 1 for k in below):
        first = numbers[below.index(i)]
    else:
        first = sum(laid_out.sizes[k] for k in below if k < i)
    return range(first, first + laid_out.sizes[i])


def _is_number(value: Any) -> bool:
    text = str(value)
    return isinstance(value, int | str) and text.isascii() and text.isdecimal() and len(text) <= 9


def _lite(held: Mapping[int, Mapping[str, list[int]]]) -> list[dict[str, Any]]:
    """Write ranks with equal children as one entry, in order of their lowest rank."""
    alike: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for rank, kinds in held.items():
        children = tuple((kind, fold_ids(kinds[kind])) for kind in KINDS if kind in kinds)
        alike.setdefault(children, []).append(rank)
    return [{"rank": fold_ids(ranks), "children": dict(children)} for children, ranks in alike.items()]


def _nodelist(names: list[str]) -> dict[str, list[str]]:
    """Name the hosts in order of rank; nothing where their names cannot be written as a hostlist."""
    folded = fold_hosts(names)
    return {"nodelist": [folded]} if expand_hosts(folded, len(names)) == names else {}
