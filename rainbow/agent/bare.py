"""The start of one module of `executors` without the rest of Rainbow: `python bare.py NAME ...`.

The packages above the module are made without their `__init__`, so that a keeper is small and a batch system's task
starts quickly. Only modules that need nothing but the standard library are run this way. Runs that an earlier agent
left in a resource manager's queue begin here, too, by the names that modules had.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "rainbow": HERE.parent,
    "rainbow.agent": HERE,
    "rainbow.agent.executors": HERE / "executors",
    "rainbow.jobspec": HERE.parent / "jobspec",
}
NOW = {"on_node": "shared_folder"}


def command(module: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the argv that runs such a module by itself; -I -S: nothing of the user's comes before it."""
    return [python, "-I", "-S", str(HERE / "bare.py"), module, *arguments]


def files() -> list[Path]:
    """Return what an account must be able to read to run such a module: the interpreter and this file."""
    words = command("")
    return [Path(words[0]), Path(words[-2])]


def _main(module: str, *arguments: str) -> None:
    for name, folder in PACKAGES.items():
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    importlib.import_module(f"rainbow.agent.executors.{NOW.get(module, module)}").main(*arguments)


if __name__ == "__main__":
    _main(*sys.argv[1:])
