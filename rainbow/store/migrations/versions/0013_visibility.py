"""Whose jobs a token that names requestors sees."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Give clusters a setting for it: all, as before."""
    op.add_column("clusters", sa.Column("visibility", sa.String(100), nullable=False, server_default="all"))
