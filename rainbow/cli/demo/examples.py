"""The example clusters and jobspecs: part of the wheel, and in a checkout the folders graphs/ and jobspecs/."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rainbow.text import natural

PACKED = Path(__file__).parent / "files"  # where the wheel has them
HERE = PACKED if PACKED.is_dir() else Path(__file__).resolve().parents[3]
GRAPHS = HERE / "graphs"
JOBSPECS = HERE / "jobspecs"
EXPECTED = "expected.yaml"
# the others take the server's default, which draws one of the clusters that match
SELECTORS = {
    "costs.yaml": {
        "name": "constraint",
        "options": {
            "priorities": [
                {
                    "priority": 1,
                    "steps": [
                        {"calc": "build_cost=cost_per_node_hour * (memory_per_node * seconds_per_gb)/60/60"},
                        {"sort_ascending": "build_cost"},
                        {"select": "first"},
                    ],
                }
            ]
        },
    }
}


@dataclass(frozen=True, slots=True)
class ExampleCluster:
    """One folder of graphs/."""

    name: str
    graph: Mapping[str, Any]
    subsystems: Mapping[str, Mapping[str, Any]]
    state: Mapping[str, Any]


def clusters() -> list[ExampleCluster]:
    """Read every folder of graphs/ that holds a cluster."""
    folders = sorted((path.parent for path in GRAPHS.glob("*/cluster.json")), key=lambda path: natural(path.name))
    return [_cluster(folder) for folder in folders]


def _cluster(folder: Path) -> ExampleCluster:
    files = sorted(folder.glob("*.subsystem.json"))
    subsystems = {path.name.removesuffix(".subsystem.json"): json.loads(path.read_text()) for path in files}
    state = json.loads((folder / "state.json").read_text())
    return ExampleCluster(folder.name, json.loads((folder / "cluster.json").read_text()), subsystems, state)


def jobspecs() -> dict[str, str]:
    """Read every jobspec: {file name: text}."""
    return {path.name: path.read_text() for path in sorted(JOBSPECS.glob("*.yaml")) if path.name != EXPECTED}


def expected() -> dict[str, list[str]]:
    """Read which clusters should match every jobspec: {file name: their names}."""
    return dict(yaml.safe_load((JOBSPECS / EXPECTED).read_text()))


def copy_to(folder: Path) -> list[Path]:
    """Copy graphs/ and jobspecs/ into a folder; FileExistsError if one of them is there already."""
    made = [folder / part.name for part in (GRAPHS, JOBSPECS)]
    for path in made:
        if path.exists():
            raise FileExistsError(errno.EEXIST, "already exists; name another folder", str(path))
    for part, path in zip((GRAPHS, JOBSPECS), made, strict=True):
        shutil.copytree(part, path)
    return made
