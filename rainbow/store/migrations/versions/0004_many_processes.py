"""Credentials for several clusters, agents' heartbeats, draining, and events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)
ID = sa.String(64)
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add what is new; a credential's one cluster becomes its first grant."""
    op.add_column("clusters", sa.Column("draining_at", sa.Double()))
    _credentials()
    op.create_table(
        "agents",
        sa.Column("cluster_id", ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("workers", JSON),
        sa.Column("seq", sa.BigInteger(), nullable=False, server_default="0"),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name="fk_agents_cluster_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("cluster_id", "name", name="pk_agents"),
    )
    op.create_table(
        "events",
        sa.Column("number", NUMBER, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("cluster_id", ID, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("facts", JSON, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_at", "events", ["at"])
    op.create_index("ix_jobs_ended_at", "jobs", ["ended_at"])


def _credentials() -> None:
    connection = op.get_bind()
    given = connection.execute(sa.text("SELECT id, cluster_id FROM credentials")).all()
    op.drop_index("ix_credentials_cluster_id", "credentials")
    with op.batch_alter_table("credentials") as batch:
        batch.drop_constraint("fk_credentials_cluster_id", type_="foreignkey")
        batch.drop_column("cluster_id")
        batch.add_column(sa.Column("name", sa.String(100)))
    made = op.create_table(
        "grants",
        sa.Column("credential_id", ID, nullable=False),
        sa.Column("cluster_id", ID, nullable=False),
        sa.ForeignKeyConstraint(
            ["credential_id"], ["credentials.id"], name="fk_grants_credential_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name="fk_grants_cluster_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("credential_id", "cluster_id", name="pk_grants"),
    )
    op.create_index("ix_grants_cluster_id", "grants", ["cluster_id"])
    op.bulk_insert(made, [{"credential_id": row[0], "cluster_id": row[1]} for row in given])
