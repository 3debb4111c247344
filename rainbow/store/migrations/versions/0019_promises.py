"""Promised starts, and maintenance of workers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Add the table; the first step of a cluster makes its promises. Reservations so far are no maintenance."""
    op.create_table(
        "promises",
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("gang", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("cluster_id", sa.String(64), nullable=False),
        sa.Column("start", sa.Double(), nullable=False),
        sa.Column("made", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("booking", JSON, nullable=False),
        sa.Column("basis", sa.String(16), nullable=False),
        sa.Column("broken", JSON),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_promises_job", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name="fk_promises_cluster_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", "gang", name="pk_promises"),
    )
    op.create_index("ix_promises_cluster_id", "promises", ["cluster_id"])
    op.add_column("reservations", sa.Column("maintenance", sa.Boolean(), nullable=False, server_default=sa.false()))
