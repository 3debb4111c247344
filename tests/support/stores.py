"""An open store, and the cluster and jobs that tests put into it."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from rainbow.store import Store, clusters, open_store
from rainbow.store.clusters import ClusterRecord
from rainbow.store.jobs import JobRecord
from rainbow.store.schema import metadata


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


def schema_differences(store: Store, connection: sa.Connection) -> list[Any]:
    """Return how the tables of a store differ from the schema, as Alembic sees it."""
    differences = compare_metadata(MigrationContext.configure(connection), metadata)
    if store.many_processes:  # the indexes of pages have an order of their own there
        differences = [one for one in differences if not one[1].name.startswith("ix_pages_")]
    return differences
