"""The start of one module of this folder without the rest of Rainbow: `python bootstrap.py NAME ...`.

The packages above the module are made without their `__init__`, so that a keeper is small and a batch system's task
starts quickly. Only modules that need nothing but the standard library are run this way.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "rainbow": HERE.parents[1],
    "rainbow.agent": HERE.parent,
    "rainbow.agent.executors": HERE,
    "rainbow.jobspec": HERE.parents[1] / "jobspec",
}


def command(module: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the argv that runs a module of this folder by itself; -I -S: nothing of the user's comes before it."""
    return [python, "-I", "-S", str(HERE / "bootstrap.py"), module, *arguments]


def _main(module: str, *arguments: str) -> None:
    for name, folder in PACKAGES.items():
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    importlib.import_module(f"rainbow.agent.executors.{module}").main(*arguments)


if __name__ == "__main__":
    _main(*sys.argv[1:])
