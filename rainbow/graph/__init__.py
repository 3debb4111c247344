"""JGF ⇄ NetworkX; a cluster is one dominant graph with subsystem graphs hung on it."""

from rainbow.graph.cluster import Cluster, Subsystem
from rainbow.graph.order import natural

__all__ = ["Cluster", "Subsystem", "natural"]
