"""Clusters say when their states changed, in numbers of events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column: what was reported before is read whole by every server that starts."""
    op.add_column("clusters", sa.Column("noted", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("ix_clusters_noted", "clusters", ["noted"])
