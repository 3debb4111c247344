"""A job as the executor knows it, whose it is, and the end of what it has written.

A controller that lost its memory gives numbers out again, and people change comments. So a number alone says nothing:
what a site tells of a job is believed, and the job is canceled, only if it is ours by its mark and its user. Where it
has no mark at all, since some sites drop comments, its user and the time of its submission must be those of ours.
"""

from __future__ import annotations

import contextlib
import math
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from rainbow.agent import bare
from rainbow.agent.executors.interface import Final, Row
from rainbow.agent.executors.process import read_end
from rainbow.agent.executors.run import Ended, Run, SiteJob, Written
from rainbow.agent.executors.shared_folder import key_of
from rainbow.agent.executors.slurm.accounts import SiteAccount
from rainbow.agent.executors.slurm.call import INDEX, CallPlace, Element, errors_of, folder_of, output_of, script_of
from rainbow.agent.executors.slurm.commands import Commands, SilentError
from rainbow.jobspec.sbatch.request import one_line


@dataclass(slots=True)
class Active:
    """A run and its job: `native` is its number, `mark` ends its comment, `end` is reported by us alone."""

    run: Run
    mark: str = ""
    of_site: bool = False  # its site alone says how it goes, whatever it is
    element: Element | None = None  # of an array, in which tasks of its job were handed over together
    key: str = ""  # what its files are called
    shares: int = 1
    native: str | None = None
    account: SiteAccount | None = None  # None: the agent's own
    end: Ended | None = None
    has_begun: bool = False
    begun_at: float = math.inf
    is_requeued: bool = False  # Slurm has put it back into its queue: only Slurm says when it begins again
    sought: list[float] = field(default_factory=list)  # when it was sought in vain, its number being unknown
    missing: list[float] = field(default_factory=list)  # when Slurm did not know its number
    over_since: float | None = None
    stopped_at: float = math.inf  # when its nodes told that they were asked to end it, and not by us
    final: Final | None = None
    hard_at: float = math.inf
    is_stopping: bool = False
    is_withdrawn: bool = False  # it was canceled, if it had not begun
    submitting: bool = False
    asked_at: float = field(default_factory=time.time)  # when the site was asked for it: nothing of it is older
    numbered_at: float = math.inf  # when its number was heard
    submitted: str = ""  # when its site says that it was submitted
    unnumbered: str = ""  # what was said instead of a number, if the call was good
    where: tuple[str, str] = ("", "")  # its partition and nodes there
    site_job: SiteJob | None = None  # as it was told last
    foreign: str = ""  # why the job of its number is not its own
    given_at: float = math.inf  # until when it is looked for which cores it has
    last: Written | None = None  # the end of what it has written, if another account's command has read it
    unbound: str = ""  # why such a command was not bound to its cores
    read: int = 0  # bytes of its output file, as it was read last
    read_at: float = -math.inf

    def __post_init__(self) -> None:
        self.key = key_of(self.run.id)

    @property
    def has_script(self) -> bool:
        """Whether Slurm alone says how it goes: a script of the user's, or a job of an account that has no desk."""
        return bool(self.of_site or self.account or script_of(self.run))

    def named(self, number: str) -> str:
        """Return how Slurm calls its job, by the number that sbatch has told."""
        index = self.element.number if self.element else self.run.environment.get(INDEX) if self.has_script else None
        return f"{number}_{index}" if index else number

    def among(self, ids: Iterable[str]) -> list[str]:
        """Return which of the jobs with its mark may be its own."""
        return [each for each in ids if not self.element or each.endswith(f"_{self.element.number}")]


CLOCKS = 5.0  # seconds by which the clocks of a site and of its agent may differ


def is_ours(active: Active, said: Row | Final, own: str) -> bool:
    """Return whether a job is that of a run; `own`: the account of the agent."""
    owner = active.account.name if active.account else own
    if said.user != owner:  # nothing is known of it where the site does not say whose it is
        return False
    if said.mark:
        return said.mark == active.mark
    if active.submitted:
        return said.submitted == active.submitted
    at = time_of(said.submitted)
    return active.asked_at - CLOCKS <= at <= active.numbered_at + CLOCKS


def other(active: Active, said: Row | Final, name: str) -> str:
    """Say what a number of ours is now, which is not ours any more."""
    key = f"the key {said.mark}" if said.mark else "no key of ours"
    whose = f" of user {said.user}" if said.user else ""
    return f"{name} job {active.native}{whose} has {key} now: it is left alone, and ours is looked for"


def time_of(text: str) -> float:
    """Return a time that a site writes in the zone of this machine, in seconds; what is no time is never."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return math.inf


def mark_of(run: Run, key: str, *, of_array: bool = False) -> str:
    """Return what ends a job's comment and tells it from all others."""
    task = "*" if of_array else run.id[0].removeprefix(run.job + "-")
    return f"rainbow={run.job}/{task}/{run.id[1]}/{key}"


def requestor_of(run: Run) -> str:
    """Return who asked for a run."""
    return str((run.request or {}).get("requestor") or "")


def files(active: Active, place: CallPlace) -> list[Path]:
    """Return the files that a job writes to, as far as names are known here; errors of their own last."""
    number, _, index = (active.native or "").partition("_")
    place = replace(place, account=active.account)
    base = Path(folder_of(active.run, place))
    named = [output_of(active.run, place, active.element), errors_of(active.run)]
    called = one_line((active.run.request or {}).get("name"))
    results = [name.replace("%A", number).replace("%a", index).replace("%x", called) for name in named if name]
    return [base / (name if index else name.replace("%j", number)) for name in results]


def tails(active: Active, place: CallPlace, commands: Commands) -> Written:
    """Return the last of what a job has written, where its files are seen from here."""
    return Written(*(_end_of(active, path, commands) for path in files(active, place)))


def unbound(active: Active, place: CallPlace) -> str:
    """Say why a command of another account was not bound to its cores; empty: nothing was in the way."""
    account = active.account
    if account is None or not place.binds or script_of(active.run):
        return ""
    shut = [path for each in bare.files() if (path := account.cannot_read(each))]
    return f"Rainbow has not bound it to its cores: {account.name} cannot read {shut[0]}" if shut else ""


READ = 15.0  # seconds between two looks as another account: each is a command


def news(active: Active, place: CallPlace, commands: Commands) -> Written | None:
    """Return the last of what a job has written, if that is more than the last time."""
    if active.account is None:
        with contextlib.suppress(OSError):
            size = sum(path.stat().st_size for path in files(active, place))
            if size and size != active.read:
                active.read = size
                return tails(active, place, commands)
        return None
    if time.monotonic() < active.read_at + READ:
        return None
    active.read_at = time.monotonic()
    result = tails(active, place, commands)
    if not any(result) or hash(result) == active.read:
        return None
    active.read = hash(result)
    return result


def _end_of(active: Active, path: Path, commands: Commands) -> str:
    """Return the end of a file; another account's is read as that account, which may read its own alone."""
    keep = active.run.output
    if active.account is None:
        return read_end(path, keep)
    request = {"account": active.account, "requestor": requestor_of(active.run)}
    with contextlib.suppress(subprocess.CalledProcessError, SilentError):
        said = commands.ask("tail", "-c", str(keep), "--", str(path), **request)  # type: ignore[arg-type]
        return said.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return ""
