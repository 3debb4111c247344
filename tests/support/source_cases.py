"""The cases of what Slurm, Flux and Kubernetes print, for tests that import it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

CASES = Path(__file__).parents[1] / "cases" / "sources"


def read(name: str) -> list[Any]:
    listed = yaml.load((CASES / name).read_text(), yaml.CSafeLoader)
    return [pytest.param(case, id=case.get("name") or f"{case['source']}: {case['says']}") for case in listed]
