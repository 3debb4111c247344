"""Words of scripts that several nodes answer together, beside a plain specification that tries every choice of nodes.

`total`, `within: job`, `counts`, `at_least`, models of devices and threads of cores on small clusters: each set of
nodes, each spread of slots and of the job's own devices over them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rainbow
from rainbow.graph import Cluster, read_cluster
from rainbow.jobspec import parse_jobspec
from tests.conftest import examples

MODELS, RACKS = ("a100", "h100"), ("rack1", "rack2")
BACKENDS = ("index", "networkx")


@dataclass(frozen=True)
class Node:
    """A node: cores of some threads, GPUs by model, its properties."""

    cores: int
    threads: int
    gpus: tuple[tuple[str, int], ...]
    racks: frozenset[str]

    def gives(self, slots: int, job: Job, shares: int) -> bool:
        """Return whether it has what some slots, what is beside them, and a share of the job's GPUs take."""
        cpus = job.cpus * slots
        if -(-cpus // self.threads) > self.cores:
            return False
        demands = [(job.slot_gpus * slots, job.slot_model), (job.beside, job.beside_model), (shares, job.share_model)]
        enough = all(size >= sum(count for count, model in demands if model == name) for name, size in self.gpus)
        return enough and sum(size for _, size in self.gpus) >= sum(count for count, _ in demands)


@dataclass(frozen=True)
class Job:
    """A request: slots on some number of nodes; GPUs of a slot, a node and the job; counted properties."""

    low: int
    high: int
    slots: int
    cpus: int
    slot_gpus: int
    slot_model: str
    beside: int
    beside_model: str
    shares: int
    share_model: str
    counts: tuple[tuple[str, int], ...]
    least_cores: int

    def fits(self, nodes: Sequence[Node]) -> bool:
        """Return whether some choice of nodes gives all of it: the specification."""
        able = [node for node in nodes if node.cores >= self.least_cores]
        for size in range(self.low, min(self.high, len(able), self.slots) + 1):
            for chosen in combinations(able, size):
                if any(sum(rack in node.racks for node in chosen) < least for rack, least in self.counts):
                    continue
                spreads = product(
                    _shares(self.slots, size), _shares(self.shares, size) if self.shares else [(0,) * size]
                )
                if any(
                    all(node.gives(n, self, k) for node, n, k in zip(chosen, slots, shares, strict=True))
                    for slots, shares in spreads
                ):
                    return True
        return False

    def document(self) -> dict[str, Any]:
        """Return the jobspec."""
        inside = [{"type": "cpu", "count": self.cpus}, *_gpus(self.slot_gpus, self.slot_model)]
        slot = {"type": "slot", "total": self.slots, "with": inside}
        node = {"type": "node", "count": f"{self.low}-{self.high}" if self.low < self.high else self.low}
        resources: dict[str, Any] = {"job": {**node, "with": [slot, *_gpus(self.beside, self.beside_model)]}}
        for one in _gpus(self.shares, self.share_model):
            resources["gpus"] = {**one, "within": "job"}
        constraints = [
            *([{"counts": dict(self.counts)}] if self.counts else []),
            *([{"at_least": {"core": self.least_cores}}] if self.least_cores else []),
        ]
        system = {"constraints": {"and": constraints}} if constraints else {}
        task = {"command": ["true"], "resources": "job", "count": {"total": 1}}
        return {"version": 1, "resources": resources, "tasks": [task], "attributes": {"system": system}}


def _gpus(count: int, model: str) -> Iterator[dict[str, Any]]:
    if count:
        need = {"requires": [{"name": "containment", "field": "model", "match": model}]} if model else {}
        yield {"type": "gpu", "count": count, **need}


def _shares(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to divide a total into parts of at least one."""
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        yield from ((first, *rest) for rest in _shares(total - first, parts - 1))


def cluster_of(nodes: Sequence[Node]) -> Cluster:
    vertices: dict[str, Mapping[str, Any]] = {"c": {"type": "cluster"}}
    edges = []
    for k, node in enumerate(nodes):
        properties = dict.fromkeys(sorted(node.racks), "")
        vertices[f"n{k}"] = {"type": "node", "name": f"n{k}", "threads": node.threads, "properties": properties}
        edges.append(("c", f"n{k}"))
        for kind, count in (("core", node.cores), *node.gpus):
            if count:
                place = f"n{k}{kind}"
                device = {"type": kind} if kind == "core" else {"type": "gpu", "model": kind}
                vertices[place] = {**device, "size": count}
                edges.append((f"n{k}", place))
    graph = {
        "nodes": {key: {"metadata": data} for key, data in vertices.items()},
        "edges": [{"source": a, "target": b} for a, b in edges],
    }
    return read_cluster({"graph": graph, "name": "oak"})


NODES = st.builds(
    Node,
    cores=st.integers(1, 4),
    threads=st.sampled_from([1, 1, 2]),
    gpus=st.tuples(*(st.tuples(st.just(model), st.integers(0, 2)) for model in MODELS)),
    racks=st.sets(st.sampled_from(RACKS)).map(frozenset),
)
MODEL = st.sampled_from(["", "", *MODELS])
JOBS = st.builds(
    lambda low, more, slots, **rest: Job(low=low, high=low + more, slots=slots + low - 1, **rest),
    low=st.integers(1, 3),
    more=st.integers(0, 2),
    slots=st.integers(1, 4),
    cpus=st.integers(1, 3),
    slot_gpus=st.sampled_from([0, 0, 1]),
    slot_model=MODEL,
    beside=st.sampled_from([0, 0, 1, 2]),
    beside_model=MODEL,
    shares=st.sampled_from([0, 0, 3, 4]),
    share_model=MODEL,
    counts=st.sampled_from([(), (), (("rack1", 1),), (("rack1", 1), ("rack2", 2))]),
    least_cores=st.sampled_from([0, 0, 3]),
)


@pytest.mark.hypothesis
@settings(max_examples=examples(2000), deadline=None)
@given(st.lists(NODES, min_size=1, max_size=4), JOBS)
def test_both_backends_say_what_trying_every_choice_says(nodes: list[Node], job: Job) -> None:
    cluster, request = cluster_of(nodes), parse_jobspec(job.document())
    expected = job.fits(nodes)
    assert {name: rainbow.match(request, [cluster], name)[0].matched for name in BACKENDS} == dict.fromkeys(
        BACKENDS, expected
    )
