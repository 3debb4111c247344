"""The interface of an executor, and the registry of executors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rainbow.agent.executors.run import Ended, Pending, Run, RunId, Written
from rainbow.plugins import Registry, UnknownPlugin


class Executor(Protocol):
    """Starts runs and tells how they ended.

    The agent calls it from one thread; no method waits for a run. A run that was started is among `running`
    until `poll` has returned its Ended, which it does once. What a user's task does wrong (a missing
    executable or directory, an odd environment) is no exception: the run ends as FAILED with a detail.
    Each of a run's `processes` sees RAINBOW_JOB, RAINBOW_TASK, RAINBOW_TASK_RANK (from 0),
    RAINBOW_TASK_COUNT and RAINBOW_WORKER, workers taken in turn in natural order of their names.

    Opened on the folder of an executor whose process was killed, it adopts: what still runs is among `running`,
    and what ended meanwhile, or was not asked about since `poll` returned it, is returned by `poll`. Starting a
    run that it knows changes nothing.
    """

    def start(self, run: Run) -> None:
        """Start a run and return."""

    def poll(self) -> Sequence[Ended]:
        """Return what has ended since the last call, after holding every run to its limit."""

    def begun(self) -> Sequence[RunId]:
        """Return the runs that have begun since the last call; asked after `poll`, those it returned are among them.

        A run waits where a resource manager queues it. One that could not be started has not begun.
        """

    def stop(self, run: RunId) -> None:
        """Begin to end a run; nothing happens if it is not running."""

    def running(self) -> Sequence[RunId]:
        """Return the runs whose end `poll` has not told yet."""

    def close(self) -> None:
        """End everything at once and let go of it."""


@runtime_checkable
class Suspends(Protocol):
    """What an executor has beside, if it can hold runs in place. A run's time limit stands still meanwhile."""

    def suspend(self, run: RunId) -> None:
        """Hold every process of a run; nothing happens if it is not running, or held already."""

    def resume(self, run: RunId) -> None:
        """Let a held run continue."""


@runtime_checkable
class Withdraws(Protocol):
    """What an executor has beside, if it can take back runs that have not begun."""

    def withdraw(self, run: RunId) -> None:
        """Begin to take back a run, which ends as STOPPED; nothing happens if it has begun, or begins meanwhile."""


@runtime_checkable
class Warns(Protocol):
    """What an executor has beside, if it can tell runs by a signal that they end soon."""

    def warn(self, run: RunId, name: str, grace: float) -> None:
        """Send a signal, such as USR1, and stop the run so many seconds later; asked twice it is the same."""


@runtime_checkable
class Leased(Protocol):
    """What an executor has beside, if its runs end by themselves when the agent's lease is over."""

    def renew(self, until: float, kill: float) -> None:
        """Let runs continue until then, by the clock of lease.py; they get `kill` seconds between TERM and KILL."""


@runtime_checkable
class Explains(Protocol):
    """What an executor has beside, if it knows why runs that it has started have not begun."""

    def pending(self) -> Mapping[RunId, Pending]:
        """Return why runs have not begun, as far as that is known; asked after `poll`, it waits for nothing.

        What has begun or ended may be named for a second more. The same object as before: nothing has changed.
        """


@runtime_checkable
class Gives(Protocol):
    """What an executor has beside, if a resource manager decides which cores its runs get."""

    def given(self) -> Mapping[RunId, Mapping[str, Mapping[str, Sequence[int]]]]:
        """Return {worker: {"core": [0, 1], "gpu": [0]}} of the runs of which that was heard since the last call."""


@runtime_checkable
class Writes(Protocol):
    """What an executor has beside, if it sees what runs write while they run."""

    def written(self) -> Mapping[RunId, Written]:
        """Return the end of what runs have written, of those that have written more since the last call."""


# called with what follows the colon in "name:argument", the environment every task starts from, and the folder in
# which it remembers what runs; None: whatever it starts ends with it
MakeExecutor = Callable[[str, Mapping[str, str], Path | None], Executor]

executors: Registry[MakeExecutor] = Registry("rainbow.executors", factories=True)


def open_executor(text: str, environment: Mapping[str, str], folder: Path | None = None) -> Executor:
    """Return the executor called by `text`, "name" or "name:argument"; UnknownPlugin if there is none."""
    name, _, argument = text.partition(":")
    return executors.get(name)(argument, environment, folder)


@executors.add("slurm")
def _slurm(argument: str, environment: Mapping[str, str], folder: Path | None) -> Executor:
    module = importlib.import_module("rainbow.agent.executors.slurm.executor")
    made: Executor = module.opened(argument, environment, folder)
    return made


@executors.add("psij")
def _psij(argument: str, environment: Mapping[str, str], folder: Path | None) -> Executor:
    made: Executor = _module("psij", "psij", "slurm").BatchExecutor(argument, environment, folder)
    return made


@executors.add("dask")
def _dask(argument: str, environment: Mapping[str, str], folder: Path | None) -> Executor:
    made: Executor = _module("dask", "dask", "dask").DaskExecutor(argument, environment, folder)
    return made


def _module(name: str, executor: str, extra: str) -> Any:
    try:
        return importlib.import_module(f"rainbow.agent.executors.{name}")
    except ModuleNotFoundError as fault:
        if (fault.name or "").startswith("rainbow"):
            raise
        told = f"executor {executor} requires {fault.name}; run: pip install 'rainbow-scheduler[{extra}]'"
        raise UnknownPlugin(told) from fault
