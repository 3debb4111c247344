"""Which vertices a task holds of its workers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Give tasks a place for it; those that run hold amounts, of no vertices in particular."""
    op.add_column("tasks", sa.Column("held", sa.JSON(none_as_null=True), nullable=True))
