"""Slurm's switches and blocks as vertices: what is above each node, what a job can ask for, and what is refused."""

from __future__ import annotations

import contextlib
import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rainbow
from rainbow import match, parse_jobspec, read_cluster
from rainbow.agent.cluster_survey import survey
from rainbow.errors import GraphError, LimitError
from rainbow.graph import Cluster, Limits
from rainbow.graph.sources import graph_sources
from rainbow.graph.sources.slurm import read_slurm
from rainbow.graph.sources.slurm_node import read_gres
from rainbow.graph.sources.slurm_topology import read_topology
from tests.unit.agent.test_survey import CASES, command_saying

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
    above = read_topology(TREE)[0]
    assert above == read_topology(SHOWN)[0]
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


def test_racks_of_fluxion_s_graph_in_an_r_can_be_asked_for() -> None:
    kinds = {"c": "cluster", "r0": "rack", "r1": "rack", **{f"n{k}": "node" for k in range(5)}}
    kinds |= {f"k{k}": "core" for k in range(5)}
    below = [
        ("c", "r0"),
        ("c", "r1"),
        *((f"r{k // 3}", f"n{k}") for k in range(5)),
        *((f"n{k}", f"k{k}") for k in range(5)),
    ]
    graph = {
        "nodes": [{"id": one, "metadata": {"type": kind, "name": one}} for one, kind in kinds.items()],
        "edges": [
            {"source": above, "target": one, "metadata": {"name": {"containment": "contains"}}}
            for above, one in below
        ],
    }
    lite = [{"rank": "0-4", "children": {"core": "0"}}]
    document = {"version": 1, "execution": {"R_lite": lite, "nodelist": ["n[0-4]"]}, "scheduling": {"graph": graph}}
    cluster = read_cluster(graph_sources.get("flux-r")(json.dumps(document)), name="fir")
    query = "resources: {{w: {{type: rack, with: [{{type: node, count: {}}}]}}}}"
    assert [match(parse_jobspec(query.format(count)), [cluster])[0].fits for count in (2, 3, 4)] == [2, 1, 0]


def test_blocks_are_vertices_of_their_own_type() -> None:
    blocks = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-6]\nBlockSizes=2\n"
    cluster = read_cluster(read_slurm(nodes(6) + blocks), name="oak")
    assert [fits(cluster, "block", count) for count in (2, 4, 5)] == [3, 1, 0]
    assert read_topology(blocks)[0]["n3"] == (("block", "b2"),)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "no line begins with SwitchName= or BlockName="),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", 2, "'a' is described twice"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]", 2, "the node 'n1' is below a and 'b'"),
        ("SwitchName=a Switches=b", 1, "the switch 'b' is not described"),
        (
            "SwitchName=l Nodes=n1\nSwitchName=m Nodes=n2\nSwitchName=a Switches=l,m\nSwitchName=b Switches=l",
            4,
            "'l' is below 'a' and 'b'",
        ),
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
    result = survey("slurm-topology")
    assert read_cluster(result.document).totals["switch1"] == 1
    assert result.state["nodes_free"] == 2


def spread(count: int, *, topology: str = TREE) -> rainbow.Verdict:
    """Match a job of so many nodes among seven, n1 to n7: matching takes the first that fit."""
    document = {"resources": {"w": {"type": "node", "count": count}}, "tasks": [{"command": ["true"]}]}
    return match(parse_jobspec(document), [read_cluster(read_slurm(nodes(7) + topology), name="oak")])[0]


def test_a_verdict_says_below_how_many_leaf_switches_the_job_is() -> None:
    assert [spread(count).switches for count in (1, 4, 5, 7)] == [1, 1, 2, 2]
    assert spread(5, topology="SwitchName=s0 Nodes=n[1-4]\n").switches is None  # the fifth is below no switch
    assert spread(2, topology="").switches is None
    assert spread(99).switches is None


def test_switches_that_are_copies_of_a_template_are_counted_one_by_one() -> None:
    graph = {
        "nodes": [
            {"id": "c", "type": "cluster"},
            {"id": "s", "type": "switch", "count": 3},
            {"id": "n", "type": "node", "count": 2},
        ],
        "edges": [{"source": "c", "target": "s"}, {"source": "s", "target": "n"}],
    }
    cluster = read_cluster(graph, name="elm")
    assert len(set(cluster.switches.values())) == 3
    jobs = [parse_jobspec(f"resources: {{w: {{type: node, count: {count}}}}}") for count in (2, 3, 6)]
    assert [match(job, [cluster])[0].switches for job in jobs] == [1, 2, 3]


def test_selection_reads_matched_switches_and_a_recorded_decision_is_taken_again() -> None:
    job = parse_jobspec("resources: {w: {type: node, count: 4}}")
    flat = read_cluster(read_slurm(nodes(7)), name="ash")
    torn = TREE.replace("n[1-4]", "n[1-2]").replace("n[5-7]", "n[3-7]")
    clusters = [
        flat,
        *(read_cluster(read_slurm(nodes(7) + tree), name=name) for name, tree in (("elm", torn), ("oak", TREE))),
    ]
    verdicts = match(job, clusters)
    options = {
        "priorities": [
            {"priority": 1, "steps": [{"filter": "matched.switches <= 2"}, {"sort_ascending": "matched.switches"}]}
        ]
    }
    choice = rainbow.select(job, verdicts, {}, selector="constraint", options=options)
    assert choice.cluster == "oak"
    assert "matched.switches" in choice.drops["ash"]
    assert choice.steps[1].values == {"elm": 2, "oak": 1}
    recorded = [rainbow.Verdict(one.cluster, True, one.fits, totals=one.totals) for one in verdicts]
    states = {"elm": {"matched.switches": 2}, "oak": {"matched.switches": 1}}
    again = rainbow.select(job, recorded, states, selector="constraint", options=options)
    assert (again.cluster, again.drops) == (choice.cluster, choice.drops)
    lying = {"ash": {"matched.switches": 0}}  # what a cluster says of itself does not count
    assert rainbow.select(job, verdicts, lying, selector="constraint", options=options).cluster == "oak"


TWO_SOCKETS = "NodeName={} CPUTot=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=8000 Gres={} State=IDLE\n"
GRES = """\
# two GPUs near each socket
AutoDetect=off
NodeName=g[0-1] Name=gpu Type=a100 File=/dev/nvidia[0-1] Cores=0-3
NodeName=g[0-1] Name=gpu Type=a100 File=/dev/nvidia2 Cores=4-7
NodeName=g[0-1] Name=gpu Type=a100 File=/dev/nvidia3 Cores=0-7
Name=nvme Count=2
"""


def gpus_of(cluster: Cluster) -> dict[str, tuple[str, str, str]]:
    return {
        fields["path"]: (
            fields["metadata"]["model"],
            fields["metadata"].get("cores", ""),
            fields["metadata"].get("file", ""),
        )
        for _, fields in cluster.graph.nodes(data=True)
        if fields["type"] == "gpu"
    }


@pytest.mark.parametrize("conf", [GRES, TREE.replace("n[1-4]", "g[0-1]") + GRES])
def test_gres_conf_puts_gpus_below_the_socket_of_their_cores(conf: str) -> None:
    text = TWO_SOCKETS.format("g0", "gpu:a100:4") + TWO_SOCKETS.format("g1", "gpu:a100:4")
    cluster = read_cluster(read_slurm(text + conf), name="oak")
    assert cluster.totals["gpu"] == 8
    results = {path.split("/g1/")[1]: answer for path, answer in gpus_of(cluster).items() if "/g1/" in path}
    assert results == {
        "socket0/gpu0": ("a100", "0-3", "/dev/nvidia0"),
        "socket0/gpu1": ("a100", "0-3", "/dev/nvidia1"),
        "socket1/gpu2": ("a100", "4-7", "/dev/nvidia2"),
        "gpu3": ("a100", "0-7", "/dev/nvidia3"),
    }
    query = "resources: {{w: {{type: socket, with: [{{type: core, count: 2}}, {{type: gpu, count: {}}}]}}}}"
    assert [match(parse_jobspec(query.format(count)), [cluster])[0].fits for count in (1, 2, 3)] == [6, 2, 0]


def test_gres_conf_says_nothing_of_how_many_gpus_there_are() -> None:
    text = TWO_SOCKETS.format("g0", "gpu:a100:1,gpu:h100:1") + TWO_SOCKETS.format("g1", "(null)")
    conf = "Name=gpu Type=h100 Count=3 Cores=4-7\nName=gpu Type=v100 File=/dev/nvidia9\n"
    cluster = read_cluster(read_slurm(text + conf), name="oak")
    assert {path.split("/g0/")[1]: answer for path, answer in gpus_of(cluster).items()} == {
        "gpu0": ("a100", "", ""),
        "socket1/gpu1": ("h100", "4-7", ""),
    }


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("Name=gpu Cores=9-2", "Cores must read like"),
        ("Name=gpu Count=many", "Count must be an integer"),
        ("NodeName=n[1 Name=gpu", "a host list"),
    ],
)
def test_gres_conf_that_is_none_is_refused_with_its_line(line: str, says: str) -> None:
    with pytest.raises(GraphError, match=says) as caught:
        read_slurm(nodes(2) + "# GPUs\n" + line)
    assert caught.value.line == 4
    with pytest.raises(LimitError):
        read_gres("NodeName=n[0-999] Name=gpu Count=3", Limits(vertices=2500))


def test_spines_over_the_same_switches_are_one_level_and_what_is_not_read_is_told() -> None:
    tree = "SwitchName=l Nodes=n[1-2]\nSwitchName=a Switches=l\nSwitchName=b Switches=l\nRingName=r Nodes=n[1-2]\n"
    above, unread = read_topology(tree, nodes={"n1"})
    assert above["n1"] == (("switch1", "a"), ("switch", "l"))
    assert [one.what for one in unread] == ["ring r", "switch b", "below switches: n2"]


def test_topology_yaml_is_read() -> None:
    text = "---\n- topology: a\n  tree:\n    switches:\n    - {switch: top, children: 's[1-2]'}\n"
    text += "    - {switch: s1, nodes: 'n[0-1]'}\n    - {switch: s2, nodes: 'n[2-3]'}\n"
    assert read_topology(text)[0]["n3"] == (("switch1", "top"), ("switch", "s2"))
