"""Agents that register clusters, as processes; and how graphs are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rainbow.client import Client
from tests.scenarios.test_end_to_end import Processes
from tests.support.keepers import end_of_marked, keepers


@contextmanager
def processes_of(folder: Path) -> Iterator[Processes]:
    """Run processes that work in a folder; nothing of them is left."""
    made = Processes(folder)
    yield made
    made.end()
    for keeper in keepers(folder):
        keeper.kill()
    end_of_marked(folder)


def agent(processes: Processes, url: str, cluster: str, *more: str) -> Any:
    """Start an agent that registers its cluster; it saves what it is told in credentials.json."""
    folder = processes.folder
    inputs = ("--url", url, "--state-dir", str(folder / "state"), "--credentials", str(folder / "credentials.json"))
    return processes.start("agent", "--cluster", cluster, "--register", *inputs, *more)


def note_graphs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note how graphs are told from now on: by put_graph or patch_graph."""
    answers: list[str] = []
    for verb in ("put_graph", "patch_graph"):
        real = getattr(Client, verb)

        def telling(self: Client, *words: Any, _verb: str = verb, _real: Any = real, **more: Any) -> Any:
            answers.append(_verb)
            return _real(self, *words, **more)

        monkeypatch.setattr(Client, verb, telling)
    return answers
