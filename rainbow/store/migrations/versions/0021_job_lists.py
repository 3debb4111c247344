"""Indexes of job lists by state, requestor and cluster."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the indexes."""
    where = sa.text("state NOT IN ('UNPLACED', 'WAITING', 'RUNNING')")
    op.create_index("ix_jobs_over", "jobs", ["state", "id"], sqlite_where=where, postgresql_where=where)
    op.create_index("ix_jobs_requestor", "jobs", ["requestor", "id"])
    op.create_index("ix_jobs_cluster", "jobs", ["cluster", "id"])
