"""In every test of the service each gang that starts on workers was checked before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from rainbow.scheduling import Wait
from rainbow.service.live_state.matcher_cache import FreeSpace
from rainbow.state_machine import Task, TaskState
from rainbow.store import workers


@pytest.fixture(autouse=True)
def starts_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the gangs that start and the checks that let them; each start has one."""
    checked: list[tuple[str, int]] = []
    started: list[tuple[str, int]] = []
    check, keep = FreeSpace.unproved, workers.keep_certificates

    def unproved(self: FreeSpace, demand: str, located: Iterable[Any]) -> Wait | None:
        refused = check(self, demand, located)
        if refused is None:
            job, _, number = demand.rpartition("/")
            checked.append((job, int(number)))
        return refused

    def kept(connection: Any, proved: Mapping[str, bytes], changed: list[Task]) -> None:
        starts = {(t.job, t.gang) for t in changed if t.state is TaskState.ASSIGNED and t.placement}
        for gang in starts:
            assert gang in checked, f"{gang} starts unchecked"
            checked[:] = [one for one in checked if one != gang]
        started.extend(starts)
        keep(connection, proved, changed)

    monkeypatch.setattr(FreeSpace, "unproved", unproved)
    monkeypatch.setattr(workers, "keep_certificates", kept)
