"""Graphs from what a cluster's own software says of it: text in, a JSON Graph Format document out.

Pure: the caller runs the command, or reads the file.
"""

from __future__ import annotations

from typing import Any, Protocol

from rainbow.graph.document import LIMITS, Limits
from rainbow.graph.sources.flux import read_flux_r
from rainbow.graph.sources.gridengine import read_gridengine
from rainbow.graph.sources.kubernetes import read_kubernetes
from rainbow.graph.sources.single_host import read_hwloc, read_local
from rainbow.graph.sources.slurm import read_slurm
from rainbow.plugins import Registry

__all__ = ["GraphSource", "graph_sources"]


class GraphSource(Protocol):
    """Reads one kind of description.

    Contract: the same text gives the same document; `read_cluster` reads it, and within `limits`; it has at least
    one worker, and every worker is called as users of the cluster call it. What is no such description, or says
    too little, raises InputError with a JSON Pointer into what was given (line and column where it is no JSON).
    A node that is down is kept and has `unavailable`, the reason, in its metadata: its state will change, what it
    is made of will not. Names of what was left out for good stand in the graph's metadata, in `left_out`.
    """

    def __call__(self, text: str, limits: Limits = LIMITS) -> dict[str, Any]:
        """Return the document; `name` is in it if the text says what the cluster is called."""


graph_sources: Registry[GraphSource] = Registry("rainbow.graph_sources")
graph_sources.add("flux-r")(read_flux_r)
graph_sources.add("gridengine")(read_gridengine)
graph_sources.add("hwloc")(read_hwloc)
graph_sources.add("local")(read_local)
graph_sources.add("kubernetes")(read_kubernetes)
graph_sources.add("slurm")(read_slurm)
