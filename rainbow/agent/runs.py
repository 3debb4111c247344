"""What an executor is given and what it tells: a run, and how it ended. Needs nothing but the standard library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

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
    """One attempt at a task: argv, never a line for a shell. `duration` in seconds, 0 for no limit.

    `ranks` are those of its processes that are started here; none given: all.
    """

    id: RunId
    job: str
    command: tuple[str, ...]
    cwd: str = ""
    environment: Mapping[str, str | None] = field(default_factory=dict)  # None: unset
    duration: float = 0.0
    processes: int = 1
    placement: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ranks: tuple[int, ...] = ()


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


def run_to_json(run: Run) -> dict[str, Any]:
    """Write a run as JSON values."""
    return asdict(run)


def run_from_json(told: Mapping[str, Any]) -> Run:
    """Read what `run_to_json` wrote."""
    lists = {key: tuple(told[key]) for key in ("id", "command", "ranks")}
    return Run(**{**told, **lists})


def end_to_json(end: Ended) -> dict[str, Any]:
    """Write an end as JSON values."""
    return asdict(end)


def end_from_json(told: Mapping[str, Any]) -> Ended:
    """Read what `end_to_json` wrote."""
    return Ended(**{**told, "id": tuple(told["id"]), "result": Result(told["result"])})
