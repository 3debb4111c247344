"""A run and its end, as an executor gets and reports them; needs only the standard library."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from rainbow.text import natural

TAIL = 4096  # bytes of output that are kept of a run that does not say how many

RunId = tuple[str, int]  # a task and its attempt: two attempts at one task are two runs


class Result(StrEnum):
    """How a run ended."""

    EXITED = "exited"  # by itself; the exit code says how
    TIMED_OUT = "timed_out"  # it ran longer than its limit and was ended
    STOPPED = "stopped"  # somebody asked for its end
    FAILED = "failed"  # it could not be started; the detail says why
    CANCELED = "canceled"  # somebody ended it at the site, for good
    LOST = "lost"  # what watched it is gone, or it had to end with the agent's lease


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
    units: Mapping[str, str] = field(default_factory=dict)  # of amounts in the placement: {"memory": "B"}
    files: Mapping[str, str] = field(default_factory=dict)  # output, error, input: as the job names them
    output: int = TAIL  # bytes of what it writes that are told at its end
    binding: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)  # {worker: {"core": [0, 1]}}
    request: Mapping[str, Any] | None = None  # what it asks for, where a site decides its place: jobspec/handover.py
    variables: Mapping[str, str] = field(default_factory=dict)  # what it sees of its job, where no site says it
    umask: int = -1  # of its submit; -1: not known, that of the agent


class Written(NamedTuple):
    """The end of what a run has written so far; `errors`: to a file of its own."""

    output: str
    errors: str = ""


class SiteJob(NamedTuple):
    """How the site of a run calls it, and where it is there; `detail`: what is odd about that."""

    number: str
    partition: str = ""
    nodes: str = ""
    detail: str = ""


class Checked(NamedTuple):
    """Whether a site would take a run: why not, or in how many seconds it would start, as far as it plans ahead."""

    refused: str = ""
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """Why a run that was started has not begun: the resource manager's own code, a sentence, and facts beside it."""

    code: str
    text: str
    facts: Mapping[str, str | float | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. `exit_code` is the first that is not 0, by rank; 128 + N for a process ended by signal N.

    `output` is the last of what all processes wrote, as text: as many bytes as the run says.
    """

    id: RunId
    result: Result
    exit_code: int | None = None
    output: str = ""
    errors: str = ""  # the same of standard error, where that goes to a file of its own
    detail: str = ""
    cause: str = ""  # "memory": the kernel ended it, for it needed more than it holds


def run_to_json(run: Run) -> dict[str, Any]:
    """Write a run as JSON values."""
    return asdict(run)


def run_from_json(answer: Mapping[str, Any]) -> Run:
    """Read what `run_to_json` wrote."""
    lists = {key: tuple(answer[key]) for key in ("id", "command", "ranks")}
    return Run(**{**answer, **lists})


def end_to_json(end: Ended) -> dict[str, Any]:
    """Write an end as JSON values."""
    return asdict(end)


def end_from_json(answer: Mapping[str, Any]) -> Ended:
    """Read what `end_to_json` wrote."""
    return Ended(**{**answer, "id": tuple(answer["id"]), "result": Result(answer["result"])})


def workers_of(run: Run) -> list[str]:
    """Return the workers a run was placed on; what belongs to no worker (a licence) is placed on "".

    >>> workers_of(Run(("t", 1), "j", ("x",), placement={"": {"licence": 1}, "n10": {}, "n2": {}}))
    ['n2', 'n10']
    """
    return sorted(filter(None, run.placement), key=natural)


def shares(run: Run) -> list[tuple[str, tuple[int, ...]]]:
    """Return (worker, ranks) for every worker of a run, workers taken in turn in natural order of their names.

    >>> shares(Run(("t", 1), "j", ("x",), processes=3, placement={"n10": {}, "n2": {}}))
    [('n2', (0, 2)), ('n10', (1,))]
    >>> shares(Run(("t", 1), "j", ("x",), processes=2))
    [('', (0, 1))]
    """
    workers = workers_of(run) or [""]
    dealt = [(worker, tuple(range(place, run.processes, len(workers)))) for place, worker in enumerate(workers)]
    return [(worker, ranks) for worker, ranks in dealt if ranks]


def signal_name(number: int) -> str:
    """Return the name of a signal: SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        return f"signal {number}"
