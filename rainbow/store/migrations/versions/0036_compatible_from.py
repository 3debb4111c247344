"""Which servers work with the tables, so that those of two versions serve beside each other."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column to Alembic's own table, so that a revision and what it is compatible with are one row."""
    op.add_column("alembic_version", sa.Column("compatible_from", sa.String(32), nullable=True))
