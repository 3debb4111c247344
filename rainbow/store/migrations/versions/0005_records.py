"""Long parts of decisions kept once for all jobs that share them; how often a credential's clusters have changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ID = sa.String(64)


def upgrade() -> None:
    """Add both; decisions stored before keep all of their parts themselves."""
    op.add_column("credentials", sa.Column("changes", sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "records",
        sa.Column("digest", ID, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_records"),
    )
    op.create_table(
        "record_uses",
        sa.Column("job", ID, nullable=False),
        sa.Column("digest", ID, nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_record_uses_job", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", "digest", name="pk_record_uses"),
    )
    op.create_index("ix_record_uses_digest", "record_uses", ["digest"])
