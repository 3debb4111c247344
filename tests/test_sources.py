"""Importing what Slurm, Flux and Kubernetes print: cases as data, and texts meant to hurt."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow import match, parse_jobspec
from rainbow.cli import main
from rainbow.cli.exits import Exit
from rainbow.errors import InputError, LimitError
from rainbow.graph import Cluster, Limits, read_cluster, write_jgf
from rainbow.graph.sources import graph_sources
from tests.test_graph_hostile import JUNK, places, put

CASES = Path(__file__).parent / "cases" / "sources"
SHARED = Path(__file__).parents[2] / "shared"
SMALL = Limits(vertices=2000, edges=4000, depth=50)


def read(name: str) -> list[Any]:
    listed = yaml.safe_load((CASES / name).read_text())
    return [pytest.param(case, id=case.get("name") or f"{case['source']}: {case['says']}") for case in listed]


def text_of(case: dict[str, Any]) -> str:
    if "text" in case:
        return str(case["text"])
    if "file" in case:
        return (CASES / case["file"]).read_text()
    if not (SHARED / case["shared"]).exists():
        pytest.skip(f"{case['shared']} is not here")
    return (SHARED / case["shared"]).read_text()


def imported(case: dict[str, Any]) -> tuple[dict[str, Any], Cluster]:
    document = graph_sources.get(case["source"])(text_of(case))
    return document, read_cluster(json.loads(json.dumps(document)))


def parts_of(cluster: Cluster, worker: str) -> dict[str, list[int]]:
    sizes: dict[str, list[int]] = {}
    for vertex in cluster.children(cluster.workers[worker]):
        fields = cluster.graph.nodes[vertex]
        sizes.setdefault(fields["type"], []).append(fields["size"])
    return sizes


@pytest.mark.parametrize("case", read("good.yaml"))
def test_import_gives_what_the_file_says(case: dict[str, Any]) -> None:
    document, cluster = imported(case)
    fields = {name: cluster.graph.nodes[vertex] for name, vertex in cluster.workers.items()}
    assert cluster.totals == case["totals"]
    assert cluster.name == case["called"]
    assert list(cluster.workers) == case.get("workers", list(cluster.workers))
    for worker, sizes in case.get("parts", {}).items():
        assert parts_of(cluster, worker) | sizes == parts_of(cluster, worker)
    for worker, names in case.get("properties", {}).items():
        assert sorted(fields[worker]["properties"]) == names
    for worker, rank in case.get("ranks", {}).items():
        assert fields[worker]["rank"] == rank
    down = {name: one["metadata"].get("unavailable") for name, one in fields.items()}
    assert {name: why for name, why in down.items() if why} == case["unavailable"]
    assert document["graph"].get("metadata", {}).get("left_out", []) == case.get("left_out", [])


@pytest.mark.parametrize("case", read("good.yaml"))
def test_import_has_the_cores_where_they_are_and_templates_where_they_are_exact(case: dict[str, Any]) -> None:
    document, cluster = imported(case)
    for worker, sockets in case.get("below", {}).items():
        found = {
            cluster.graph.nodes[vertex]["name"]: len(cluster.children(vertex))
            for vertex in cluster.children(cluster.workers[worker])
            if cluster.graph.nodes[vertex]["type"] == "socket"
        }
        assert found == sockets
    drawn = [node for node in document["graph"]["nodes"].values() if node["metadata"]["type"] == "node"]
    assert len(drawn) == case["drawn"]


@pytest.mark.parametrize("case", read("refused.yaml"))
def test_import_of_what_is_no_cluster_is_refused_with_its_place(case: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=case["says"]) as caught:
        graph_sources.get(case["source"])(case["text"])
    assert caught.value.code == case.get("code", "graph-invalid")
    assert caught.value.pointer == case.get("pointer")
    assert caught.value.line == case.get("line")


def test_flux_r_is_the_cluster_that_registering_r_itself_gives() -> None:
    for name in ("flux-r.json", "flux-r-equal.json", "flux-r-scheduling.json"):
        text = (CASES / name).read_text()
        through, itself = (read_cluster(d) for d in (graph_sources.get("flux-r")(text), json.loads(text)))
        assert through.totals == itself.totals
        assert list(through.workers) == list(itself.workers)
        for worker in itself.workers:
            one, other = (c.graph.nodes[c.workers[worker]] for c in (through, itself))
            assert [one[k] for k in ("rank", "properties")] == [other[k] for k in ("rank", "properties")]
            names = [[c.graph.nodes[v]["name"] for v in c.children(c.workers[worker])] for c in (through, itself)]
            assert names[0] == names[1]


def numbered(names: list[str]) -> str:
    return json.dumps({"nodes": [{"name": name, "cpus": 4} for name in names]})


@pytest.mark.parametrize(
    ("names", "drawn"),
    [
        (["n0", "n1", "n2", "n4", "n5"], 3),
        (["n0", "n1", "n2"], 1),
        (["n2", "n0", "n1"], 1),
        (["n1", "n2"], 2),
        (["n0", "n2"], 2),
        (["n00", "n01"], 2),
        (["n0"], 1),
        (["a0", "b0"], 2),
        (["0", "1"], 2),
        (["n0", "n1", "m"], 2),
    ],
)
def test_nodes_are_a_template_only_where_their_names_are(names: list[str], drawn: int) -> None:
    document = graph_sources.get("slurm")(numbered(names))
    assert sum(node["metadata"]["type"] == "node" for node in document["graph"]["nodes"].values()) == drawn
    assert sorted(read_cluster(document).workers) == sorted(names)


def test_nodes_that_differ_are_no_template() -> None:
    nodes = [{"name": f"n{i}", "cpus": 4, "state": ["DOWN"] if i else ["IDLE"]} for i in range(2)]
    document = graph_sources.get("slurm")(json.dumps({"nodes": nodes}))
    assert "count" not in str(document["graph"]["nodes"]["cluster/n0"])
    cluster = read_cluster(document)
    down = [cluster.graph.nodes[vertex]["metadata"].get("unavailable") for vertex in cluster.workers.values()]
    assert down == [None, "DOWN"]


def test_import_written_out_is_read_as_the_same_cluster() -> None:
    for case in read("good.yaml"):
        if "file" in case.values[0]:
            _, cluster = imported(case.values[0])
            again = read_cluster(write_jgf(cluster))
            assert (again.totals, list(again.workers)) == (cluster.totals, list(cluster.workers))


@pytest.mark.parametrize(
    ("file", "wanted", "constraint", "fits"),
    [
        ("slurm-scontrol-23.11.json", {"type": "gpu", "count": 4}, "gpu=a100", 5),
        ("slurm-scontrol-23.11.json", {"type": "core", "count": 64}, "nvlink", 4),
        ("slurm-scontrol-23.11.json", {"type": "core", "count": 90}, "partition=fat", 1),
        ("kubernetes-nodes.json", {"type": "core", "count": 7}, "pool=general", 2),
        ("flux-r.json", {"type": "gpu", "count": 4}, "amd-mi250", 4),
    ],
)
def test_imported_cluster_answers_a_constraint(file: str, wanted: Any, constraint: str, fits: int) -> None:
    source = next(name for name in graph_sources if file.startswith(name))
    cluster = read_cluster(graph_sources.get(source)((CASES / file).read_text()))
    spec = {
        "version": 1,
        "resources": [
            {"type": "node", "count": 1, "with": [{"type": "slot", "count": 1, "label": "s", "with": [wanted]}]}
        ],
        "tasks": [{"command": ["true"], "slot": "s", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 60, "constraints": {"properties": [constraint]}}},
    }
    for backend in ("index", "networkx"):
        (verdict,) = match(parse_jobspec(json.dumps(spec)), [cluster], backend=backend)
        assert (verdict.matched, verdict.fits) == (True, fits)


# ------------------------------------------------------------------ texts meant to hurt

GOOD = [
    (case.values[0]["source"], (CASES / case.values[0]["file"]).read_text())
    for case in read("good.yaml")
    if "file" in case.values[0]
]
PIECES = [
    "NodeName=",
    "\n",
    " ",
    ",",
    ":",
    "=",
    "(",
    ")",
    "[",
    "]",
    "0-3",
    "99999999999999999999",
    "é",
    "\x00",
    "\ud800",
]


def import_or_refuse(source: str, text: str) -> None:
    refused: InputError | None = None
    document: dict[str, Any] = {}
    try:
        document = graph_sources.get(source)(text, SMALL)
    except InputError as fault:
        refused = fault
    if refused is None:
        assert read_cluster(document, limits=SMALL).totals.get("node", 0) >= 1 or "scheduling" in text
    else:
        assert refused.pointer is not None or refused.line is not None


def with_junk(data: st.DataObject) -> None:
    source, text = data.draw(st.sampled_from([one for one in GOOD if one[1].startswith("{")]))
    document = json.loads(text)
    path = data.draw(st.sampled_from(places(document)))
    try:
        changed = json.dumps(put(document, path, data.draw(JUNK)))
    except ValueError:  # an integer Python itself does not print
        return
    import_or_refuse(source, changed)


def spliced(data: st.DataObject) -> None:
    source, text = data.draw(st.sampled_from(GOOD))
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(rng.randint(1, 6)):
        start, piece = rng.randrange(len(text)), rng.choice([*PIECES, text[rng.randrange(len(text)) :][:40]])
        text = text[:start] + piece + text[start + rng.randint(0, 12) :]
    import_or_refuse(source, text)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_import_of_good_json_with_junk_in_one_place_is_read_or_refused(data: st.DataObject) -> None:
    with_junk(data)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_import_of_good_text_cut_and_spliced_is_read_or_refused(data: st.DataObject) -> None:
    spliced(data)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["slurm", "flux-r", "kubernetes", "hwloc", "local"]), st.one_of(st.text(), JUNK))
def test_import_of_any_text_is_read_or_refused(source: str, junk: Any) -> None:
    import_or_refuse(source, junk if isinstance(junk, str) else repr(junk))


@pytest.mark.soak
@settings(max_examples=20_000, deadline=None)
@given(st.data())
def test_import_of_many_good_texts_made_bad_is_read_or_refused(data: st.DataObject) -> None:
    with_junk(data)
    spliced(data)


# ------------------------------------------------------------------ the command


def run(*words: str | Path, stdin: str | None = None) -> Any:
    result = CliRunner().invoke(main, ["cluster", "import", *map(str, words)], input=stdin)
    assert "Traceback" not in result.output
    return result


def test_command_writes_the_graph_and_says_what_is_in_it(tmp_path: Path) -> None:
    out = tmp_path / "oak.json"
    result = run("slurm", CASES / "slurm-scontrol-23.11.json", "--name", "oak", "--out", out)
    assert result.exit_code == Exit.OK
    assert result.stdout == ""
    assert result.stderr == "oak: 8 nodes, 452 cores, 23 gpus, 5108001 MiB memory (1 node unavailable)\n"
    assert read_cluster(json.loads(out.read_text())).name == "oak"


def test_command_reads_stdin_and_writes_stdout() -> None:
    result = run("kubernetes", "-", stdin=(CASES / "kubernetes-nodes.json").read_text())
    assert read_cluster(json.loads(result.stdout)).totals["gpu"] == 8
    assert result.stderr == (
        "cluster: 4 nodes, 113 cores, 8 gpus, 1249491 MiB memory (2 nodes unavailable, 1 node left out)\n"
    )


def test_command_refuses_in_one_line_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "oak.json"
    out.write_text("as it was")
    result = run("slurm", "-", "--out", out, stdin='{"nodes": [{"name": "a", "cpus": "x"}]}')
    assert result.exit_code == Exit.ERROR
    assert result.stderr.count("\n") == 1
    assert "(at /nodes/0/cpus)" in result.stderr
    assert out.read_text() == "as it was"


def test_command_with_an_unknown_source_names_those_there_are() -> None:
    result = run("pbs", "-", stdin="")
    assert result.exit_code == Exit.USAGE
    assert "flux-r, hwloc, kubernetes, local, slurm" in result.stderr


def test_command_finds_a_source_that_another_package_declares(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "cmdb_of_ours.py").write_text(
        "def read(text, limits=None):\n"
        "    nodes = {'c': {'metadata': {'type': 'cluster'}}}\n"
        "    nodes |= {n: {'metadata': {'type': 'node', 'name': n}} for n in text.split()}\n"
        "    return {'graph': {'nodes': nodes, 'edges': [{'source': 'c', 'target': n} for n in text.split()]}}\n"
    )
    declared = tmp_path / "cmdb_of_ours-1.dist-info"
    declared.mkdir()
    (declared / "METADATA").write_text("Metadata-Version: 2.1\nName: cmdb-of-ours\nVersion: 1\n")
    (declared / "entry_points.txt").write_text("[rainbow.graph_sources]\ncmdb = cmdb_of_ours:read\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(graph_sources, "_built_in", dict(graph_sources._built_in))
    result = run("cmdb", "-", stdin="east west")
    assert list(read_cluster(json.loads(result.stdout)).workers) == ["east", "west"]
    assert result.stderr == "c: 2 nodes, 0 cores, 0 gpus, 0 MiB memory\n"


def test_command_refuses_metadata_too_deep_to_write() -> None:
    deep: Any = 0
    for _ in range(900):
        deep = [deep]
    nodes = {"c": {"metadata": {"type": "cluster", "deep": deep}}, "n": {"metadata": {"type": "node"}}}
    graph = {"nodes": nodes, "edges": [{"source": "c", "target": "n"}]}
    text = json.dumps({"version": 1, "scheduling": {"graph": graph}})
    result = run("flux-r", "-", stdin=text)
    assert result.exit_code in (Exit.OK, Exit.ERROR)
    assert "a fault of rainbow itself" not in result.stderr


def test_import_of_a_large_cluster_is_within_the_limits() -> None:
    text = "".join(
        f"NodeName=n{i:05d} CPUTot=64 Sockets=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=1000 State=IDLE\n"
        for i in range(10_000)
    )
    assert read_cluster(graph_sources.get("slurm")(text)).totals["core"] == 640_000
    with pytest.raises(LimitError, match="limit vertices") as caught:
        graph_sources.get("slurm")(text, Limits(vertices=600_000))
    assert caught.value.facts["allowed"] == 600_000
