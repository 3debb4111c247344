"""The README's length, and its picture."""

from __future__ import annotations

import subprocess
import sys

from tests.support.pages import ROOT

README = (ROOT / "README.md").read_text()


def test_readme_has_a_picture_and_130_lines_at_most() -> None:
    assert len(README.splitlines()) <= 130
    assert "](docs/rainbow.svg)" in README


def test_picture_shows_what_match_and_select_answer() -> None:
    made = subprocess.run(
        [sys.executable, "-c", "import picture; print(picture.picture(), end='')"],
        cwd=ROOT / "docs",
        capture_output=True,
        check=True,
    )
    assert made.stdout.decode() == (ROOT / "docs" / "rainbow.svg").read_text(), "run: python docs/picture.py"
