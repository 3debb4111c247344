"""Nodes that are kept for jobs without a cluster."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table; a server of the version before works beside it, and gives these nodes away."""
    op.create_table(
        "unplaced_bookings",
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("cluster_id", sa.String(64), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("made", sa.Double(), nullable=False),
        sa.Column("start", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("job", name="pk_unplaced_bookings"),
        sa.ForeignKeyConstraint(["job"], ["unplaced.job"], name="fk_unplaced_bookings_job", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name="fk_unplaced_bookings_cluster_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_unplaced_bookings_cluster_id", "unplaced_bookings", ["cluster_id"], unique=True)
