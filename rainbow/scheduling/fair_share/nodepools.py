"""Checks of the nodepools: a forest whose trees are scheduled on their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.errors import PolicyError
from rainbow.jobspec.text import step
from rainbow.scheduling.fair_share.values import entries, expression, mapping, optional, text, texts, whole

KEYS = {
    "parent": optional(text),
    "nodes": optional(texts),
    "match": optional(expression),
    "search_order": whole(0, "search_order"),
    "quantum": optional(whole(1, "quantum")),
}


def check_nodepools(given: Any) -> dict[str, Any]:
    """Check every nodepool, then what they are to each other."""
    pools = {
        name: entries({} if pool is None else pool, f"/nodepools/{step(name)}", KEYS, f"nodepool {name}")
        for name, pool in mapping(given, "/nodepools").items()
    }
    if not pools:
        raise PolicyError("there is at least one nodepool", pointer="/nodepools")
    for name in pools:
        _check_ancestry(name, pools)
    _check_nodes(pools)
    return pools


def _check_ancestry(name: str, pools: Mapping[str, Any]) -> None:
    here = f"/nodepools/{step(name)}"
    seen, above = [name], pools[name].get("parent")
    while above is not None:
        if above not in pools:
            raise PolicyError(f"there is no nodepool {above!r}", pointer=f"/nodepools/{step(seen[-1])}/parent")
        if above in seen:
            raise PolicyError(f"nodepools in a circle: {' in '.join([*seen, above])}", pointer=f"{here}/parent")
        seen.append(above)
        above = pools[above].get("parent")
    if pools[name].get("quantum") is not None and len(seen) > 1:
        raise PolicyError("only a top-level nodepool has a quantum of its own", pointer=f"{here}/quantum")


def _check_nodes(pools: Mapping[str, Any]) -> None:
    owner: dict[str, str] = {}
    rest = [name for name, pool in pools.items() if pool.get("nodes") is None and pool.get("match") is None]
    if len(rest) > 1:
        raise PolicyError(
            f"nodepools {rest[0]} and {rest[1]} name no nodes; only one may take the rest",
            pointer=f"/nodepools/{step(rest[1])}",
        )
    for name, pool in pools.items():
        for k, node in enumerate(pool.get("nodes") or ()):
            first = owner.setdefault(node, name)
            if first != name or node in pool["nodes"][:k]:
                raise PolicyError(
                    f"node {node} stands in {first} already", pointer=f"/nodepools/{step(name)}/nodes/{k}"
                )
