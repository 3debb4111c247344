"""What has changed since when: epochs of clusters, stamps of jobs, tasks and workers. Draining, names of results."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Begin with the first epoch; what there is was never changed in it."""
    op.add_column("clusters", sa.Column("drained_at", sa.Double()))
    op.add_column("clusters", sa.Column("epoch", sa.BigInteger(), nullable=False, server_default="1"))
    op.add_column("clusters", sa.Column("moves", sa.BigInteger(), nullable=False, server_default="0"))
    for table in ("jobs", "tasks", "workers"):
        op.add_column(table, sa.Column("stamp", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("awaits", sa.JSON(none_as_null=True)))
    op.create_table(
        "symbols",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_symbols_job", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_symbols"),
    )
    op.create_index("ix_symbols_job", "symbols", ["job"])
    op.create_index("ix_symbols_name", "symbols", ["name"])
    op.create_index("ix_jobs_stamp", "jobs", ["cluster_id", "stamp"])
    op.create_index("ix_workers_stamp", "workers", ["cluster_id", "stamp"])
    changed = sa.text("stamp > 0")
    op.create_index(
        "ix_tasks_stamp", "tasks", ["cluster_id", "stamp"], sqlite_where=changed, postgresql_where=changed
    )
