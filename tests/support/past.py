"""What ran long ago, written into a store at once: many jobs like one, and a job of many tasks."""

from __future__ import annotations

import sqlalchemy as sa

from rainbow.store import Store
from rainbow.store.schema import jobs, record_uses, tasks

LAST = 86_000  # seconds in which the tasks of a job have run
WORKERS = 500  # they ran on


def jobs_like(store: Store, job: str, many: int, now: float) -> None:
    """Keep copies of a job and its task that have ended, older than all others, of 40 users."""
    own = {"id": "printf('17%022x', k)", "requestor": "printf('user%02d', k % 40)", "idempotency": "NULL"}
    over = {"state": "'COMPLETED'", "ended_at": f"{now} - 41 * k", "stamp": "0", "wait": "NULL"}
    task = {"id": "printf('17%022x-0', k)", "job": own["id"]}
    changes = (
        (jobs, "id", {**own, **over}),
        (tasks, "job", {**over, **task}),
        (record_uses, "job", {"job": own["id"]}),
    )
    for table, key, changed in changes:
        names = [column.name for column in table.c]
        values = ", ".join(changed.get(name, f'"{name}"') for name in names)
        listed = ", ".join(f'"{name}"' for name in names)
        counted = "WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < :many)"
        copies = f'SELECT {values} FROM n, {table.name} WHERE "{key}" = :job'  # noqa: S608
        with store.write() as connection:
            text = f"INSERT INTO {table.name} ({listed}) {counted} {copies}"
            connection.execute(sa.text(text), {"job": job, "many": many})


def tasks_of(store: Store, job: str, many: int, now: float) -> None:
    """Give a job many tasks that have run in the last day, and end it."""
    with store.write() as connection:
        [first] = connection.execute(sa.select(tasks).where(tasks.c.job == job)).mappings()
        rows = []
        for k in range(many):
            begun = now - LAST + (k // WORKERS) * 4_000 + (k * 37) % 900
            times = {"assigned_at": begun, "started_at": begun, "ended_at": begun + 600 + (k * 61) % 2_500}
            own = {"id": f"{job}-{k + 1}", "index": k + 1, "gang": k + 1, "state": "COMPLETED"}
            rows.append({**first, **own, **times, "placement": {f"n{k % WORKERS}": {"core": 1}}})
        connection.execute(tasks.insert(), rows)
        connection.execute(jobs.update().where(jobs.c.id == job).values(state="COMPLETED", ended_at=now))
