"""Nodepools as a forest, and which machine belongs to which."""

from __future__ import annotations

from collections.abc import Mapping

from rainbow.scheduling.fair_share.model import Pool
from rainbow.scheduling.fair_share.settings import NodepoolSettings, Settings
from rainbow.scheduling.policy import WorkerView


def forest(settings: Settings) -> dict[str, Pool]:
    """Hang every nodepool under its parent, in search order."""
    pools = {name: Pool(name) for name in settings.nodepools}
    for name in sorted(pools, key=lambda n: (settings.nodepools[n].search_order, n)):
        pool, parent = pools[name], settings.nodepools[name].parent
        pool.quantum = settings.nodepools[name].quantum or settings.quantum
        if parent is not None:
            pool.parent = pools[parent]
            pools[parent].children.append(pool)
    for pool in pools.values():
        above = pool.parent
        while above is not None:
            pool.depth, above = pool.depth + 1, above.parent
    return pools


def pool_name(worker: WorkerView, pools: Mapping[str, NodepoolSettings]) -> str:
    """Name a worker's pool: the first that matches it, that lists it, that it names, that takes the rest."""
    for name, pool in pools.items():
        if pool.match is not None and pool.match.fullmatch(worker.id):
            return name
    for name, pool in pools.items():
        if worker.id in pool.nodes:
            return name
    if worker.pool in pools:
        return worker.pool
    tops = (name for name, pool in pools.items() if pool.parent is None)
    return next((name for name, pool in pools.items() if pool.rest), next(tops))
