"""What a task has written to its standard error, where that goes to a file of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Give tasks a place for it."""
    op.add_column("tasks", sa.Column("errors", sa.Text(), nullable=False, server_default=""))
