"""JGF ⇄ NetworkX; a cluster is one containment graph with subsystem graphs attached to it."""

from rainbow.graph.cluster import WORKER_LEVEL_TYPES, Cluster, Subsystem, hang_subsystem
from rainbow.graph.conversion import read_cluster, write_jgf
from rainbow.graph.document import Limits
from rainbow.text import natural

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
