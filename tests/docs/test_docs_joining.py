"""The console blocks of docs/joining.md, typed one after the other into a folder that has Slurm's nodes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.docs.test_docs_readme import environment
from tests.unit.graph.test_sources_topology import nodes

PAGE = (Path(__file__).parents[2] / "docs" / "joining.md").read_text()


def test_blocks_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    (tmp_path / "nodes.txt").write_text(nodes(8))
    (tmp_path / "bin").mkdir()
    for file in ("topology.conf", "together.yaml"):
        [shown] = re.findall(rf"^\$ cat {file}\n(.*?)(?=^\$|^```)", PAGE, re.S | re.M)
        (tmp_path / file).write_text(shown)
    script = "\n".join(re.findall(r"^\$ (.*)$", PAGE, re.M))
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=wrapped(tmp_path), capture_output=True, text=True)
    printed = done.stdout + done.stderr
    shown = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
    assert [line for line in shown if not line.startswith("$ ") and line not in printed] == [], printed


def wrapped(folder: Path) -> dict[str, str]:
    """An environment in which `rainbow` is this checkout's."""
    import sys

    command = folder / "bin" / "rainbow"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rainbow "$@"\n')
    command.chmod(0o755)
    return environment(folder)
