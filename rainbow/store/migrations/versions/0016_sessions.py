"""Browsers that are signed in to the page; an index of the jobs that have not ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and the index."""
    is_open = sa.text("state IN ('UNPLACED', 'WAITING', 'RUNNING')")
    op.create_index("ix_jobs_open", "jobs", ["id"], sqlite_where=is_open, postgresql_where=is_open)
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("credentials", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("begun_at", sa.Double(), nullable=False),
        sa.Column("used_at", sa.Double(), nullable=False),
        sa.Column("acts_until", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
    )
    op.create_index("ix_sessions_used_at", "sessions", ["used_at"])
