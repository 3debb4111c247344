"""The six packages of docs/plugins.md: read from the page, installed, and run through the contract suites."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rainbow.agent import executors
from rainbow.graph.sources import graph_sources
from rainbow.matching import backends, matchers
from rainbow.scheduling import policies
from rainbow.selection import selectors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text()
FILES = dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", PAGE, re.S))
PACKAGES = sorted({path.split("/")[0] for path in FILES})
GROUPS = {registry.group for registry in (backends, executors, graph_sources, matchers, policies, selectors)}
# a full run of an executor's suite takes 25 s; tests/contract has it for the built-ins
QUICK = "not Audited or success or failure or signal or cannot or stop_ends or argv or attempts"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder with the packages' sources, and an environment in which all are installed."""
    folder = tmp_path_factory.mktemp("plugins")
    for path, text in FILES.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    made = subprocess.run(
        [*pip, "--target", "site", *(f"./{name}" for name in PACKAGES)], cwd=folder, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    stored = {key: value for key, value in os.environ.items() if not key.startswith(("RAINBOW_", "PYTEST_"))}
    return folder, {**stored, "PYTHONPATH": os.pathsep.join([str(folder / "site"), str(ROOT)])}


def test_page_has_a_package_of_under_40_lines_for_each_plug_in_point() -> None:
    assert len(PACKAGES) == len(GROUPS) == 6
    assert set(re.findall(r'\[project\.entry-points\."(.*?)"\]', PAGE)) == GROUPS
    for name in PACKAGES:
        of = [text for path, text in FILES.items() if path.startswith(f"{name}/") and "/test_" not in path]
        assert len(of) == 2
        assert sum(bool(line) for text in of for line in text.splitlines()) < 40, name


def test_packages_of_the_page_pass_their_contract_suites(installed: tuple[Path, dict[str, str]]) -> None:
    folder, environment = installed
    tests = [path for path in FILES if "/test_" in path]
    assert len(tests) == 6
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-k", QUICK]
    done = subprocess.run(
        [*command, *tests], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) > 300
    assert (folder / "audit.log").read_text().count("start") > 5


def test_imported_table_is_a_graph_that_a_server_reads(installed: tuple[Path, dict[str, str]]) -> None:
    folder, environment = installed
    (folder / "nodes.csv").write_text("n1,4,16\nn2,8,32\n")
    command = [sys.executable, "-m", "rainbow", "cluster", "import", "table", "nodes.csv"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    assert "2 nodes" in done.stderr or "node 2" in done.stderr, done.stderr
