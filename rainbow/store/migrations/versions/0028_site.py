"""How a site that schedules for itself calls a task: number, partition, nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of tasks before it is not known; a server of the version before works beside it."""
    op.add_column("tasks", sa.Column("site", sa.JSON(none_as_null=True), nullable=True))
