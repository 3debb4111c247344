"""Who asked for which change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table; a server of the version before works beside it, and its changes are not in it."""
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("request", sa.String(64), nullable=False),
        sa.Column("verb", sa.String(100), nullable=False),
        sa.Column("object", sa.String(200), nullable=False),
        sa.Column("cluster_id", sa.String(64), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("credential", "login", "address", "path")),
    )
    for column in ("at", "object", "cluster_id"):
        op.create_index(f"ix_audit_{column}", "audit", [column])
