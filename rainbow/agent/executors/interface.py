"""The interfaces of an executor and of a site, and the registry of executors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

from rainbow.agent.executors.run import Checked, Ended, Pending, Run, RunId, SiteJob, Written
from rainbow.plugins import Registry


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
        """Return the runs that have ended since the last call, after holding every run to its limit."""

    def begun(self) -> Sequence[RunId]:
        """Return the runs that have begun since the last call; asked after `poll`, those it returned are among them.

        A run waits where a resource manager queues it. One that could not be started has not begun.
        """

    def stop(self, run: RunId) -> None:
        """Begin to end a run; nothing happens if it is not running."""

    def running(self) -> Sequence[RunId]:
        """Return the runs whose end `poll` has not told yet."""

    def close(self) -> None:
        """End everything at once and release it."""


@runtime_checkable
class Suspends(Protocol):
    """A further capability: holding runs in place. A run's time limit stops meanwhile."""

    def suspend(self, run: RunId) -> None:
        """Hold every process of a run; nothing happens if it is not running, or held already."""

    def resume(self, run: RunId) -> None:
        """Let a held run continue."""


@runtime_checkable
class Withdraws(Protocol):
    """A further capability: taking back runs that have not begun."""

    def withdraw(self, run: RunId) -> None:
        """Begin to take back a run, which ends as STOPPED; nothing happens if it has begun, or begins meanwhile."""


@runtime_checkable
class Warns(Protocol):
    """A further capability: warning runs by a signal that they end soon."""

    def warn(self, run: RunId, name: str, grace: float) -> None:
        """Send a signal, such as USR1, and stop the run `grace` seconds later; asked twice it is the same."""


@runtime_checkable
class Leased(Protocol):
    """A further capability: runs that end by themselves when the agent's lease is over."""

    def renew(self, until: float, kill: float) -> None:
        """Let runs continue until then, by the clock of lease.py; they get `kill` seconds between TERM and KILL."""


@runtime_checkable
class Explains(Protocol):
    """A further capability: explaining why started runs have not begun."""

    def pending(self) -> Mapping[RunId, Pending]:
        """Return why runs have not begun, as far as that is known; asked after `poll`, it waits for nothing.

        What has begun or ended may be named for a second more. The same object as before: nothing has changed.
        """


@runtime_checkable
class Sees(Protocol):
    """A further capability: reporting runs that users of the site hold in place themselves."""

    def held(self) -> Set[RunId]:
        """Return the runs that have begun and that their site holds now."""


@runtime_checkable
class Gives(Protocol):
    """A further capability: a resource manager decides which cores its runs get."""

    def given(self) -> Mapping[RunId, Mapping[str, Mapping[str, Sequence[int]]]]:
        """Return {worker: {"core": [0, 1], "gpu": [0]}} of the runs of which that was heard since the last call."""


@runtime_checkable
class Names(Protocol):
    """A further capability: naming runs by the site's own numbers."""

    def site_jobs(self) -> Mapping[RunId, SiteJob]:
        """Return how the site calls the runs of which that has changed since the last call; asked after `poll`."""


@runtime_checkable
class Helped(Protocol):
    """A further capability: checking that a program it cannot work without is allowed here."""

    def trouble(self) -> str:
        """Return why it cannot start anything; empty: it can."""


@runtime_checkable
class Checks(Protocol):
    """A further capability: asking its site whether that would take a run."""

    def check(self, question: str, run: Run) -> None:
        """Begin to ask about a run that is not to start; `question` is a name for it."""

    def checked(self) -> Mapping[str, Checked | None]:
        """Return the site's answers since the last call, None where it has not answered; it does not wait."""

    def waits(self) -> Mapping[int, float]:
        """Return {cores: seconds until such a job would start}, of the jobs asked about lately."""


@runtime_checkable
class Writes(Protocol):
    """A further capability: reading the output of runs while they run."""

    def written(self) -> Mapping[RunId, Written]:
        """Return the latest output of runs, of those that have written more since the last call."""


# ── what an executor asks a resource manager, and what the answers mean: nothing is started here ──

T = TypeVar("T", covariant=True)
Cores = tuple[int, int, int]  # free, taken, in all


class Phase(StrEnum):
    """The state of a job, as a task sees it."""

    WAITING = "waiting"
    RUNNING = "running"
    HELD = "suspended"
    ENDED = "ended"
    UNKNOWN = "unknown"  # a state of a newer release: nothing is concluded from it


@dataclass(frozen=True, slots=True)
class Row:
    """A job as its resource manager lists it; texts that say nothing are empty."""

    id: str
    state: str
    phase: Phase = Phase.UNKNOWN
    start: str = ""
    priority: int = 0
    planned: str = ""
    partition: str = ""
    nodes: str = ""
    reason: str = ""
    user: str = ""
    submitted: str = ""
    mark: str = ""  # by which a job of ours is known: see slurm/job.py


@dataclass(frozen=True, slots=True)
class Final:
    """A job that is over: codes are (exit code, signal)."""

    state: str
    code: tuple[int, int] = (0, 0)
    derived: tuple[int, int] = (0, 0)
    reason: str = ""
    by: str = ""  # whose user id canceled it, where that is recorded
    user: str = ""
    submitted: str = ""
    mark: str = ""
    partition: str = ""
    nodes: str = ""


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A command, its standard input, and the reader of its answer."""

    command: tuple[str, ...]
    read: Callable[[str], T]
    told: str = ""
    also: tuple[tuple[str, ...], ...] = ()  # more commands; a form feed is between the answers


class Site(Protocol):
    """The questions to every resource manager. A row that cannot be read is left out, or among the odd lines.

    Ids are texts. What a site cannot be asked is an empty command, or no question at all.
    """

    @property
    def name(self) -> str:
        """Its usual name."""

    def submit(self, run: Run, mark: str) -> Question[str]:
        """Ask for a run as a job whose records have the mark; read its id. NotCarriedError: it cannot be said."""

    def jobs(self, accounts: Sequence[str]) -> Question[tuple[dict[str, Row], list[str]]]:
        """Ask where the jobs of these accounts are (none: our own); read them by id, and the odd lines."""

    def queue(self) -> Question[dict[str, list[int]]]:
        """Ask for the priorities of all waiting jobs, by queue; the least first."""

    def over(self) -> Question[dict[str, Final]]:
        """Ask how all jobs ended that are still remembered."""

    def final(self, job: str) -> Sequence[Question[dict[str, Final]]]:
        """Ask how one job ended: one question after the other, until one knows all of it."""

    def recorded(self, accounts: Sequence[str], since: float) -> Question[dict[str, Final]]:
        """Ask the accounts of the site how all jobs ended that were there after a time."""

    def booted(self) -> Question[float | None]:
        """Return the time since which the controller runs: it may not know jobs submitted shortly before."""

    def forgets(self, begun: bool) -> bool:
        """Return whether a job that was canceled is in no record at all: where it had not begun, in Grid Engine."""

    def cancel(self, job: str, *, pending: bool = False) -> tuple[str, ...]:
        """Return the command that ends a job; `pending`: only if it has not begun."""

    def record(self, job: str) -> Question[Final | None]:
        """Ask whose a job is, and in which state."""

    def cores_of(self, job: str) -> Question[str]:
        """Ask for the nodes, cores and GPUs of a job, as shared_folder.py reads them."""

    def node(self, record: str) -> Question[str]:
        """Ask for the first node in that, as shared_folder.py reads it."""

    def users(self) -> Question[dict[str, str]]:
        """Ask whose the jobs there are, by their ids."""

    def nodes(self) -> Question[list[str]]:
        """Ask for the names of all nodes."""

    def cores(self) -> Question[Cores]:
        """Ask how many cores are free, taken, and there."""

    def planned(self, said: str) -> tuple[int, float] | None:
        """Read for how many cores a job was that was only tried, and in how many seconds it would start."""

    def waiting(self, row: Row, queue: Mapping[str, Sequence[int]], query: str) -> Pending:
        """Say why a job has not begun; `query`: when the queue was looked up."""

    def ended(self, run: RunId, job: str, final: Final, *, ours: bool) -> Ended:
        """Say how a run ended; `ours`: we have asked for its end."""


# called with what follows the colon in "name:argument", the environment every task starts from, and the folder in
# which it remembers what runs; None: whatever it starts ends with it
MakeExecutor = Callable[[str, Mapping[str, str], Path | None], Executor]

executors: Registry[MakeExecutor] = Registry("rainbow.executors", factories=True)


def open_executor(text: str, environment: Mapping[str, str], folder: Path | None = None) -> Executor:
    """Return the executor called by `text`, "name" or "name:argument"; UnknownPlugin if there is none."""
    name, _, argument = text.partition(":")
    return executors.get(name)(argument, environment, folder)
