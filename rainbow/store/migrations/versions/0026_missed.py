"""Which of a cluster's last starts missed the bands that were told: the next bands are made of that."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of starts before it is not known."""
    with op.batch_alter_table("forecasts") as batch:
        batch.add_column(sa.Column("missed", sa.LargeBinary(), nullable=False, server_default=sa.text("''")))
    with op.batch_alter_table("forecasts") as batch:  # apart: the rows that are there take the default first
        batch.alter_column("missed", server_default=None)
