"""Accounts, what their jobs used, and budgets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

NAME = sa.String(100)
JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    """Add the tables; jobs so far are without an account."""
    op.create_table(
        "accounts",
        sa.Column("name", NAME, nullable=False),
        sa.Column("parent", NAME, nullable=False, server_default=""),
        sa.Column("shares", sa.Integer()),
        sa.Column("limits", JSON, nullable=False),
        sa.Column("budget", JSON, nullable=False),
        sa.Column("changes", sa.BigInteger(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("name", name="pk_accounts"),
    )
    op.create_table(
        "members",
        sa.Column("account", NAME, nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("shares", sa.Integer()),
        sa.Column("default", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.ForeignKeyConstraint(["account"], ["accounts.name"], name="fk_members_account", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("account", "user", name="pk_members"),
    )
    op.create_table(
        "usages",
        sa.Column("account", NAME, nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("amount", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("account", "user", name="pk_usages"),
    )
    op.create_table(
        "usage_days",
        sa.Column("account", NAME, nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("cluster", NAME, nullable=False),
        sa.Column("type", NAME, nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("used", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("account", "user", "cluster", "type", "day", name="pk_usage_days"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "budgets",
        sa.Column("account", NAME, nullable=False),
        sa.Column("period", sa.String(16), nullable=False),
        sa.Column("held", sa.Double(), nullable=False),
        sa.Column("charged", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("account", "period", name="pk_budgets"),
    )
    op.create_table(
        "holds",
        sa.Column("job", sa.String(64), nullable=False),
        sa.Column("account", NAME, nullable=False),
        sa.Column("period", sa.String(16), nullable=False),
        sa.Column("of", JSON, nullable=False),
        sa.Column("held", sa.Double(), nullable=False),
        sa.Column("per_task", sa.Double(), nullable=False),
        sa.Column("charged", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_holds_job", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job", "account", name="pk_holds"),
    )
    op.add_column("jobs", sa.Column("account", NAME, nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("rate", sa.Double(), nullable=False, server_default="0"))
    op.add_column("tasks", sa.Column("account", NAME, nullable=False, server_default=""))
    op.add_column("credentials", sa.Column("accounts", JSON))
    where = sa.text("account <> ''")
    columns = ["account", "state"]
    op.create_index("ix_jobs_account", "jobs", columns, sqlite_where=where, postgresql_where=where)
