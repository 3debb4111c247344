"""`rainbow cluster import`: the graph it writes, what it says, and what it refuses."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rainbow.cli import main
from rainbow.cli.exit_codes import Exit
from rainbow.graph import read_cluster
from rainbow.graph.sources import graph_sources
from tests.support.source_cases import CASES


def run(*words: str | Path, stdin: str | None = None) -> Any:
    result = CliRunner().invoke(main, ["cluster", "import", *map(str, words)], input=stdin)
    assert "Traceback" not in result.output
    return result


def test_command_writes_the_graph_and_says_what_is_in_it(tmp_path: Path) -> None:
    out = tmp_path / "oak.json"
    result = run("slurm", CASES / "slurm-scontrol-23.11.json", "--name", "oak", "--out", out)
    assert result.exit_code == Exit.OK
    assert result.stdout == ""
    first, read, left_out = result.stderr.splitlines()
    assert first == "oak: 8 nodes, 452 cores, 23 gpus, 5108001 MiB memory (1 node unavailable)"
    assert read == "READ      4 features, gpu: 21 a100, 2 h100, nvme: 2, bandwidth: 2048"
    assert left_out.startswith("LEFT OUT  limits of queues: not in this text (scontrol show partition); QOS: ")
    assert read_cluster(json.loads(out.read_text())).name == "oak"


def test_command_reads_stdin_and_writes_stdout() -> None:
    result = run("kubernetes", "-", stdin=(CASES / "kubernetes-nodes.json").read_text())
    assert read_cluster(json.loads(result.stdout)).totals["gpu"] == 8
    assert result.stderr == (
        "cluster: 4 nodes, 113 cores, 8 gpus, 1249491 MiB memory (2 nodes unavailable, 1 node left out)\n"
        "READ      1 feature, pods: 232, gpu: 8 NVIDIA-A100-SXM4-40GB, vpc.amazonaws.com/efa: 4, 2 zones\n"
        "LEFT OUT  node cp-1: it is tainted as control plane\n"
    )


def test_command_refuses_in_one_line_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "oak.json"
    out.write_text("as it was")
    result = run("slurm", "-", "--out", out, stdin='{"nodes": [{"name": "a", "cpus": "x"}]}')
    assert result.exit_code == Exit.ERROR
    assert result.stderr.count("\n") == 1
    assert "(at /nodes/0/cpus)" in result.stderr
    assert result.stderr.startswith("rainbow: standard input: ")
    assert out.read_text() == "as it was"


def test_command_names_the_file_that_it_cannot_read_and_an_empty_one(tmp_path: Path) -> None:
    file = tmp_path / "nodes.json"
    for text, said in (("NodeName", "this is not JSON"), (" \n", "nothing to read; look at what the command")):
        file.write_text(text)
        result = run("kubernetes", file)
        assert result.exit_code == Exit.ERROR
        assert result.stderr.startswith(f"rainbow: {file}: {said}")


def test_local_describes_this_machine_without_a_file() -> None:
    result = run("local", "--name", "desk")
    assert list(read_cluster(json.loads(result.stdout)).workers) == [socket.gethostname()]
    assert result.stderr.startswith("desk: 1 node, ")
    assert "source slurm requires FILE, or - for stdin" in run("slurm").stderr


def test_command_with_an_unknown_source_names_those_there_are() -> None:
    result = run("pbs", "-", stdin="")
    assert result.exit_code == Exit.USAGE
    assert "flux-r, gridengine, hwloc, kubernetes, local, slurm" in result.stderr


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
    assert "set RAINBOW_DEBUG=1 for a traceback and please report it" not in result.stderr


DAY = """\
$ import oak
oak: 11 nodes, 384 cores, 8 gpus, 2536000 MiB memory
QUEUE  DEFAULT  NODES  STATE     MAX TIME  DEFAULT TIME  MAX NODES  ACCESS
batch  yes      9      up        2d        1h            6
long            4      up        14d       1h            -
gpu             2      up        1d        1h            -
debug           2      up        30m       10m           1
old             2      inactive  1d        -             -
staff           9      up        2d        -             -          groups: staff
READ      7 features, gpu: 8 a100, nvme: 4, licenses: ansys 10, matlab 4, 4 switches in 2 levels
LEFT OUT  QOS: not in this text (sacctmgr show qos -P); PriorityTier, GraceTime: no part of matching
$ match -p gpu --gres=gpu:h100:1
CLUSTER  MATCHES    WHY
elm      no         queue gpu: 0 of 3 nodes have 1 gpu with model h100; queue gpu-h100 would match
oak      no         no gpu has model h100; models here: a100
yew      undecided  queue gpu: the graph names no queues; gpu with model h100: the graph names no model of a gpu
$ match -N 1 -n 8 --gres=gpu:1
CLUSTER  MATCHES  WHY
oak      no       queue batch (default): 0 of 9 nodes have 1 gpu; queue gpu would match
$ match -p gpu -N 1 -n 8 --gres=gpu:1
CLUSTER  MATCHES  WHY
oak      yes      fits 8 times, using nodes 1, cores 8, gpus 1 each time
"""


def test_a_script_is_matched_by_what_it_says_at_each_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The day of somebody who has batch scripts and several clusters."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    sites = Path(__file__).parents[2] / "cases" / "scripts" / "sites"
    runner, shown = CliRunner(), []
    imports = [("oak", "slurm", str(sites / "oak.txt")), ("elm", "slurm", str(sites / "elm.txt"))]
    for name, source, file in imports:
        answer = runner.invoke(main, ["cluster", "import", source, file, "--name", name, "--out", f"{name}.json"])
        assert answer.exit_code == 0, answer.output
        shown += ["$ import oak", *answer.output.splitlines()] if name == "oak" else []
    yew = {"c": "cluster", "n": "node", "k": "core", "g": "gpu"}
    edges = [{"source": one, "target": other} for one, other in ("cn", "nk", "ng")]
    nodes = {key: {"metadata": {"type": kind}} for key, kind in yew.items()}
    Path("yew.json").write_text(json.dumps({"graph": {"nodes": nodes, "edges": edges}, "name": "yew"}))
    for words, names in (
        ("-p gpu --gres=gpu:h100:1", ("oak", "elm", "yew")),
        ("-N 1 -n 8 --gres=gpu:1", ("oak",)),
        ("-p gpu -N 1 -n 8 --gres=gpu:1", ("oak",)),
    ):
        Path("job.sh").write_text(f"#!/bin/bash\n#SBATCH {words}\ntrue\n")
        graphs = [word for name in names for word in ("--graph", f"{name}.json")]
        answer = runner.invoke(main, ["match", "job.sh", *graphs])
        shown += [f"$ match {words}", *(line.rstrip() for line in answer.stdout.splitlines())]
    assert shown == DAY.splitlines()
