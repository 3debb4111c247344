"""Slurm's switches and blocks as vertices: what is above each node, what a job can ask for, and what is refused."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow import match, parse_jobspec, read_cluster
from rainbow.agent.cluster_survey import survey
from rainbow.errors import GraphError, LimitError
from rainbow.graph import Cluster, Limits
from rainbow.graph.sources.slurm import read_slurm
from rainbow.graph.sources.slurm_topology import read_topology
from tests.test_survey import CASES, command_saying

TREE = """\
# two racks below one switch, one rack alone
SwitchName=s0 Nodes=n[1-4]
switchname=s1 LinkSpeed=1 \\
  nodes=n[5-7]
SwitchName=top Switches=s[0-1]   # the core
SwitchName=s9 Nodes=n9
"""
SHOWN = """\
SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-4]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[5-7]
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-7] Switches=s[0-1]
SwitchName=s9 Level=0 LinkSpeed=1 Nodes=n9
"""
BELOW_S0 = (("switch1", "top"), ("switch", "s0"))


def nodes(count: int) -> str:
    line = "NodeName=n{} CPUTot=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=8000 State=IDLE\n"
    return "".join(line.format(k) for k in range(1, count + 1))


def fits(cluster: Cluster, kind: str, count: int) -> int:
    inside = [{"type": "node", "count": count, "with": [{"type": "core", "count": 4}]}]
    document = {"resources": {"work": {"type": kind, "with": inside}}, "tasks": [{"command": ["true"]}]}
    return match(parse_jobspec(document), [cluster])[0].fits


def test_topology_conf_and_what_scontrol_shows_of_it_say_the_same() -> None:
    above = read_topology(TREE)
    assert above == read_topology(SHOWN)
    assert above["n1"] == above["n4"] == BELOW_S0
    assert above["n9"] == (("switch", "s9"),)
    assert set(above) == {*(f"n{k}" for k in range(1, 8)), "n9"}


@pytest.mark.parametrize("topology", [TREE, SHOWN])
def test_all_nodes_below_one_switch_can_be_asked_for(topology: str) -> None:
    cluster = read_cluster(read_slurm(nodes(9) + topology), name="oak")
    assert cluster.totals | {"switch": 3, "switch1": 1, "node": 9} == cluster.totals
    assert [fits(cluster, "switch", count) for count in (3, 4, 5)] == [2, 1, 0]
    assert [fits(cluster, "switch1", count) for count in (5, 7, 8)] == [1, 1, 0]


def test_nodes_without_a_switch_stay_below_the_cluster_and_other_jobs_see_no_switch() -> None:
    with_switches = read_cluster(read_slurm(nodes(9) + TREE), name="oak")
    without = read_cluster(read_slurm(nodes(9)), name="oak")
    assert set(with_switches.workers) == set(without.workers)
    document = {"resources": {"work": {"type": "node", "count": 2}}, "tasks": [{"command": ["true"]}]}
    job = parse_jobspec(document)
    assert match(job, [with_switches])[0].fits == match(job, [without])[0].fits


def test_blocks_are_vertices_of_their_own_type() -> None:
    blocks = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-6]\nBlockSizes=2\n"
    cluster = read_cluster(read_slurm(nodes(6) + blocks), name="oak")
    assert [fits(cluster, "block", count) for count in (2, 4, 5)] == [3, 1, 0]
    assert read_topology(blocks)["n3"] == (("block", "b2"),)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "no line begins with SwitchName= or BlockName="),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", 2, "'a' is described twice"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]", 2, "the node 'n1' is below a and 'b'"),
        ("SwitchName=a Switches=b", 1, "the switch 'b' is not described"),
        ("SwitchName=l Nodes=n1\nSwitchName=a Switches=l\nSwitchName=b Switches=l", 3, "'l' is below 'a' and 'b'"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", 1, "form a ring"),
        ("SwitchName=a Switches=a", 1, "form a ring"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[2", 2, "a host list"),
        (
            "\n".join(f"SwitchName=s{k} Switches=s{k + 1}" for k in range(99)) + "\nSwitchName=s99 Nodes=n1",
            67,
            "32 levels",
        ),
    ],
)
def test_topology_that_is_none_is_refused_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(GraphError) as caught:
        read_topology(text)
    assert says in str(caught.value)
    assert caught.value.line == line


def test_fault_in_a_topology_after_the_nodes_names_the_line_of_the_whole_text() -> None:
    with pytest.raises(GraphError, match="is described twice") as caught:
        read_slurm(nodes(3) + "# switches\nSwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n")
    assert caught.value.line == 6


def test_topology_follows_nodes_in_json_too() -> None:
    text = (CASES / "slurm-scontrol-23.11.json").read_text()
    cluster = read_cluster(read_slurm(f"{text}\n# racks\nSwitchName=s0 Nodes=node[0-3]\n"))
    assert cluster.totals["switch"] == 1
    assert set(cluster.workers) == set(read_cluster(read_slurm(text)).workers)


def test_a_short_topology_that_names_a_million_nodes_meets_the_limit() -> None:
    with pytest.raises(LimitError):
        read_topology("\n".join(f"SwitchName=s{k} Nodes=n[0-999]" for k in range(2)), Limits(vertices=1500))


@given(st.text(st.sampled_from("SwitchNameBlockNodes=s0 [1-3],\\#\n"), max_size=200), st.randoms())
def test_any_text_is_read_or_refused_as_ours(text: str, rng: random.Random) -> None:
    lines = TREE.splitlines()
    rng.shuffle(lines)
    for given_text in (text, "\n".join([*lines, text])):
        with contextlib.suppress(GraphError):
            read_topology(given_text)


def test_agent_with_the_source_slurm_topology_asks_scontrol_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "nodes").write_text(nodes(7))
    (tmp_path / "topology").write_text(SHOWN)
    answers = f'"topology ") cat {tmp_path}/topology;; "nodes --oneliner") cat {tmp_path}/nodes;;'
    script = f'case "$2 $3" in {answers} *) exit 1;; esac'
    command_saying(tmp_path, "scontrol", script)
    command_saying(tmp_path, "sinfo", 'test "$1" = -h && printf "n1|idle\\nn2|idle\\n" || exit 1')
    found = survey("slurm-topology")
    assert read_cluster(found.document).totals["switch1"] == 1
    assert found.state["nodes_free"] == 2
