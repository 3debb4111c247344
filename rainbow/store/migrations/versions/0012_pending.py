"""Why a task that an agent has accepted does not start, as the agent says."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Give tasks a place for it."""
    op.add_column("tasks", sa.Column("pending", sa.JSON(none_as_null=True), nullable=True))
