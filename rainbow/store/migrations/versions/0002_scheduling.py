"""Limits of a cluster and who changed its settings when; flaky workers; how long tasks ran; tags."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Add the columns and the tables."""
    op.add_column("clusters", sa.Column("limits", JSON, nullable=False, server_default="{}"))
    op.create_table(
        "changes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("who", sa.String(length=100), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("before", JSON, nullable=True),
        sa.Column("after", JSON, nullable=True),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name="fk_changes_cluster_id_clusters", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_changes"),
    )
    op.create_index("ix_changes_cluster_id", "changes", ["cluster_id"])
    op.add_column("workers", sa.Column("failures", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("tasks", sa.Column("expected", sa.Double(), nullable=False, server_default="0"))
    op.create_table(
        "durations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("mean", sa.Double(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_durations"),
        sa.UniqueConstraint("job", "task", name="uq_durations_job_task"),
    )
    op.create_index("ix_durations_at", "durations", ["at"])
    op.add_column("jobs", sa.Column("basis", sa.Text(), nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("tag", sa.Text(), nullable=False, server_default=""))
    op.create_table(
        "tags",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("requestor", sa.Text(), nullable=False),
        sa.Column("basis", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name="fk_tags_cluster_id_clusters", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_tags"),
    )
    op.create_index("ix_tags_cluster_id", "tags", ["cluster_id"])
    op.create_index("ix_tags_requestor_basis", "tags", ["requestor", "basis"])
