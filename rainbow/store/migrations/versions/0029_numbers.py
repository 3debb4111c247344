"""Jobs have numbers; those that there are get theirs in the order of their submission."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

from rainbow.errors import RainbowError
from rainbow.jobspec import parse_jobspec

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

ROWS = 1_000
jobs = sa.table("jobs", *(sa.column(name) for name in ("id", "jobspec", "state", "number", "elements")))
numbers = sa.table("numbers", sa.column("series"), sa.column("next"))


def upgrade() -> None:
    """Number every job; those of a server of the version before, which works beside it, have the number 0."""
    for name, kind in (("number", sa.BigInteger()), ("elements", sa.Integer())):
        op.add_column("jobs", sa.Column(name, kind, nullable=False, server_default="0"))
    op.create_table(
        "numbers",
        sa.Column("series", sa.String(100), primary_key=True),
        sa.Column("next", sa.BigInteger(), nullable=False),
    )
    if (following := _number_all(op.get_bind())) > 1:  # a new database stays empty: a backup can be restored into it
        op.execute(numbers.insert().values(series="jobs", next=following))
    op.create_index("ix_jobs_number", "jobs", ["number"])


def _number_all(connection: sa.Connection) -> int:
    """Number the jobs; return the number after the last."""
    number, last = 1, ""
    change = jobs.update().where(jobs.c.id == sa.bindparam("job"))
    change = change.values(number=sa.bindparam("own"), elements=sa.bindparam("many"))
    while True:
        query = sa.select(jobs.c.id, sa.cast(jobs.c.jobspec, sa.Text)).where(jobs.c.id > last)
        rows = connection.execute(query.where(jobs.c.state != "STAGED").order_by(jobs.c.id).limit(ROWS)).all()
        if not rows:
            return number
        changes = []
        for job, jobspec in rows:
            elements = _elements(jobspec) if "array" in jobspec else 0
            changes.append({"job": job, "own": number, "many": elements})
            number += max(1, elements)
        connection.execute(change, changes)
        last = rows[-1][0]


def _elements(jobspec: str) -> int:
    """Return how many elements the array of a stored jobspec has; 0 if it is none."""
    try:
        array = parse_jobspec(json.loads(jobspec)).array
    except (RainbowError, ValueError):  # it was accepted by a version that read more
        return 0
    return len(array.ids) if array else 0
