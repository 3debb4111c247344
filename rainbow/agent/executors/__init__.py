"""Executors: they start tasks for an agent. The built-in ones, by name; their requirements are imported with them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rainbow.agent.executors.interface import Executor, executors
from rainbow.plugins import UnknownPlugin


@executors.add("local")
def _local(argument: str, environment: Mapping[str, str], folder: Path | None) -> Executor:
    return _opened("keeper_client", argument, environment, folder)


@executors.add("slurm")
def _slurm(argument: str, environment: Mapping[str, str], folder: Path | None) -> Executor:
    return _opened("slurm.executor", argument, environment, folder)


@executors.add("gridengine")
def _gridengine(argument: str, environment: Mapping[str, str], folder: Path | None) -> Executor:
    return _opened("gridengine.executor", argument, environment, folder)


@executors.add("psij")
def _psij(argument: str, environment: Mapping[str, str], folder: Path | None) -> Executor:
    made: Executor = _module("psij", "slurm").BatchExecutor(argument, environment, folder)
    return made


@executors.add("dask")
def _dask(argument: str, environment: Mapping[str, str], folder: Path | None) -> Executor:
    made: Executor = _module("dask", "dask").DaskExecutor(argument, environment, folder)
    return made


def _opened(module: str, argument: str, environment: Mapping[str, str], folder: Path | None) -> Executor:
    made: Executor = importlib.import_module(f"{__name__}.{module}").opened(argument, environment, folder)
    return made


def _module(name: str, extra: str) -> Any:
    """Return the module of an executor whose libraries are an extra; UnknownPlugin says which."""
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as fault:
        if (fault.name or "").startswith("rainbow"):
            raise
        text = f"executor {name} requires {fault.name}; run: pip install 'rainbow-hpc[{extra}]'"
        raise UnknownPlugin(text) from fault
