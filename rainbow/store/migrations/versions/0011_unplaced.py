"""Jobs that wait for a cluster to take them, and the clusters they may go to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

ID = sa.String(64)


def upgrade() -> None:
    """Add both tables."""
    op.create_table(
        "unplaced",
        sa.Column("job", ID, nullable=False),
        sa.Column("reach", ID),
        sa.Column("turn", sa.Double(), nullable=False),
        sa.Column("home", ID, nullable=False, server_default=""),
        sa.Column("selector", sa.String(100)),
        sa.Column("options", sa.JSON()),
        sa.Column("backend", sa.String(100)),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_unplaced_job", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", name="pk_unplaced"),
    )
    op.create_index("ix_unplaced_reach", "unplaced", ["reach"])
    op.create_table(
        "reaches",
        sa.Column("reach", ID, nullable=False),
        sa.Column("cluster_id", ID, nullable=False),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name="fk_reaches_cluster_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("reach", "cluster_id", name="pk_reaches"),
    )
    op.create_index("ix_reaches_cluster_id", "reaches", ["cluster_id"])
