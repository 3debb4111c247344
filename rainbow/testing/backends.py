"""The contract of a matcher backend: the answers to the cases of cases/, whose clusters are written as one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, ClassVar

import pytest
import yaml

import rainbow
from rainbow.graph import Cluster
from rainbow.matching import backends

_PART = re.compile(r"\s*([a-z]+)(?:\*(\d+))?(?::(\d+)([A-Za-z]*))?(\(?)|\s*(\))")


def cluster(
    shape: str,
    name: str = "test",
    hung: list[dict[str, Any]] | None = None,
    properties: dict[str, list[str]] | None = None,
    site: dict[str, Any] | None = None,
    **options: Any,
) -> Cluster:
    """Build the cluster of a shape; `hung` lists subsystem vertices as {at, subsystem, type, ...metadata}.

    `properties` gives some vertices theirs, `site` the words of the site about the graph.

    Vertices are called type + number in order of appearance: node0, node1, core0, ...
    """
    graph = document(shape)
    for vertex, names in (properties or {}).items():
        graph["graph"]["nodes"][vertex]["metadata"]["properties"] = names
    if site is not None:
        graph["graph"]["metadata"] = site
    built = rainbow.read_cluster(graph, name=name, **options)
    for subsystem, hanging in subsystems(hung or []).items():
        built = built.with_subsystem(subsystem, hanging)
    return built


def document(shape: str) -> dict[str, Any]:
    """Write the graph of a shape as a document."""
    nodes: dict[str, Any] = {}
    edges: list[dict[str, str]] = []
    _grow(_parse(shape), None, nodes, edges)
    return {"graph": {"nodes": nodes, "edges": edges}}


def _parse(shape: str) -> list[Any]:
    stack: list[list[Any]] = [[]]
    for kind, times, size, unit, opens, closes in _PART.findall(shape):
        if closes:
            stack.pop()
            continue
        part: tuple[str, int, int, str, list[Any]] = (kind, int(times or 1), int(size or 1), unit, [])
        stack[-1].append(part)
        if opens:
            stack.append(part[4])
    return stack[0]


def _grow(parts: list[Any], parent: str | None, nodes: dict[str, Any], edges: list[dict[str, str]]) -> None:
    for kind, times, size, unit, below in parts:
        for _ in range(times):
            name = f"{kind}{sum(1 for node in nodes.values() if node['metadata']['type'] == kind)}"
            nodes[name] = {"metadata": {"type": kind, "name": name, "size": size, "unit": unit}}
            if parent:
                edges.append({"source": parent, "target": name, "relation": "contains"})
            _grow(below, name, nodes, edges)


def subsystems(hung: list[dict[str, Any]]) -> dict[str, Any]:
    """Write subsystem graphs by their names."""
    documents: dict[str, Any] = {}
    for k, entry in enumerate(hung):
        document = documents.setdefault(entry["subsystem"], {"graph": {"nodes": {}, "edges": []}})["graph"]
        metadata = {key: value for key, value in entry.items() if key not in ("at", "subsystem")}
        document["nodes"][f"hung{k}"] = {"metadata": {"name": f"hung{k}", **metadata}}
        document["edges"].append({"source": entry["at"], "target": f"hung{k}", "relation": "contains"})
    return documents


THREE_NODES = "cluster(rack(node*3(core*4)))"


def cases() -> Iterator[Any]:
    """Yield every case: a shape of a cluster, a request, and the answer."""
    for path in sorted((files("rainbow.testing") / "cases").iterdir(), key=lambda path: path.name):
        for case in yaml.safe_load(path.read_text(encoding="utf-8")):
            yield pytest.param(case, id=f"{path.name.removesuffix('.yaml')}: {case['name']}")


class BackendContract:
    """Tests of the backend called `name`."""

    name: ClassVar[str]

    @pytest.fixture
    def backend(self) -> str:
        """Return the backend's name."""
        return self.name

    @pytest.mark.parametrize("case", list(cases()))
    def test_case_gives_the_stated_answer(self, case: dict[str, Any], backend: str) -> None:
        built = cluster(case.get("shape", THREE_NODES), hung=case.get("hung"))
        document: dict[str, Any] = {key: case[key] for key in ("resources", "tasks") if key in case}
        verdict = rainbow.match(rainbow.parse_jobspec(document), [built], backend=backend)[0]
        if "reason" in case:
            assert not verdict.matched
            assert verdict.reason
            assert verdict.reason.why in (case["reason"], *case.get("alternatives", []))
            assert case.get("says", "") in verdict.reason.text
        else:
            assert verdict.matched, verdict.reason
            assert verdict.fits == case["fits"]

    def test_refusal_names_version_found_and_bounds(self, backend: str) -> None:
        built = cluster(
            "cluster(node(core))", hung=[{"at": "node0", "subsystem": "spack", "type": "p", "version": "0.5.2"}]
        )
        job = rainbow.parse_jobspec(
            {
                "resources": {
                    "x": {
                        "type": "node",
                        "requires": [{"name": "spack", "field": "version", "min": "0.7.1", "max": "0.7.5"}],
                    }
                }
            }
        )
        reason = rainbow.match(job, [built], backend=backend)[0].reason
        assert reason
        assert all(version in reason.text for version in ("0.5.2", "0.7.1", "0.7.5"))

    def test_take_stays_on_the_free_workers(self, backend: str) -> None:
        built = cluster("cluster(node*3(core*4))")
        job = rainbow.parse_jobspec({"resources": {"x": {"type": "core", "replicas": 2, "count": 2}}})
        take = backends.get(backend).take(job, built, ["node2"])
        assert take
        assert take.placed == (("x", {"node2": {"core": 2}}), ("x", {"node2": {"core": 2}}))
        assert backends.get(backend).take(job, built, []) is None

    def test_rack_with_a_busy_worker_is_not_taken_whole(self, backend: str) -> None:
        built = cluster("cluster(rack*2(node*2(core)))")
        job = rainbow.parse_jobspec({"resources": {"x": {"type": "rack"}}})
        take = backends.get(backend).take(job, built, ["node1", "node2", "node3"])
        assert take
        assert take.vertices == {"rack1": 1}
