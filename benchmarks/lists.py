"""Pages of jobs, and what is forgotten, beside long histories: what they cost as the ended jobs grow."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import sqlalchemy as sa

from benchmarks.host import server
from benchmarks.submits import stores
from benchmarks.timing import exponent
from rainbow.service.jobs.lifecycle import forget_old
from rainbow.store import Store, clusters, open_store, pages
from rainbow.store.clusters import ClusterRecord
from rainbow.store.pages import Filter

SIZES = (10_000, 100_000, 1_000_000)
TOKEN = frozenset(f"c{k}" for k in range(100))  # of 1,000 clusters
QUIET = frozenset(f"q{k}" for k in range(100))  # together one job of 1,000, and most of them old
MIDDLE = "{middle}"
PAGES = {
    "newest": Filter(),
    "oldest": Filter(oldest=True),
    "state": Filter(states=["FAILED"]),
    "requestor": Filter(requestors=["ann7"]),
    "rare requestor": Filter(requestors=["rare"]),
    "cluster": Filter(places=["c7"]),
    "quiet cluster": Filter(places=["q7"]),
    "cluster, state": Filter(places=["c7"], states=["FAILED"]),
    "requestor, state": Filter(requestors=["ann7"], states=["FAILED"]),
    "cluster, requestor": Filter(places=["c7"], requestors=["ann7"]),
    "token of 100": Filter(clusters=TOKEN),
    "middle page": Filter(clusters=TOKEN, before=MIDDLE),
    "oldest of 100": Filter(clusters=TOKEN, oldest=True),
    "100 quiet": Filter(clusters=QUIET),
    "token, state": Filter(clusters=TOKEN, states=["FAILED"]),
    "token, requestor": Filter(clusters=TOKEN, requestors=["rare"]),
    "own jobs of 100": Filter(clusters=TOKEN, own=dict.fromkeys(TOKEN, ("ann7",))),
}
ROWS = """
INSERT INTO jobs (id, name, requestor, cluster_id, cluster, jobspec, state, priority, nodes, submitted_at, ended_at,
                  ended_clock, decision)
WITH RECURSIVE numbers(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM numbers WHERE k < {size} - 1)
SELECT '00000000' || CAST(1000000000000000 + k AS VARCHAR), 'name',
    CASE WHEN k % 50000 = 77 THEN 'rare' ELSE 'ann' || CAST(k % 499 AS VARCHAR) END, {cluster}, {cluster},
    '"{filling}"', CASE WHEN k % 1000 = 3 THEN 'FAILED' ELSE 'COMPLETED' END, 0, 1, k, k, 1, '{{}}'
FROM numbers"""
CLUSTER = """CASE WHEN k % 1000 = 0 AND k < {size} / 2 THEN 'q' || CAST(k % 97 AS VARCHAR)
    ELSE 'c' || CAST(k % 997 AS VARCHAR) END"""


def listed(sizes: tuple[int, ...] = SIZES) -> None:
    """Print milliseconds of a page of 100 jobs by filter, and the exponent over the sizes."""
    with stores() as known:
        for name, make in known.items():
            results: dict[str, list[float]] = {}
            for size in sizes:
                with tempfile.TemporaryDirectory() as folder:
                    store = open_store(make(Path(folder)))
                    fill(store, size)
                    for which, chosen in PAGES.items():
                        results.setdefault(which, []).append(page_cost(store, chosen, size))
                    store.close()
            print(f"\n{name}, ms of a page" + "".join(f"{size:>12}" for size in sizes) + f"{'exponent':>12}")
            for which, times in results.items():
                grown = exponent(sizes, times)
                print(f"{which:>25}" + "".join(f"{one:>12.2f}" for one in times) + f"{grown:>12.2f}", flush=True)
            worst = max(times[-1] for times in results.values())
            print(f"{'the slowest':>25}{worst:>12.2f} ms of 5 promised")


def put_jobs(store: Store, connection: sa.Connection, size: int) -> None:
    """Store so many ended jobs."""
    rows = ROWS.format(size=size, cluster=CLUSTER.format(size=size), filling="x" * 200)
    connection.exec_driver_sql(rows.replace("%", "%%") if store.many_processes else rows)


def fill(store: Store, size: int) -> None:
    """Store so many ended jobs, and their clusters."""
    with store.write() as connection:
        put_jobs(store, connection, size)
        for name in [*(f"c{k}" for k in range(997)), *(f"q{k}" for k in range(97))]:
            clusters.add(connection, ClusterRecord(name, name, "any", "node", 0.0, "load_based"), {})
        if store.many_processes:  # as it does by itself within a minute
            connection.exec_driver_sql("ANALYZE jobs")


def forgetting(jobs_kept: int = 20_000) -> None:
    """Print ended jobs with a task forgotten each second of CPU, and what is left of the file."""
    with server() as service:
        fill(service.store, jobs_kept)
        with service.store.write() as connection:
            connection.exec_driver_sql(TASKS)
        file = Path(str(service.store.engine.url.database))
        size, began, times, gone = _on_disk(service.store, file), time.thread_time(), 0, 0
        while many := forget_old(service):
            gone, times = gone + many, times + 1
        spent = time.thread_time() - began
        rest = _on_disk(service.store, file) / size
    print(
        f"{gone} jobs forgotten at {gone / spent:.0f} a second of CPU, in {times} turns; {rest:.2f} of the file left"
    )


TASKS = """
INSERT INTO tasks (id, job, cluster_id, "index", gang, name, state, attempt, retries_left, placement, slots, agent,
                   output, detail)
SELECT id || '-0', id, cluster_id, 0, 0, 'task-0', 'COMPLETED', 1, 0, '{"n0": {"core": 1}}', 1, 'a', '', ''
FROM jobs"""


def _on_disk(store: Store, file: Path) -> int:
    with store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.stat().st_size


def page_cost(store: Store, chosen: Filter, size: int) -> float:
    """Return milliseconds of a page of 100 jobs."""
    if chosen.before == MIDDLE:
        chosen = replace(chosen, before=f"00000000{10**15 + size // 2}")

    def page() -> None:
        with store.read() as connection:
            pages.listing(connection, chosen)

    clock = time.perf_counter if store.many_processes else time.thread_time
    times = [clock()]
    for _ in range(8):
        page()
        times.append(clock())
    return min(after - before for before, after in pairwise(times)) * 1e3


if __name__ == "__main__":
    listed(tuple(int(size) for size in sys.argv[1:]) or SIZES)
