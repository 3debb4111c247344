"""Long parts of decisions kept once for all jobs; changes of a credential's clusters; clusters in short."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
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
    op.create_table(
        "summaries",
        sa.Column("cluster_id", ID, nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("layout", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name="fk_summaries_cluster_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("cluster_id", name="pk_summaries"),
    )
