"""Matching: how its cost grows with vertices and with clusters, both backends and the peers' figures beside it."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Callable
from statistics import median

import rainbow
from benchmarks.clusters import (
    CORES,
    asking,
    between,
    cores,
    flat,
    listed,
    many,
    named,
    nodes,
    packaged,
    slots,
    with_memory,
)
from benchmarks.timing import heading, once, row, timed
from rainbow.graph import Cluster
from rainbow.jobspec import Constraint, Count, Need, Request, Resource
from rainbow.matching.equivalence.subtree_classes import Compiler
from rainbow.matching.index_backend import IndexBackend
from rainbow.matching.networkx_backend import NetworkxBackend
from rainbow.matching.workers.occupancy import Occupancy

Asked = Callable[[], Request]

REQUESTS: dict[str, Asked] = {
    "one core": lambda: slots(1, cores(1)),
    "one node": lambda: slots(1, nodes(1, cores(CORES))),
    "32 nodes": lambda: slots(32, nodes(1, cores(CORES))),
    "cores + 1": lambda: slots(1, cores(CORES + 1)),
    "nodes + 1": lambda: asking(nodes(10**7)),
    "no property": lambda: asking(cores(1), constraint=Constraint("properties", ("none",))),
}
# µs, of Fluxion (C++, in process, YAML of about 45 µs included) at 100k and 1M vertices: see docs/benchmarks.md
FLUXION = {
    "one core": (64, None),
    "one node": (94, None),
    "32 nodes": (1_200, None),
    "cores + 1": (162_000, 2_000_000),
    "nodes + 1": (95_000, 1_200_000),
    "no property": (950, 13_000),
}


def fresh(index: IndexBackend, cluster: Cluster, query: Asked, runs: int = 15) -> float:
    """Time a request that was never seen, on a cluster that was."""
    request = query()
    index.match(request, cluster)

    def ask() -> None:
        index.forget()
        index.match(requests.pop(), cluster)

    requests = [query() for _ in range(runs + 1)]
    return timed(ask, runs) - timed(index.forget, runs)


def growth() -> None:
    """Print one request after another over 1k to 1M vertices."""
    index, walk = IndexBackend(), NetworkxBackend()
    heading("one cluster, us", "request", "vertices", "fresh", "seen", "networkx", "Fluxion, rec.")
    for name, query in REQUESTS.items():
        for size, peer in ((40, None), (400, None), (4_000, FLUXION[name][0]), (40_000, FLUXION[name][1])):
            cluster, request = flat(size), query()
            spent = fresh(index, cluster, query)
            seen = timed(lambda c=cluster, r=request: index.match(r, c), 31)  # type: ignore[misc]
            plain = timed(lambda c=cluster, r=request: walk.match(r, c), 3) if size <= 4_000 else None  # type: ignore[misc]
            row(name, size * (CORES + 1) + 1, spent, seen, plain or "-", peer or "-")


def over_clusters() -> None:
    """Print which of 10 to 10,000 clusters of about 1,000 nodes match; no two of them are equal."""
    index, walk = IndexBackend(), NetworkxBackend()
    need = (Need("spack", (named("name", "nowhere"),)),)
    query: dict[str, Asked] = {**REQUESTS, "no such package": lambda: slots(1, cores(1), needs=need)}
    heading("many clusters, us", "request", "clusters", "fresh", "seen", "networkx")
    print("recorded: 1,000 clusters of 87 and 52 vertices: Fluxion 75,000 to 140,000; Go rainbow 22,000 to 124,000")
    for count in (10, 100, 1_000, 10_000):
        clusters = [flat(1_000 + k, f"c{k}") for k in range(count)]
        index.match_all(slots(1, cores(1)), clusters)
        for name, ask in query.items():
            request = ask()
            spent = median(_fresh_over(index, ask(), clusters) for _ in range(7))
            seen = timed(lambda r=request, c=clusters: index.match_all(r, c), 7)  # type: ignore[misc]
            plain = once(lambda r=request, c=clusters: [walk.match(r, k) for k in c]) if count <= 10 else None  # type: ignore[misc]
            row(name, count, spent, seen, plain or "-")


def _fresh_over(index: IndexBackend, request: Request, clusters: list[Cluster]) -> float:
    index.forget()
    return once(lambda: index.match_all(request, clusters))


def needs() -> None:
    """Print needs over 1,000 nodes with 200 packages each, and hosts by name."""
    index, walk, cluster = IndexBackend(), NetworkxBackend(), packaged(1_000, 200)
    query: dict[str, Asked] = {
        "name": lambda: slots(2, cores(4), needs=(Need("spack", (named("name", "package-7"),)),)),
        "name, range": lambda: slots(
            2,
            cores(4),
            needs=(Need("spack", (named("name", "package-7"), between("version", "2.3", "3.1"))),),
        ),
        "never": lambda: slots(2, cores(4), needs=(Need("spack", (named("name", "nowhere"),)),)),
    }
    heading("1,000 nodes x 200 packages, us", "need", "fresh", "seen", "networkx")
    for name, ask in query.items():
        request = ask()
        spent = fresh(index, cluster, ask)
        seen = timed(lambda r=request: index.match(r, cluster), 31)  # type: ignore[misc]
        row(name, spent, seen, once(lambda r=request: walk.match(r, cluster)))  # type: ignore[misc]
    heading("hosts by name, us", "hosts", "fresh", "each")
    hosts = rainbow.read_cluster(listed(4_000))
    for count in (1, 10, 100, 1_000, 4_000):
        rule = Constraint("hostlist", (f"node[0-{count - 1}]",))
        spent = fresh(index, hosts, lambda r=rule: asking(cores(1), constraint=r))  # type: ignore[misc]
        row(count, spent, spent / count)


def differing() -> None:
    """Print a cluster where every node differs, and siblings that collide across nodes."""
    index, walk, cluster = IndexBackend(), NetworkxBackend(), rainbow.read_cluster(listed(1_000, differ=True))
    siblings = asking(cores(100), nodes(20, cores(4)), Resource("node", many(2), exclusive=True))
    heading("25,001 vertices, us", "case", "fresh", "networkx", "ratio")
    for name, ask, where in (
        ("all differ, yes", lambda: slots(2, cores(4)), cluster),
        ("all differ, no", lambda: slots(2, cores(2_000)), cluster),
        ("siblings", lambda: Request(siblings.variants, ()), flat(1_000)),
    ):
        plain = timed(lambda a=ask, c=where: walk.match(a(), c).matched, 1)  # type: ignore[misc]
        spent = fresh(index, where, ask, 5)
        row(name, spent, plain, plain / spent)


def compiling() -> None:
    """Print what reading and compiling cost a vertex, and what they leave in memory."""
    heading("registering, us a vertex", "form", "vertices", "read", "order", "compile", "bytes")
    for size in (400, 4_000, 40_000):
        document = listed(size) if size <= 4_000 else None
        for form, options in (("listed", document), ("template", None)):
            if form == "listed" and document is None:
                continue
            _compile_row(form, size, options)


def _compile_row(form: str, size: int, document: dict[str, object] | None) -> None:
    read: list[Cluster] = []
    total = size * (CORES + 1) + 1
    gc.collect()
    make = (lambda: read.append(rainbow.read_cluster(document))) if document else (lambda: read.append(flat(size)))
    spent = once(make)
    ordered = once(lambda: read[0].outline.below)
    compiled = once(lambda: Compiler(read[0]).kinds())
    row(form, total, spent / total, ordered / total, compiled / total, resident(form, size) / total)


def resident(form: str, size: int) -> float:
    """Bytes that a compiled cluster keeps, what it keeps of its document included."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    cluster = flat(size) if form == "template" else rainbow.read_cluster(listed(size))
    stored = (cluster, Compiler(cluster).kinds())
    gc.collect()
    spent = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del stored
    return float(spent)


def taking() -> None:
    """Print takes and releases per second until a cluster is full; Fluxion allocates and does not free."""
    heading("take and release a second, 100,001 vertices", "shape", "takes", "take", "both", "Fluxion, rec.")
    ten = [slots(n, nodes(1)) for n in range(55, 65)]
    for name, requests, most, peer in (
        ("one core", [slots(1, cores(1))], 96_000, 5_600),
        ("mixed cores", [slots(1, cores(n)) for n in (1, 2, 3, 5, 7)], 20_000, None),
        ("one node", [slots(1, nodes(1, cores(CORES)))], 4_000, 2_600),
        ("64 nodes", [slots(64, nodes(1))], 62, 100),
        ("64 of ten shapes", ten, 60, None),
        ("512 nodes", [slots(512, nodes(1))], 7, None),
    ):
        _take_row(name, requests, most, peer)


def _take_row(name: str, requests: list[Request], most: int, peer: int | None) -> None:
    occupancy = Occupancy(flat(4_000))
    for request in requests:  # the first take of a request looks at every kind of worker
        held = occupancy.take(request)
        if held:
            occupancy.release(held.number)
    numbers: list[int] = []

    def fill() -> None:
        for k in range(most):
            holding = occupancy.take(requests[k % len(requests)])
            if holding:
                numbers.append(holding.number)

    def empty() -> None:
        for number in numbers:
            occupancy.release(number)

    filling, emptying = once(fill), once(empty)
    count = len(numbers)
    row(name, count, count / filling * 1e6, count / (filling + emptying) * 1e6, peer or "-")


def churning() -> None:
    """Print releases and takes of mixed cores and memory on used nodes, all alike or each of its own kind."""
    heading(
        "release + take a second, 18 shapes of cores and memory, 3 jobs a node",
        "nodes",
        "alike",
        "Fluxion, rec.",
        "differ",
    )
    for size, peer in ((240, 656), (2_400, 532)):
        row(size, _churned(with_memory(size)), peer, _churned(with_memory(size, differ=True)))


def _churned(cluster: Cluster, pairs: int = 4_000) -> float:
    chance, occupancy = random.Random(1), Occupancy(cluster)
    shapes = [slots(1, cores(c), Resource("memory", Count(m, m))) for c in (1, 2, 3, 4, 6, 8) for m in (2, 5, 11)]
    numbers = [
        held.number for _ in range(3 * len(occupancy.states)) if (held := occupancy.take(chance.choice(shapes)))
    ]

    def churn() -> None:
        for _ in range(pairs):
            at = chance.randrange(len(numbers))
            occupancy.release(numbers[at])
            while (held := occupancy.take(chance.choice(shapes))) is None:
                pass
            numbers[at] = held.number

    once(churn)
    return pairs / once(churn) * 1e6


def grouping() -> None:
    """Print what a request of two groups of slots takes, first and again, and what building the occupancy takes."""
    heading("four slots of cores and one of memory, taken in ms", "nodes", "first", "again", "built")
    for size in (1_000, 10_000):
        row(size, *_grouped(with_memory(size)))


def _grouped(cluster: Cluster) -> tuple[float, ...]:
    occupancies: list[Occupancy] = []
    built = once(lambda: occupancies.append(Occupancy(cluster)))
    occupancy = occupancies[0]
    memory = slots(1, Resource("memory", Count(2, 2)), label="memory")
    request = Request(((*slots(4, cores(2)).resources, *memory.resources),), ())
    first = once(lambda: occupancy.take(request))
    return first / 1e3, timed(lambda: occupancy.take(request)) / 1e3, built / 1e3


def main() -> None:
    """Run all of it."""
    growth()
    over_clusters()
    needs()
    differing()
    taking()
    churning()
    grouping()
    compiling()
