"""Rainbow: which cluster should run this job, and when does each of its tasks start there?

>>> import rainbow
>>> cluster = rainbow.read_cluster({"graph": {"nodes": {"n": {"metadata": {"type": "node", "name": "n0"}},
...     "c": {"metadata": {"type": "core", "size": 8}}}, "edges": [{"source": "n", "target": "c"}]}}, name="small")
>>> job = rainbow.parse_jobspec("resources: {work: {type: node, with: [{type: core, count: 4}]}}")
>>> [(verdict.cluster, verdict.matched, verdict.fits) for verdict in rainbow.match(job, [cluster])]
[('small', True, 2)]
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rainbow.errors import (
    ConfigError,
    GraphError,
    InputError,
    JobspecError,
    LimitError,
    PolicyError,
    RainbowError,
    SelectionError,
    StateError,
)

if TYPE_CHECKING:
    from rainbow.client import Client
    from rainbow.graph import Cluster, read_cluster, write_jgf
    from rainbow.jobspec import Request, parse_jobspec
    from rainbow.matching import Budget, Reason, Verdict
    from rainbow.selection import Choice, select

__version__ = "0.1.0"
# imported when they are asked for: a command line that asks a server needs no matching, and matching needs no HTTP
PLACES = {
    "Budget": "matching",
    "Choice": "selection",
    "Client": "client",
    "Cluster": "graph",
    "Reason": "matching",
    "Request": "jobspec",
    "Verdict": "matching",
    "parse_jobspec": "jobspec",
    "read_cluster": "graph",
    "select": "selection",
    "write_jgf": "graph",
}


def match(
    request: "Request",
    clusters: "Iterable[Cluster] | Cluster",
    backend: str = "index",
    budget: "Budget | None" = None,
) -> "Sequence[Verdict]":
    """Return the verdict on every cluster, or the one there is, as if it were empty, in order of name.

    `matched` is True, False, or None where the budget (50 ms of processor time a cluster, 1 s in all) ended
    before the answer.
    """
    from rainbow import matching
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request

    if not isinstance(request, Request):
        raise TypeError(f"match takes a request, not {_kind(request)}: parse_jobspec(text) makes one")
    clusters = [clusters] if isinstance(clusters, Cluster) else _several(clusters)
    for one in clusters:
        if not isinstance(one, Cluster):
            raise TypeError(f"match takes clusters, not {_kind(one)}: read_cluster(graph) makes one")
    return matching.match(request, clusters, backend, budget or matching.Budget(time.thread_time))


def _several(clusters: Any) -> list[Any]:
    is_graph = isinstance(clusters, (str, bytes, Mapping)) or hasattr(clusters, "nodes")
    if isinstance(clusters, Iterable) and not is_graph:
        return list(clusters)
    raise TypeError(f"match takes clusters, not {_kind(clusters)}: read_cluster(graph) makes one")


def _kind(value: Any) -> str:
    return "text" if isinstance(value, (str, bytes)) else f"{type(value).__name__}"


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for, and keep it."""
    if name not in PLACES:
        raise AttributeError(f"module 'rainbow' has no attribute {name!r}")
    result = globals()[name] = getattr(import_module(f"rainbow.{PLACES[name]}"), name)
    return result


__all__ = [
    "Budget",
    "Choice",
    "Client",
    "Cluster",
    "ConfigError",
    "GraphError",
    "InputError",
    "JobspecError",
    "LimitError",
    "PolicyError",
    "RainbowError",
    "Reason",
    "Request",
    "SelectionError",
    "StateError",
    "Verdict",
    "match",
    "parse_jobspec",
    "read_cluster",
    "select",
    "write_jgf",
]
