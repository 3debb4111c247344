"""JGF ⇄ NetworkX; a cluster is one dominant graph with subsystem graphs hung on it."""

from rainbow.graph.cluster import WORKER_LEVEL_TYPES, Cluster, Subsystem
from rainbow.graph.limits import Limits
from rainbow.graph.order import natural
from rainbow.graph.reading import hang_subsystem, read_cluster
from rainbow.graph.writing import write_jgf

__all__ = [
    "WORKER_LEVEL_TYPES",
    "Cluster",
    "Limits",
    "Subsystem",
    "hang_subsystem",
    "natural",
    "read_cluster",
    "write_jgf",
]
