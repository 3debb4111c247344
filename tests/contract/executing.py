"""Executors by name, where their libraries and clusters are there."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from rainbow.agent import Executor, open_executor
from rainbow.agent.executors.local import allowed
from tests.support import services

NAMES = ["local", "local, kept", "psij:local", "psij:slurm", "slurm:owned", "slurm:shared", "dask"]


def there(request: pytest.FixtureRequest) -> str:
    """Return the executor to open; the test is skipped where its library or its cluster is not there."""
    return there_of(request.param, request)


def there_of(called: str, request: pytest.FixtureRequest) -> str:
    """Return the executor of this name, with its address."""
    if called.startswith("psij"):
        services.without("" if find_spec("psij") else "psij-python is not installed")
    if "slurm" in called:
        request.getfixturevalue("on_slurm")
    if called == "dask":
        services.without("" if find_spec("distributed") else "distributed is not installed")
        return f"dask:{request.getfixturevalue('dask_scheduler')}, kept"
    return called


def opened(called: str, folder: Path) -> Executor:
    name, _, stored = called.partition(", ")
    return open_executor(name, {**allowed(os.environ), "LC_ALL": "C.UTF-8"}, folder if stored else None)
