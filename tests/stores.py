"""An open store, and the cluster and jobs that tests put into it."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.store import Store, clusters, open_store
from rainbow.store.clusters import ClusterRecord
from rainbow.store.jobs import JobRecord


@pytest.fixture
def store(database: str) -> Any:
    opened = open_store(database)
    yield opened
    opened.close()


def add_cluster(store: Store, key: str = "c1", name: str = "oak") -> None:
    with store.write() as connection:
        clusters.add(connection, ClusterRecord(key, name, "any", "node", 1.0, "load_based"), {"graph": {}})


def job(key: str, nodes: int = 1, name: str = "", **more: Any) -> JobRecord:
    return JobRecord(key, name, "me", "c1", "oak", nodes, 1.0, **more)
