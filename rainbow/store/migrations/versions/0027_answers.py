"""What was answered under an Idempotency-Key is kept for a day, so that it is answered again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Make the table; a server of the version before works beside it."""
    op.create_table(
        "answers",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("answer", JSON, nullable=False),
        sa.Column("secrets", JSON, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
    )
    op.create_index("ix_answers_at", "answers", ["at"])
