"""Several servers on one PostgreSQL: submits, their CPU, and how often a connection was seen waiting for a lock."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa

from benchmarks.served import Served, fill, serving
from benchmarks.submits import CALLERS, SECONDS, WARM, Caller
from benchmarks.timing import heading, row

CLUSTERS, NODES = 1_000, 10
EVERY = 0.005  # seconds between two looks at what the connections wait for
LOCKS = "Lock"  # pg_stat_activity: locks that one transaction holds and another wants
WAITS = sa.text("SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE datname = :name AND state = 'active'")


class Watch:
    """Counts what busy connections wait for; "" is for nothing."""

    def __init__(self, url: str) -> None:
        self.seen: Counter[tuple[str, str]] = Counter()
        self._engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        self._name = sa.make_url(url).database
        self._done = threading.Event()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look until the block is left."""
        thread = threading.Thread(target=self._look)
        thread.start()
        yield
        self._done.set()
        thread.join()

    def _look(self) -> None:
        with self._engine.connect() as connection:
            mine = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
            query = sa.text(f"{WAITS.text} AND pid <> {mine}")
            while not self._done.wait(EVERY):
                self.seen.update((a or "", b or "") for a, b in connection.execute(query, {"name": self._name}))

    @property
    def share(self) -> float:
        """Percent of what was seen that waited for a lock."""
        return 100 * sum(self.locks.values()) / max(1, self.seen.total())

    @property
    def locks(self) -> Counter[str]:
        """What was waited for, of locks."""
        return Counter({name: n for (kind, name), n in self.seen.items() if kind == LOCKS})


def several(counts: tuple[int, ...] = (1, 2, 3)) -> None:
    """Print submits by servers, each with 8 callers; CPU of each and waits are to stay as they are with one."""
    from tests.support.postgres import postgres

    heading("servers on one PostgreSQL", "servers", "submits/s", "CPU ms", "times one", "lock waits %")
    first = 0.0
    with postgres(durable=True) as database:
        for count, workers in [*((count, 1) for count in counts), (1, 2)]:
            rate, cpu, watch = _together(database.new_database(), count, workers)
            first = first or cpu
            words = str(count) if workers == 1 else f"{count}, {workers} workers"
            row(words, rate, cpu, cpu / first, watch.share, *watch.locks.most_common(2))
    print("promised: 1.2 times the CPU of one, at most 5 % of samples in lock waits")


def _together(url: str, count: int, workers: int = 1) -> tuple[float, float, Watch]:
    """Return submits a second by all servers, milliseconds of their CPU for each, and what was waited for."""
    token = fill(url, CLUSTERS, NODES)
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(count)]
        servers = [stack.enter_context(_serving(url, folder, workers)) for folder in folders]
        callers = [Caller(served, token) for served in servers for _ in range(CALLERS * workers)]
        for caller in callers:
            for _ in range(WARM // CALLERS):
                caller.submit()
        watch, before, began = Watch(url), _cpu(servers), time.perf_counter()
        with watch.looking(), ThreadPoolExecutor(len(callers)) as pool:
            done = sum(pool.map(lambda one: one.until(began + 2 * SECONDS, one.submit), callers))
        spent = time.perf_counter() - began
        return done / spent, (_cpu(servers) - before) / done * 1e3, watch


def _serving(url: str, folder: Path, workers: int) -> AbstractContextManager[Served]:
    config = folder / "rainbow.yaml"
    config.write_text(f"server: {{workers: {workers}}}\n")
    return serving(url, folder, "--config", str(config))


def _cpu(servers: list[Served]) -> float:
    return sum(served.cpu() for served in servers)


if __name__ == "__main__":
    several(tuple(map(int, sys.argv[1:])) or (1, 2, 3))
