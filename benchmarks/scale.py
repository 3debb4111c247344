"""What one call costs beside many clusters, many vertices or many starts; see docs/scale.md."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import sqlalchemy as sa
import yaml

import rainbow
from benchmarks.host import WHO
from benchmarks.load_based import world
from benchmarks.served import Graph, fill, listed, template
from benchmarks.submits import jobspec
from benchmarks.timing import exponent, once, timed
from rainbow.graph import Cluster
from rainbow.graph.delta import apply_delta, changes_between
from rainbow.matching import prepare
from rainbow.scheduling import LoadBased
from rainbow.service import Service, Settings
from rainbow.service.clusters.graphs import patch_graph
from rainbow.service.core.counters import exposition
from rainbow.service.placement.batch import submit
from rainbow.service.placement.submission import Submission
from rainbow.service.queries.monitoring import gauges, metrics
from rainbow.store import cluster_states, clusters, open_store
from rainbow.store.schema import jobs, record_uses, records

CONSTRAINT = {"priorities": [{"priority": 1, "steps": [{"filter": "nodes_free > 0"}, {"sort_ascending": "cost"}]}]}


def scaling(
    counts: tuple[int, ...] = (100, 1_000, 10_000), vertices: tuple[int, ...] = (1_000, 10_000, 100_000)
) -> None:
    """Print all of them, in milliseconds of CPU."""
    _reading()
    _starts()
    _growing_graph(vertices)
    _many_clusters(counts)


def _say(what: str, demand: float, *result: float, sizes: Sequence[float] = ()) -> None:
    grown = f"   exponent {exponent(sizes, result):.2f}" if len(sizes) > 1 else ""
    print(f"{what:>48}" + "".join(f"{one:>12.3f}" for one in result) + f"   wanted {demand:g}{grown}", flush=True)


def _reading() -> None:
    one, text = jobspec(), json.dumps(jobspec())
    for what, source, requirement in (
        ("mapping", one, 0.08),
        ("JSON", text, 0.08),
        ("YAML", yaml.safe_dump(one), 0.25),
    ):
        _say(f"a jobspec read, {what}", requirement, timed(partial(rainbow.parse_jobspec, source), 301) / 1e3)


def _starts() -> None:
    view = world(10_000, 10_000, 5_000, 1_000)
    plan = LoadBased().plan(view)
    _say(f"load_based, {len(plan.orders)} starts", 10, timed(lambda: LoadBased().plan(view)) / 1e3)


def _growing_graph(sizes: tuple[int, ...]) -> None:
    results = []
    for size in sizes:
        document = listed(1, size // 5)
        changes = _one_more(document, "c", "x")

        before = prepare(rainbow.read_cluster(document, "c"), "index")
        results.append([timed(partial(add, before, document, changes), 3) / 1e3 for add in (_read_again, _added)])
    for what, costs in zip(("read again", "added"), zip(*results, strict=True), strict=True):
        _say(f"one node more at {sizes} vertices, {what}", 20, *costs, sizes=sizes)
    for what, costs in zip(("first", "again"), zip(*map(_patched, sizes), strict=True), strict=True):
        _say(f"the same at a server, {what}", 20, *costs, sizes=sizes)


def _read_again(_: Cluster, document: Any, changes: Any) -> Cluster:
    return prepare(rainbow.read_cluster(apply_delta(document, changes), "c"), "index")


def _added(before: Cluster, _: Any, changes: Any) -> Cluster:
    return prepare(before.changed(changes), "index")


def _patched(size: int) -> tuple[float, float]:
    """Return what a node more costs a server that has read no vertex yet, and what the next costs."""
    with _service(1, size // 5, listed) as service:
        [name] = service.catalogue
        results = []
        for k in range(4):
            changes = {"changes": _grown(service, name, k)}
            results.append(once(partial(patch_graph, service, WHO, name, changes)) / 1e3)
        return results[0], median(results[1:])


def _one_more(document: Any, top: str, name: str) -> Any:
    """Return the changes that add a node."""
    graph = document["graph"]
    nodes = {**graph["nodes"], name: {"metadata": {"type": "node", "name": name}}}
    edges = [*graph["edges"], {"source": top, "target": name}]
    return changes_between(document, {"graph": {**graph, "nodes": nodes, "edges": edges}})


@contextmanager
def _service(count: int, nodes: int = 10, graph: Graph = template) -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as folder:
        fill(f"{folder}/rainbow.db", count, nodes, graph)
        service = Service(open_store(f"{folder}/rainbow.db"), Settings())
        with service.store.write() as connection:
            for number, entry in enumerate(service.catalogue.values()):
                cluster_states.put(connection, entry.id, {"nodes_free": 5, "cost": number % 97}, service.clock())
        yield service
        service.close()


def _many_clusters(counts: tuple[int, ...]) -> None:
    results: dict[str, list[float]] = {}
    for count in counts:
        with _service(count) as service:
            for what, cost in _costs(service).items():
                results.setdefault(what, []).append(cost)
    print(f"{'clusters':>48}" + "".join(f"{count:>12}" for count in counts))
    for what, costs in results.items():
        _say(what, WANTED[what], *costs, sizes=counts)


WANTED = {
    "submit, warm": 1.5,
    "submit after a graph has changed, times warm": 2,
    "submit under constraint": 10,
    "submit under constraint, a fresh shape": 10,
    "bytes of ledger a submit under constraint": 200,
    "/metrics, nothing new": 50,
}


def _costs(service: Service) -> dict[str, float]:
    def place(**options: Any) -> Callable[[], object]:
        return lambda: submit(service, WHO, Submission(jobspec=jobspec(), **options))

    for _ in range(20):
        place()()
    warm = median(once(place()) for _ in range(50)) / 1e3
    name = min(service.catalogue)
    after = []
    for k in range(5):
        grown = {"changes": _grown(service, name, k)}
        patch_graph(service, WHO, name, grown)
        after.append(once(place()) / 1e3)
    constraint = place(selector="constraint", options=CONSTRAINT)
    constraint()
    before = _ledger(service)
    spent = median(once(constraint) for _ in range(9)) / 1e3
    stored = (_ledger(service) - before) / 9
    fresh = median(once(partial(_constrained, service, 11 + k)) for k in range(9)) / 1e3
    for _ in range(len(service.catalogue) // 20 + 1):
        scrape(service)
    figures = timed(lambda: scrape(service), 3) / 1e3
    return dict(zip(WANTED, (warm, median(after) / warm, spent, fresh, stored, figures), strict=True))


def scrape(service: Service) -> bytes:
    """Answer a scrape as the server does."""
    return exposition(gauges(service), metrics(service))


def _constrained(service: Service, cores: int) -> object:
    """Submit a job of a shape that no other of this benchmark has."""
    job = jobspec()
    job["resources"]["work"]["with"][0]["count"] = cores
    return submit(service, WHO, Submission(jobspec=job, selector="constraint", options=CONSTRAINT))


def _grown(service: Service, name: str, k: int) -> Any:
    with service.store.read() as connection:
        document = clusters.document(connection, service.catalogue[name].id)
    return _one_more(document, "c", f"x{k}")


def _ledger(service: Service) -> int:
    with service.store.read() as connection:
        own = (
            connection.execute(sa.select(sa.func.sum(sa.func.length(sa.cast(jobs.c.decision, sa.Text))))).scalar()
            or 0
        )
        long = connection.execute(sa.select(sa.func.sum(sa.func.length(records.c.content)))).scalar() or 0
        uses = connection.execute(sa.select(sa.func.count()).select_from(record_uses)).scalar() or 0
    return int(own + long + 90 * uses)


if __name__ == "__main__":
    sizes = tuple(int(one) for one in sys.argv[1:])
    scaling(*((sizes, sizes) if sizes else ()))
