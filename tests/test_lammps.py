"""The tables of docs/lammps.md are what the simulation gives today."""

import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import rainbow
from rainbow.cli import main
from rainbow.cli.commands import match
from rainbow.cli.input import files
from tests.conftest import SHARED

ROOT = Path(__file__).parents[1]
LAMMPS = SHARED / "inputs" / "lammps"
PAGE = (ROOT / "docs" / "lammps.md").read_text()
SECONDS = 30  # on a slow and busy machine; about two on an idle one
pytestmark = pytest.mark.skipif(not LAMMPS.is_dir(), reason="../shared is not beside this checkout")


@pytest.fixture(scope="module")
def clusters():
    return files.clusters_of([LAMMPS / "clusters"])


@pytest.fixture(scope="module")
def smaller():
    """Read the jobspecs with 2 cores for 4."""
    texts = {path: path.read_text() for path in sorted((LAMMPS / "jobspecs").rglob("*.yaml"))}
    assert all(text.count("- count: 4") == 1 for text in texts.values())
    return {path: rainbow.parse_jobspec(text.replace("- count: 4", "- count: 2")) for path, text in texts.items()}


def tables():
    """Yield the rows of every table of the page, without its head."""
    for block in re.findall(r"(?:^\|.*\n)+", PAGE, re.M):
        yield [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in block.splitlines()[2:]]


def test_sweep_takes_seconds_and_nothing_matches(monkeypatch):
    monkeypatch.chdir(ROOT)
    began = time.monotonic()
    command = ["match", "../shared/inputs/lammps/jobspecs", "--graph", "../shared/inputs/lammps/clusters"]
    found = CliRunner().invoke(main, command, env={"COLUMNS": "110", "NO_COLOR": "1"})
    assert time.monotonic() - began < SECONDS
    shown = [line.rstrip() for line in found.stdout.splitlines()]
    by_folder = "\n".join(shown[next(i for i, line in enumerate(shown) if line.startswith("FOLDER")) :])
    assert f"...\n{by_folder}\n```" in PAGE


def test_counts_by_level_with_cores_that_fit(clusters, smaller):
    swept = match.sweep(smaller, clusters, explain=False)
    rows = {Path(one["folder"]).name: one for one in swept["folders"]}
    levels, counted, _ = tables()
    assert [row[0] for row in levels] == [row[0] for row in counted]
    assert {row[0] for row in counted} == set(rows)
    for level, *numbers in counted:
        row = rows[level]
        assert [row["jobspecs"], row["of"], row["matched"], row["refusals"]["need-unmet"]] == [*map(int, numbers)]


def test_counts_of_each_need_asked_alone(clusters, smaller):
    asked, met = Counter(), Counter()
    for request in smaller.values():
        for need in {repr(n): n for root in request.resources for part in root.walk() for n in part.needs}.values():
            alone = replace(request, variants=(tuple(only(root, need) for root in request.resources),))
            name = need.conditions[0].options["field"]
            asked[name] += len(clusters)
            met[name] += sum(verdict.matched for verdict in rainbow.match(alone, clusters))
    assert {row[0].strip("`"): (int(row[1]), int(row[2])) for row in list(tables())[2]} == {
        name: (asked[name], met[name]) for name in asked
    }


def only(resource, need):
    children = tuple(only(child, need) for child in resource.children)
    return replace(resource, needs=tuple(n for n in resource.needs if n == need), children=children)


@pytest.mark.soak
def test_every_pair_has_a_change_and_core_is_in_all_of_them(clusters):
    requests, _ = files.jobspecs_of([LAMMPS / "jobspecs"])
    changes = Counter()
    for folder in match.sweep(requests, clusters, explain=True)["folders"]:
        changes.update(folder["changes"])
    assert sum(changes.values()) == 4_800
    assert changes["core ≤ 2"] == 480
    edits = {text: text.split("; ") for text in changes}
    assert all(parts[0] == "core ≤ 2" for parts in edits.values())
    assert {len(parts) - 1 for parts in edits.values()} == set(range(8))
