"""The console blocks of docs/certificates.md, typed one after the other into a folder that has the graph."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.docs.test_docs_joining import wrapped
from tests.support.trees import document

PAGE = (Path(__file__).parents[2] / "docs" / "certificates.md").read_text()
GRAPH = ("n0 node", "n0/gpu0 gpu", "n0/gpu1 gpu", "n0/core0 core*4")


def test_blocks_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "heron.json").write_text(json.dumps(document(*GRAPH)))
    [shown] = re.findall(r"^\$ cat job.yaml\n(.*?)(?=^\$|^```)", PAGE, re.S | re.M)
    (tmp_path / "job.yaml").write_text(shown)
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.S)
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.M):
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=wrapped(tmp_path), capture_output=True, text=True, check=False
        )
        printed = [line.rstrip() for line in (done.stdout + done.stderr).splitlines()]
        assert printed == expected.splitlines(), command
