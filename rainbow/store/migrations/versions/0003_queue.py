"""The order in which a job's tasks wait, so that the first of very many are found without looking at the others."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index; it serves what the one by job served, too."""
    op.create_index("ix_tasks_queue", "tasks", ["job", "state", "expected", "index"])
    op.drop_index("ix_tasks_job", "tasks")
