"""Qualities of service, how tasks are preempted, and usage by the id of a cluster."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

NAME = sa.String(100)
JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Add the tables and columns; usage of a cluster that is gone keeps its name for an id."""
    op.create_table(
        "qos",
        sa.Column("name", NAME, nullable=False),
        sa.Column("given", JSON, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_qos"),
    )
    op.create_table(
        "former_clusters",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_former_clusters"),
    )
    op.add_column("jobs", sa.Column("qos", NAME, nullable=False, server_default=""))
    op.add_column("tasks", sa.Column("preempted", JSON))
    op.execute(
        "INSERT INTO former_clusters (id, name) SELECT DISTINCT cluster, cluster FROM usage_days"
        " WHERE cluster NOT IN (SELECT name FROM clusters)"
    )
    op.execute(
        "UPDATE usage_days SET cluster = (SELECT id FROM clusters WHERE clusters.name = usage_days.cluster)"
        " WHERE cluster IN (SELECT name FROM clusters)"
    )
