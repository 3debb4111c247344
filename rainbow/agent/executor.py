"""The interface of an executor: what starts tasks on behalf of an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from rainbow.plugins import Registry

TAIL = 4096  # bytes of output that are kept

RunId = tuple[str, int]  # a task and its attempt: two attempts at one task are two runs


class Result(StrEnum):
    """How a run ended."""

    EXITED = "exited"  # by itself; the exit code says how
    TIMED_OUT = "timed_out"  # it ran longer than its limit and was ended
    STOPPED = "stopped"  # somebody asked for its end
    FAILED = "failed"  # it could not be started; the detail says why


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt at a task: argv, never a line for a shell. `duration` in seconds, 0 for no limit."""

    id: RunId
    job: str
    command: tuple[str, ...]
    cwd: str = ""
    environment: Mapping[str, str | None] = field(default_factory=dict)  # None: unset
    duration: float = 0.0
    processes: int = 1
    placement: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. `exit_code` is the first that is not 0, by rank; 128 + N for a process ended by signal N.

    `output` is the last TAIL bytes of what all processes wrote, as text.
    """

    id: RunId
    result: Result
    exit_code: int | None = None
    output: str = ""
    detail: str = ""


class Executor(Protocol):
    """Starts runs and tells how they ended.

    The agent calls it from one thread; no method waits for a run. A run that was started is among `running`
    until `poll` has returned its Ended, which it does once. What a user's task does wrong (a missing
    executable or directory, an odd environment) is no exception: the run ends as FAILED with a detail.
    Each of a run's `processes` sees RAINBOW_JOB, RAINBOW_TASK, RAINBOW_TASK_RANK (from 0),
    RAINBOW_TASK_COUNT and RAINBOW_WORKER, workers taken in turn in natural order of their names.
    """

    def start(self, run: Run) -> None:
        """Start a run and return."""

    def poll(self) -> Sequence[Ended]:
        """Return what has ended since the last call, after holding every run to its limit."""

    def stop(self, run: RunId) -> None:
        """Begin to end a run; nothing happens if it is not running."""

    def running(self) -> Sequence[RunId]:
        """Return the runs whose end `poll` has not told yet."""

    def close(self) -> None:
        """End everything at once and let go of it."""


# called with what follows the colon in "name:argument", and the environment every task starts from
MakeExecutor = Callable[[str, Mapping[str, str]], Executor]

executors: Registry[MakeExecutor] = Registry("rainbow.executors")


def open_executor(text: str, environment: Mapping[str, str]) -> Executor:
    """Return the executor called by `text`, "name" or "name:argument"; UnknownPlugin if there is none."""
    name, _, argument = text.partition(":")
    return executors.get(name)(argument, environment)
