"""Everything the first version stores."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Make every table."""
    op.create_table(
        "clusters",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("document", JSON, nullable=False),
        sa.Column("levels", sa.String(length=16), nullable=False),
        sa.Column("worker_type", sa.String(length=100), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("clock", sa.BigInteger(), nullable=False),
        sa.Column("policy", sa.String(length=100), nullable=False),
        sa.Column("settings", JSON, nullable=False),
        sa.Column("memory", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_clusters"),
        sa.UniqueConstraint("name", name="uq_clusters_name"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("requestor", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("cluster", sa.String(length=100), nullable=False),
        sa.Column("jobspec", JSON, nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("submitted_at", sa.Double(), nullable=False),
        sa.Column("canceled_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.Column("accepted_clock", sa.BigInteger()),
        sa.Column("ended_clock", sa.BigInteger()),
        sa.Column("decision", JSON, nullable=False),
        sa.Column("wait", JSON),
        sa.Column("idempotency", sa.String(length=64)),
        sa.Column("request_digest", sa.String(length=64)),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("idempotency", name="uq_jobs_idempotency"),
    )
    op.create_index("ix_jobs_live", "jobs", ["cluster_id", "state", "accepted_clock", "nodes"])
    op.create_index("ix_jobs_ended", "jobs", ["cluster_id", "ended_clock", "accepted_clock", "nodes"])
    op.create_table(
        "credentials",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("requestors", JSON),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double()),
        sa.Column("revoked_at", sa.Double()),
        sa.ForeignKeyConstraint(
            ["cluster_id"], ["clusters.id"], name="fk_credentials_cluster_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_credentials"),
        sa.UniqueConstraint("hash", name="uq_credentials_hash"),
    )
    op.create_index("ix_credentials_cluster_id", "credentials", ["cluster_id"])
    op.create_table(
        "states",
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("values", JSON, nullable=False),
        sa.Column("reported_at", sa.Double(), nullable=False),
        sa.Column("reported_clock", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name="fk_states_cluster_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("cluster_id", name="pk_states"),
    )
    op.create_table(
        "subsystems",
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("document", JSON, nullable=False),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name="fk_subsystems_cluster_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("cluster_id", "name", name="pk_subsystems"),
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("job", sa.String(length=64), nullable=False),
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("gang", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("retries_left", sa.Integer(), nullable=False),
        sa.Column("placement", JSON, nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer()),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("assigned_at", sa.Double()),
        sa.Column("started_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_tasks_job", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_tasks"),
    )
    op.create_index("ix_tasks_cluster_id_state", "tasks", ["cluster_id", "state"])
    op.create_index("ix_tasks_job", "tasks", ["job"])
    op.create_table(
        "workers",
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name="fk_workers_cluster_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("cluster_id", "name", name="pk_workers"),
    )
