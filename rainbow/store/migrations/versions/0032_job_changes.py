"""Jobs held by their owners; what was changed of them after their submit; and jobs by name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing is held, nothing was changed; a server of the version before works beside it."""
    op.add_column("jobs", sa.Column("held_at", sa.Double, nullable=True))
    op.add_column("jobs", sa.Column("overrides", sa.JSON(none_as_null=True), nullable=True))
    last = "id" if op.get_bind().dialect.name == "sqlite" else sa.text("id DESC NULLS LAST")
    op.create_index("ix_pages_name", "jobs", ["name", last])
