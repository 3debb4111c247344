"""The rows that prove a start, with the first task of its gang."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Tasks that have started before have none; a server of the version before works beside it."""
    op.add_column("tasks", sa.Column("certificate", sa.LargeBinary(), nullable=True))
