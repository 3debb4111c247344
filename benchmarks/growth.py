"""All at once in one store: a million ended jobs, 10,000 clusters, 100,000 workers in one of them, 1,000 agents."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator

from benchmarks import served
from benchmarks.host import WHO
from benchmarks.lists import PAGES, page_cost, put_jobs
from benchmarks.scale import scrape
from benchmarks.submits import jobspec
from benchmarks.timing import exponent, heading, row, timed
from rainbow.service import Service, Settings
from rainbow.service.agents.protocol import heartbeat, receive
from rainbow.service.clusters.registration import register
from rainbow.service.placement.batch import submit
from rainbow.service.placement.submission import Submission
from rainbow.store import open_store

JOBS, CLUSTERS, WORKERS, AGENTS = 1_000_000, 10_000, 100_000, 1_000
PARTS = (0.1, 0.3, 1.0)  # of all of these
WANTED = {"submit": 1.5, "heartbeat": 1, "empty receive": 1, "the slowest page": 5, "/metrics": 50}


def growing(parts: tuple[float, ...] = PARTS) -> None:
    """Print milliseconds of CPU of what is asked most, as everything grows."""
    heading(f"{JOBS} ended jobs, {CLUSTERS} clusters, {WORKERS} workers, {AGENTS} agents", "ms", *map(str, parts))
    results: dict[str, list[float]] = {what: [] for what in WANTED}
    for part in parts:
        with tempfile.TemporaryDirectory() as folder:
            for what, cost in _costs(f"{folder}/rainbow.db", part):
                results[what].append(cost)
    for what, costs in results.items():
        row(what, *costs, f"wanted {WANTED[what]:g}", f"exponent {exponent(parts, costs):.2f}")


def _costs(url: str, part: float) -> Iterator[tuple[str, float]]:
    began = time.monotonic()
    served.fill(url, int(part * CLUSTERS), 10)
    service = Service(open_store(url), Settings())
    with service.store.write() as connection:
        put_jobs(service.store, connection, int(part * JOBS))
    _join(service, int(part * WORKERS), int(part * AGENTS))
    print(f"{part:>16.0%} made in {time.monotonic() - began:.0f} s", file=sys.stderr)
    yield "submit", timed(lambda: submit(service, WHO, Submission(jobspec=jobspec())), 101) / 1e3
    own = [f"n{n}" for n in range(7, int(part * WORKERS), int(part * AGENTS))]
    yield "heartbeat", timed(lambda: heartbeat(service, WHO, "oak", "a7", own, []), 101) / 1e3
    yield "empty receive", timed(lambda: receive(service, WHO, "oak", "a7", 8, 0.0), 101) / 1e3
    yield "the slowest page", max(page_cost(service.store, chosen, int(part * JOBS)) for chosen in PAGES.values())
    for _ in range(len(service.catalogue) // 20 + 1):
        scrape(service)
    yield "/metrics", timed(lambda: scrape(service), 5) / 1e3
    service.close()


def _join(service: Service, workers: int, agents: int) -> None:
    """Register one large cluster and let its agents say that they are there, each for its part of the workers."""
    vertices = {"c": {"type": "cluster"}, "n": {"type": "node", "count": workers}}
    nodes = {key: {"metadata": data} for key, data in vertices.items()}
    graph = {"graph": {"nodes": nodes, "edges": [{"source": "c", "target": "n"}]}}
    register(service, WHO, {"name": "oak", "graph": graph})
    for k in range(agents):
        own = [f"n{n}" for n in range(k, workers, agents)]
        heartbeat(service, WHO, "oak", f"a{k}", own, [])


if __name__ == "__main__":
    growing(tuple(float(part) for part in sys.argv[1:]) or PARTS)
