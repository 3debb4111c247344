"""Workers that are there, looked up by cluster: where there are none, nothing can start."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Index the workers an agent serves or has served lately."""
    there = sa.text("state NOT IN ('NEW', 'LOST')")
    op.create_index("ix_workers_there", "workers", ["cluster_id"], sqlite_where=there, postgresql_where=there)
