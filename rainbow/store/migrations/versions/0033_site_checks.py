"""Questions to sites about jobs to come, and which agents answer them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Make the table; a server of the version before works beside it, and asks no site."""
    op.add_column("agents", sa.Column("checks", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "site_checks",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("cluster_id", sa.String(64), nullable=False),
        sa.Column("question", JSON, nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("answered_at", sa.Double(), nullable=True),
        sa.Column("answer", JSON, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_site_checks"),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name="fk_site_checks_cluster_id", ondelete="CASCADE"
        ),
    )
    for name in ("cluster_id", "asked_at"):
        op.create_index(f"ix_site_checks_{name}", "site_checks", [name])
