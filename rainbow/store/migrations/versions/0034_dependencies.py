"""Which jobs wait for which, so that the one that is awaited can say it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table; of jobs submitted before, only they themselves say what they wait for."""
    op.create_table(
        "dependencies",
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("awaited", sa.String(64), nullable=False),
        sa.Column("scheme", sa.String(16), nullable=False),
        sa.PrimaryKeyConstraint("job", "awaited", name="pk_dependencies"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_dependencies_job", ondelete="CASCADE"),
    )
    op.create_index("ix_dependencies_awaited", "dependencies", ["awaited"])
