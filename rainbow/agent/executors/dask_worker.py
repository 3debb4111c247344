"""What runs inside a Dask worker: a share of a run, and the word that it is to end.

Dask computes again what was lost with a worker, results too; a command must not run again for that. So the scheduler
is told what has begun, and what has begun before is answered as stopped: Rainbow decides whether it runs again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from distributed import Event, get_worker

from rainbow.agent.executors import shared_folder
from rainbow.agent.executors.local import MARK, LocalExecutor, sweep
from rainbow.agent.executors.run import Ended, Result, end_to_json, run_from_json

Key = tuple[str, str]  # whose run, and which

_running: set[Key] = set()
_stopped: dict[Key, None] = {}
REMEMBERED = 10_000  # words that came before their runs


def work(owner: str, key: str, run: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Run a share and return its end."""
    options = run_from_json(run)
    name = begun_name(owner, key, options.ranks[0])
    begun = Event(name)
    if begun.is_set():
        sweep(name)
        return end_to_json(Ended(options.id, Result.STOPPED, detail="lost: the Dask worker running it died"))
    begun.set()
    get_worker().log_event(topic_of(owner), {"task": options.id[0], "attempt": options.id[1]})
    _running.add((owner, key))
    try:
        return end_to_json(
            shared_folder.work(LocalExecutor({**environment, MARK: name}), options, lambda: (owner, key) in _stopped)
        )
    finally:
        _running.discard((owner, key))


def topic_of(owner: str) -> str:
    """Name what workers tell an owner's runs have begun under."""
    return f"rainbow-begun-{owner}"


def begun_name(owner: str, key: str, rank: int) -> str:
    """Name the event that says that a share has begun."""
    return f"rainbow-begun-{owner}-{key}-{rank}"


def stop(owner: str, key: str) -> bool:
    """End a run; return whether it runs here."""
    _stopped[(owner, key)] = None
    while len(_stopped) > REMEMBERED:
        del _stopped[next(iter(_stopped))]
    return (owner, key) in _running


def stop_others(owner: str, known: Collection[str]) -> None:
    """End what runs here for an owner and is not among what it knows."""
    for theirs, key in list(_running):
        if theirs == owner and key not in known:
            stop(theirs, key)
