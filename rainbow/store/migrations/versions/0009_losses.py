"""Lost attempts, why a task ended, and agents whose tasks continue without the server."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

JSON = sa.JSON(none_as_null=True)

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Count what is lost, by task and by worker."""
    op.add_column("tasks", sa.Column("losses", JSON, nullable=False, server_default="[]"))
    op.add_column("tasks", sa.Column("not_before", sa.Double(), nullable=True))
    op.add_column("tasks", sa.Column("cause", sa.Text(), nullable=False, server_default=""))
    op.add_column("workers", sa.Column("losses", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("agents", sa.Column("keeps", sa.Boolean(), nullable=False, server_default=sa.false()))
