"""The contract of a graph source, over every one that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rainbow.errors import RainbowError
from rainbow.graph.sources import graph_sources
from rainbow.plugins import UnknownPlugin
from rainbow.testing import GraphSourceContract

CASES = Path(__file__).parents[1] / "cases" / "sources"
# a text each source must read, the workers it must find in it, and those of them that are down;
# who adds a source adds its line
EXAMPLES = {
    "flux-r": ("flux-r.json", {"tioga0", "tioga1", "tioga2", "tioga3", "big"}, set()),
    "slurm": ("slurm-scontrol-22.05.txt", {"node01", "node02"}, {"node02"}),
    "gridengine": ("gridengine-8.1.9.xml", {"localhost", "away"}, {"away"}),
    "hwloc": ("hwloc-2.9.xml", {"vm"}, set()),
    "local": ("local.json", {"laptop"}, set()),
    "kubernetes": (
        "kubernetes-nodes.json",
        {"edge-1", *(f"ip-10-0-{n}.ec2.internal" for n in ("1-10", "1-11", "2-20"))},
        {"edge-1", "ip-10-0-1-11.ec2.internal"},
    ),
}

for _name, (_file, _workers, _down) in EXAMPLES.items():
    _given = {"name": _name, "example": (CASES / _file).read_text(), "workers": _workers, "down": _down}
    globals()[f"Test_{_name}"] = type(f"Test_{_name}", (GraphSourceContract,), _given)


def test_sources_are_all_covered_here() -> None:
    assert set(EXAMPLES) == set(graph_sources)


def test_unknown_source_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownPlugin, match="flux-r, gridengine, hwloc, kubernetes, local, slurm") as caught:
        graph_sources.get("pbs")
    assert isinstance(caught.value, RainbowError)
