"""Graphs and their changes have tables of their own, so that no other change of a cluster writes them again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

ID = sa.String(64)
JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Move both; SQLite moves the other columns, as old versions of it drop none."""
    _make("documents", sa.Column("document", JSON, nullable=False))
    _make("deltas", sa.Column("revision", sa.Integer(), nullable=False), sa.Column("changes", JSON, nullable=False))
    op.execute("INSERT INTO documents (cluster_id, document) SELECT id, document FROM clusters")
    op.execute(
        "INSERT INTO deltas (cluster_id, revision, changes)"
        " SELECT id, revision, delta FROM clusters WHERE CAST(delta AS TEXT) <> '[]'"
    )
    with op.batch_alter_table("clusters") as batch:
        batch.drop_column("document")
        batch.drop_column("delta")


def _make(table: str, *columns: sa.Column[object]) -> None:
    keys = ["cluster_id", *(column.name for column in columns if column.name == "revision")]
    op.create_table(
        table,
        sa.Column("cluster_id", ID, nullable=False),
        *columns,
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name=f"fk_{table}_cluster_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint(*keys, name=f"pk_{table}"),
    )
