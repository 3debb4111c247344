"""How long runs took, what was forecast, and how that turned out."""

from __future__ import annotations

import hashlib
import json
from array import array

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

ID = sa.String(64)
RUNS = 20
READ = 100_000  # of the last runs


def upgrade() -> None:
    """Add the tables; fill the lengths by the last runs that are stored."""
    op.create_table(
        "lengths",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", ID, nullable=False),
        sa.Column("cluster_id", ID, nullable=False),
        sa.Column("recent", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name="fk_lengths_cluster_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_lengths"),
        sa.UniqueConstraint("key", "cluster_id", name="uq_lengths_key_cluster_id"),
    )
    op.create_index("ix_lengths_cluster_id", "lengths", ["cluster_id"])
    op.create_index("ix_lengths_at", "lengths", ["at"])
    op.create_table(
        "forecasts",
        sa.Column("cluster_id", ID, nullable=False),
        sa.Column("at", sa.Double(), nullable=False, server_default="0"),
        sa.Column("content", sa.JSON(none_as_null=True)),
        sa.Column("scores", sa.LargeBinary(), nullable=False),
        sa.Column("ratios", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name="fk_forecasts_cluster_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("cluster_id", name="pk_forecasts"),
    )
    op.create_table(
        "job_etas",
        sa.Column("job", ID, nullable=False),
        sa.Column("cluster_id", ID, nullable=False),
        sa.Column("first", sa.JSON(), nullable=False),
        sa.Column("last", sa.JSON(), nullable=False),
        sa.Column("score", sa.Double()),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_job_etas_job", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", name="pk_job_etas"),
    )
    op.create_index("ix_job_etas_open", "job_etas", ["cluster_id", "score"])
    _fill(op.get_bind())


def _fill(connection: sa.Connection) -> None:
    query = sa.text(
        "SELECT j.cluster_id, j.requestor, j.name, t.name, t.slots, t.ended_at - t.started_at - t.paused, t.ended_at "
        "FROM tasks t JOIN jobs j ON j.id = t.job JOIN clusters c ON c.id = j.cluster_id "
        "WHERE t.state IN ('COMPLETED', 'TIMED_OUT') AND t.started_at IS NOT NULL AND t.ended_at IS NOT NULL "
        "ORDER BY t.ended_at DESC LIMIT :most"
    )
    found: dict[tuple[str, str], list[float]] = {}
    last: dict[tuple[str, str], float] = {}
    for cluster, requestor, name, task, slots, seconds, ended in connection.execute(query, {"most": READ}):
        for level in ([requestor, name, task, slots], [requestor, name, task, 0], [requestor], []):
            key = hashlib.sha256(json.dumps(level).encode()).hexdigest(), cluster
            runs = found.setdefault(key, [])
            if len(runs) < RUNS:
                runs.append(max(0.0, float(seconds)))
                last.setdefault(key, float(ended))
    table = sa.table("lengths", *(sa.column(name) for name in ("key", "cluster_id", "recent", "at")))
    rows = [
        {"key": key, "cluster_id": cluster, "recent": array("f", reversed(runs)).tobytes(), "at": last[key, cluster]}
        for (key, cluster), runs in found.items()
    ]
    for first in range(0, len(rows), 1_000):
        connection.execute(table.insert(), rows[first : first + 1_000])
