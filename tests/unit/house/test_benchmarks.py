"""Every benchmark finds what it measures: nobody runs all of them for every change."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("[!_]*.py")))
def test_benchmark_can_be_read(name: str) -> None:
    assert import_module(f"benchmarks.{name}").__doc__
