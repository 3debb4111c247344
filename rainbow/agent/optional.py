"""The executors whose libraries are extras: named here, imported where they are asked for and nowhere else."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rainbow.agent.executor import Executor, executors
from rainbow.plugins import UnknownPlugin


@executors.add("psij")
def _psij(argument: str, environment: Mapping[str, str], folder: Path | None) -> Executor:
    made: Executor = _module("batch", "psij", "slurm").BatchExecutor(argument, environment, folder)
    return made


@executors.add("dask")
def _dask(argument: str, environment: Mapping[str, str], folder: Path | None) -> Executor:
    made: Executor = _module("on_dask", "dask", "dask").DaskExecutor(argument, environment, folder)
    return made


def _module(name: str, executor: str, extra: str) -> Any:
    try:
        return importlib.import_module(f"rainbow.agent.{name}")
    except ModuleNotFoundError as fault:
        if (fault.name or "").startswith("rainbow"):
            raise
        told = f"the executor {executor} needs {fault.name}: pip install 'rainbow-scheduler[{extra}]'"
        raise UnknownPlugin(told) from fault
