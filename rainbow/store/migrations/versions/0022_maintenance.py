"""What becomes of tasks that still run when a maintenance begins."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; maintenance made before leaves tasks alone."""
    op.add_column("reservations", sa.Column("at_begin", sa.String(16), nullable=False, server_default=""))
