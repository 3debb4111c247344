"""Advance reservations, suspended jobs and tasks, measured load."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)
ID = sa.String(64)


def upgrade() -> None:
    """Add what is new; whatever runs is not suspended."""
    op.add_column("tasks", sa.Column("hold", sa.String(16), nullable=False, server_default=""))
    op.add_column("tasks", sa.Column("suspended_at", sa.Double()))
    op.add_column("tasks", sa.Column("paused", sa.Double(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("suspended_at", sa.Double()))
    op.add_column("agents", sa.Column("load", JSON))
    op.create_table(
        "reservations",
        sa.Column("id", ID, nullable=False),
        sa.Column("cluster_id", ID, nullable=False),
        sa.Column("requestor", sa.Text(), nullable=False),
        sa.Column("requestors", JSON),
        sa.Column("name", sa.Text(), nullable=False, server_default=""),
        sa.Column("start", sa.Double(), nullable=False),
        sa.Column("end", sa.Double(), nullable=False),
        sa.Column("placement", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name="fk_reservations_cluster_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_reservations"),
    )
    op.create_index("ix_reservations_cluster_id", "reservations", ["cluster_id"])
