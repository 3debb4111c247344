"""A cluster after changes is the one that reading the changed document gives, and the one before stays as it is."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from rainbow import match, parse_jobspec, read_cluster
from rainbow.errors import GraphError, InputError
from rainbow.graph import Cluster
from rainbow.graph.delta import apply_delta
from rainbow.matching.equivalence.subtree_classes import classify
from tests.support.asking import shared_folder
from tests.unit.graph.test_graph_difference import structure

FILE = "fast/changes.json"


def unlike(nodes: int, seed: int) -> dict[str, Any]:
    """Return a document of racks and nodes of which no two are equal."""
    chance = random.Random(seed)
    vertices: dict[str, Any] = {"c": {"metadata": {"type": "cluster"}}}
    edges: list[Any] = []

    def put(vertex: str, above: str, **metadata: Any) -> None:
        vertices[vertex] = {"metadata": metadata}
        edges.append({"source": above, "target": vertex})

    for k in range(nodes):
        if k % 4 == 0:
            put(f"r{k // 4}", "c", type="rack")
        put(f"n{k}", f"r{k // 4}", type="node", rank=k, properties=chance.sample(["a", "b", "d", "e"], 2))
        for s in range(2):
            put(f"n{k}s{s}", f"n{k}", type="socket")
            for one in range(chance.randint(1, 4)):
                put(f"n{k}s{s}c{one}", f"n{k}s{s}", type="core")
            put(f"n{k}s{s}m", f"n{k}s{s}", type="memory", size=chance.randint(1, 9), unit="GB")
    return {"graph": {"nodes": vertices, "edges": edges}}


def change(document: Any, chance: random.Random, k: int) -> dict[str, Any]:
    """Return a change, in half of all cases one that is to be refused."""
    vertex = chance.choice([*document["graph"]["nodes"]])
    nodes = [name for name, one in document["graph"]["nodes"].items() if one["metadata"]["type"] == "node"]
    new = {f"x{k}": {"metadata": {"type": "node", "rank": 900 + k}}, f"x{k}c": {"metadata": {"type": "core"}}}
    tied = [{"source": "c", "target": f"x{k}"}, {"source": f"x{k}", "target": f"x{k}c"}]
    good: list[dict[str, Any]] = [
        {"op": "set", "vertex": vertex, "properties": chance.sample(["a", "b", "z"], 2)},
        {"op": "resize", "vertex": vertex, "size": chance.randint(1, 9)},
        {"op": "add", "nodes": new, "edges": tied},
    ]
    if len(nodes) > 2:
        good.append({"op": "remove", "vertex": chance.choice(nodes)})
        if vertex != "c" and document["graph"]["nodes"][vertex]["metadata"]["type"] != "rack":
            good.append({"op": "remove", "vertex": vertex})
    bad: list[dict[str, Any]] = [
        {"op": "remove", "vertex": "nowhere"},
        {"op": "remove", "vertex": "c"},
        {"op": "resize", "vertex": vertex, "size": 0},
        {"op": "set", "vertex": vertex, "properties": 7},
        {"op": "set", "vertex": vertex},
        {"op": "add", "nodes": {vertex: {"metadata": {"type": "node"}}}, "edges": []},
        {"op": "add", "nodes": new, "edges": tied[:1]},
        {"op": "add", "nodes": new, "edges": [*tied, {"source": f"x{k}c", "target": f"x{k}"}]},
        {"op": "add", "nodes": new, "edges": [*tied, {"source": "nowhere", "target": f"x{k}"}]},
        {"op": "add", "nodes": {f"x{k}": {"metadata": {"size": 1}}}, "edges": tied[:1]},
    ]
    return chance.choice(bad if chance.random() < 0.5 else good)


def read_changed(document: Any, changes: Any) -> Cluster:
    return read_cluster(apply_delta(document, changes), "oak")


def outcome(act: Callable[..., Cluster], *inputs: Any) -> tuple[Cluster | None, tuple[str, str]]:
    try:
        return act(*inputs), ("", "")
    except InputError as fault:
        return None, (fault.message, fault.pointer or "")


def look(cluster: Cluster) -> Any:
    return structure(cluster), list(cluster.workers), cluster.totals, cluster.worker_count


def follow(seed: int, steps: int, at_once: int = 1) -> None:
    chance, document = random.Random(seed), unlike(8, seed)
    cluster, refused = read_cluster(document, "oak"), 0
    for k in range(steps):
        changes = [change(document, chance, k * at_once + one) for one in range(at_once)]
        before = look(cluster) if k % 5 == 0 else None
        made, fault = outcome(cluster.changed, changes)
        whole, same = outcome(read_changed, document, changes)
        assert fault == same, changes
        if before is not None:
            assert look(cluster) == before
        if made is None or whole is None:
            refused += 1
            continue
        assert look(made) == look(whole), changes
        cluster, document = made, apply_delta(document, changes)
        if chance.random() < 0.5:
            classify(cluster)
    assert 0 < refused < steps


@pytest.mark.parametrize("seed", range(4))
def test_changes_in_a_row_give_what_reading_the_document_gives(seed: int) -> None:
    follow(seed, 60)


@pytest.mark.parametrize("seed", range(4, 6))
def test_several_changes_at_once_hold_all_together_or_not_at_all(seed: int) -> None:
    follow(seed, 60, at_once=2)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 120))
def test_ten_thousand_changes(seed: int) -> None:
    follow(seed, 500)


def test_a_change_reads_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    document = unlike(8, 1)
    cluster = read_cluster(document, "oak")
    classify(cluster)
    for changes in (
        [{"op": "set", "vertex": "n1", "properties": ["z"]}, {"op": "resize", "vertex": "n1s0m", "size": 3}],
        [{"op": "remove", "vertex": "n2"}],
        [{"op": "add", "nodes": {"x": {"metadata": {"type": "core"}}}, "edges": [{"source": "n1", "target": "x"}]}],
    ):
        count = len(cluster.outline.ids)
        revision = cluster.revision(changes, count, count - 1)
        assert revision is not None, changes
        cluster = cluster.revised(revision)


def test_subsystems_and_queues_stay_where_a_cluster_is_changed() -> None:
    document = unlike(4, 1)
    document["graph"]["metadata"] = {"queues": {"debug": {"requires": ["a"]}}, "default_queue": "debug"}
    software = {"graph": {"nodes": {"g": {"metadata": {"type": "package", "name": "gcc"}}}, "edges": []}}
    software["graph"]["edges"] = [{"source": "n0", "target": "g"}]
    before = read_cluster(document, "oak").with_subsystem("software", software)
    changes = [{"op": "resize", "vertex": "n1s0m", "size": 4}]
    after = before.changed(changes)
    whole = read_cluster(apply_delta(document, changes), "oak").with_subsystem("software", software)
    assert structure(after) == structure(whole)
    assert after.subsystems["software"].attached == whole.subsystems["software"].attached
    with pytest.raises(GraphError, match="does not refer to a vertex"):
        before.changed([{"op": "remove", "vertex": "n0"}])


def test_handed_changes_have_the_answers_that_reading_the_whole_gives() -> None:
    file = shared_folder() / FILE
    if not file.exists():
        pytest.skip(f"{FILE} is not in this folder of shared inputs")
    judged = 0
    for case in json.loads(file.read_text()):
        cluster = read_cluster(case["graph"], "c")
        jobs = [parse_jobspec(json.dumps(job)) for job in case["jobs"]]
        for step in case["steps"]:
            made, (text, pointer) = outcome(cluster.changed, step["changes"])
            judged += 1
            if made is None:
                assert (text, pointer) == (step["error"], step["pointer"])
                continue
            expect, cluster = step["expect"], made
            assert dict(cluster.totals) == expect["totals"]
            assert len(cluster.workers) == expect["workers"]
            assert [match(job, [cluster])[0].matched for job in jobs] == expect["matched"]
    assert judged >= 80
