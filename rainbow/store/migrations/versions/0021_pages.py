"""Indexes for lists of jobs and events, and the names of removed clusters that have jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

INDEXES = {
    "ix_pages_state": ["state", "id"],
    "ix_pages_cluster": ["cluster_id", "id"],
    "ix_pages_cluster_state": ["cluster_id", "state", "id"],
    "ix_pages_requestor_state": ["requestor", "state", "id"],
    "ix_pages_cluster_requestor": ["cluster_id", "requestor", "state", "id"],
}


def _create_index(name: str, table: str, columns: list[str]) -> None:
    """Make an index; PostgreSQL would rather read a primary key in order, and past all that is not wanted."""
    last = sa.text(f"{columns[-1]} DESC NULLS LAST")
    op.create_index(name, table, columns if op.get_bind().dialect.name == "sqlite" else [*columns[:-1], last])


def upgrade() -> None:
    """Make the indexes; a removed cluster is found by its name from now on."""
    op.drop_index("ix_jobs_open", "jobs")
    for name, columns in INDEXES.items():
        _create_index(name, "jobs", columns)
    _create_index("ix_pages_events", "events", ["cluster_id", "number"])
    op.execute(
        "INSERT INTO former_clusters (id, name) SELECT cluster_id, MAX(cluster) FROM jobs WHERE cluster_id <> ''"
        " AND cluster_id NOT IN (SELECT id FROM clusters) AND cluster_id NOT IN (SELECT id FROM former_clusters)"
        " GROUP BY cluster_id"
    )
