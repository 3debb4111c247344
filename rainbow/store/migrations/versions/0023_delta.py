"""Changes of a cluster's graph are kept beside its document."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; documents stored before have no changes beside them."""
    op.add_column("clusters", sa.Column("delta", sa.JSON, nullable=False, server_default="[]"))
