"""A cluster in short: the kinds its root is made of, and its totals. Enough to match with, without its graph.

    kinds    [[type, size, unit, properties, [[place of a kind, how many], ...]], ...], the root last
    sizes    {type: size of all vertices}            numbers    {type: how many vertices}

It is JSON, compressed. Whoever changes what it says, or what kinds are, counts FORMAT up: others are not read.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from rainbow.graph import Cluster
from rainbow.graph.deferred import Deferred
from rainbow.matching.kinds import Kind, kind_of, root_of, set_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from rainbow.graph.outline import Outline

FORMAT = 1
FAST = 1  # of zlib's levels


def summarise(cluster: Cluster) -> bytes | None:
    """Return a cluster in short; None for one with subsystems, whose rows are as long as their graphs."""
    if cluster.subsystems:
        return None
    kinds = root_of(cluster).closure()
    at = {kind.number: place for place, kind in enumerate(kinds)}
    found = {
        "kinds": [_written(kind, at) for kind in kinds],
        "sizes": cluster.outline.sizes,
        "numbers": cluster.outline.numbers,
    }
    return zlib.compress(json.dumps(found).encode(), FAST)


def _written(kind: Kind, at: dict[int, int]) -> list[Any]:
    runs = [[at[below.number], many] for below, many in kind.runs]
    return [kind.type, kind.size, kind.unit, sorted(kind.properties), runs]


def restored(content: bytes, name: str, levels: str, worker_type: str, read: Callable[[], Outline]) -> Cluster:
    """Return a cluster from what was said of it in short; `read` gives its outline when it is needed."""
    found = json.loads(zlib.decompress(content))
    outline = Deferred(read, found["sizes"], found["numbers"])
    cluster = Cluster(name, outline, levels, worker_type)
    made: list[Kind] = []
    for type_, size, unit, properties, runs in found["kinds"]:
        below = tuple((made[place], many) for place, many in runs)
        made.append(kind_of(type_, size, unit, frozenset(properties), frozenset(), below))
    set_root(cluster, made[-1])
    return cluster
