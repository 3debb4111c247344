"""The tables of accounts: the tree, qualities of service, what was used, budgets, and who asked for which change."""

from __future__ import annotations

import sqlalchemy as sa

from rainbow.store.schema import ID, JSON, NAME, TEXT, TIME, WORD, Words, metadata

accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("name", NAME, primary_key=True),
    sa.Column("parent", NAME, nullable=False, server_default=""),
    sa.Column("shares", sa.Integer),
    sa.Column("limits", JSON, nullable=False),
    sa.Column("budget", JSON, nullable=False),
    sa.Column("changes", sa.BigInteger, nullable=False, server_default="0"),
)

members = sa.Table(
    "members",
    metadata,
    sa.Column("account", NAME, sa.ForeignKey("accounts.name", ondelete="CASCADE"), nullable=False, primary_key=True),
    sa.Column("user", TEXT, nullable=False, primary_key=True),
    sa.Column("shares", sa.Integer),
    sa.Column("default", sa.Boolean, nullable=False, server_default=sa.false()),
)

qos = sa.Table("qos", metadata, sa.Column("name", NAME, primary_key=True), sa.Column("given", JSON, nullable=False))

former_clusters = sa.Table(  # removed clusters, as statements call them
    "former_clusters",
    metadata,
    sa.Column("id", ID, primary_key=True),
    sa.Column("name", NAME, nullable=False),
)

usages = sa.Table(
    "usages",
    metadata,
    sa.Column("account", NAME, primary_key=True),
    sa.Column("user", TEXT, primary_key=True),
    sa.Column("amount", sa.Double, nullable=False),  # weighted seconds, decayed
    sa.Column("at", TIME, nullable=False),  # until then
)

usage_days = sa.Table(
    "usage_days",
    metadata,
    sa.Column("account", NAME, primary_key=True),
    sa.Column("user", TEXT, primary_key=True),
    sa.Column("cluster", NAME, primary_key=True),  # its id
    sa.Column("type", NAME, primary_key=True),
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),  # since 1970, UTC
    sa.Column("used", sa.Double, nullable=False),  # amount times seconds
    sqlite_with_rowid=False,  # summed in the order of the key
)

budgets = sa.Table(
    "budgets",
    metadata,
    sa.Column("account", NAME, primary_key=True),
    sa.Column("period", WORD, primary_key=True),
    sa.Column("held", sa.Double, nullable=False),
    sa.Column("charged", sa.Double, nullable=False),
)

holds = sa.Table(
    "holds",
    metadata,
    sa.Column("job", ID, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, primary_key=True),
    sa.Column("account", NAME, primary_key=True),  # whose budget
    sa.Column("period", WORD, nullable=False),
    sa.Column("of", JSON, nullable=False),  # how usage counts
    *(sa.Column(name, sa.Double, nullable=False) for name in ("held", "per_task", "charged")),  # per task: at its end
)

audit = sa.Table(  # see rainbow/outcome.py
    "audit",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("at", TIME, nullable=False, index=True),
    sa.Column("request", ID, nullable=False),
    sa.Column("verb", NAME, nullable=False),
    sa.Column("object", Words(200), nullable=False, index=True),
    sa.Column("cluster_id", ID, nullable=False, index=True),
    *(sa.Column(name, TEXT, nullable=False) for name in ("credential", "login", "address", "path")),
)
