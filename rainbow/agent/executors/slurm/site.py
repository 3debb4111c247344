"""Slurm as a site: the words of its commands, and who reads what they print (status.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

from rainbow.agent.executors.interface import Cores, Final, Question, Row
from rainbow.agent.executors.run import Ended, Pending, Run, RunId
from rainbow.agent.executors.slurm import status
from rainbow.agent.executors.slurm.call import CallPlace, call_of, placed
from rainbow.jobspec.sbatch.request import carried


class Part(NamedTuple):
    """The part of a Slurm that is a cluster's own: a partition, a reservation, or both; neither: all of it."""

    partition: str = ""
    reservation: str = ""

    @property
    def options(self) -> dict[str, str]:
        """What sbatch is asked for."""
        return {name: value for name, value in self._asdict().items() if value}

    def nodes(self) -> Question[list[str]]:
        """Ask for the names of its nodes."""
        if self.reservation:
            return Question(("scontrol", "-o", "show", "reservation", self.reservation), status.reserved)
        words = ("sinfo", "-h", "-N", "-o", "%N", *(("-p", self.partition) if self.partition else ()))
        return Question(words, lambda said: sorted(set(said.split())))


class Slurm:
    """The site of the executor `slurm`; tested on a real one. `part`: where others' jobs count."""

    name = "Slurm"

    def __init__(self, part: Part = Part()) -> None:  # noqa: B008 - a tuple
        self._part = part

    def submit(self, run: Run, mark: str) -> Question[str]:
        """Ask for a run; arrays, other accounts and what only the executor knows are in handover.py."""
        request = carried(run.request, run.duration) if run.request else placed(run, pinned=False)
        call = call_of(run, request, mark, 1, CallPlace(Path("/tmp"), {}))  # noqa: S108 - nothing is written
        return Question(("sbatch", "--parsable", *call.words), number_of, call.script)

    def jobs(self, accounts: Sequence[str]) -> Question[tuple[dict[str, Row], list[str]]]:
        """Ask for all rows of squeue, elements of arrays one by one."""
        word = token_hex(8)
        words = ("squeue", "-h", "-r", "-t", "all", *_of(accounts), "-o", status.ROWS + status.WHOSE.format(word))
        return Question(words, lambda said: status.read_rows(said, word))

    def queue(self) -> Question[dict[str, list[int]]]:
        """Ask for the priorities of all pending jobs."""
        return Question(("squeue", "-h", "-r", "-t", "PD", "-o", status.QUEUE), status.read_queue)

    def over(self) -> Question[dict[str, Final]]:
        """Ask for all records of the controller, which keeps them for MinJobAge."""
        return Question(("scontrol", "-d", "-o", "show", "job"), status.read_records)

    def final(self, job: str) -> Sequence[Question[dict[str, Final]]]:
        """Ask the controller; who canceled a job is in the accounts alone."""

        def recorded(said: str) -> dict[str, Final]:
            result = status.read_record(said)
            return {job: result} if result else {}

        return (
            Question(("scontrol", "-d", "-o", "show", "job", job), recorded),
            _accounted("-j", job),
        )

    def recorded(self, accounts: Sequence[str], since: float) -> Question[dict[str, Final]]:
        """Ask the accounting, which keeps comments where the site says so (AccountingStoreFlags=job_comment)."""
        when = datetime.fromtimestamp(since).strftime("%Y-%m-%dT%H:%M:%S")
        return _accounted("-S", when, *(("-u", ",".join(accounts)) if accounts else ()))

    def booted(self) -> Question[float | None]:
        """Ask for the controller's configuration, which says since when it runs."""
        return Question(("scontrol", "show", "config"), status.booted)

    def forgets(self, begun: bool) -> bool:
        """Return False: records of canceled jobs stay for MinJobAge."""
        return False

    def cancel(self, job: str, *, pending: bool = False) -> tuple[str, ...]:
        """Return the words of scancel."""
        return ("scancel", "-Q", *(["--state=PENDING"] if pending else []), job)

    def users(self) -> Question[dict[str, str]]:
        """Ask whose the jobs are that have not ended."""
        part = [f"--{name}={value}" for name, value in self._part.options.items()]
        words = ("squeue", "-h", "-r", "-t", "PD,R,CF,S", *part, "-o", "%i|%u")
        return Question(words, lambda said: dict(status.owner(line) for line in said.split()))

    def record(self, job: str) -> Question[Final | None]:
        """Ask what the controller knows of a job."""
        return Question(("scontrol", "-d", "-o", "show", "job", job), status.identity)

    def cores_of(self, job: str) -> Question[str]:
        """Ask for the nodes, cores and GPUs of a job."""
        return Question(("scontrol", "-d", "-o", "show", "job", job), str)

    def node(self, record: str) -> Question[str]:
        """Ask for the first node in what `cores_of` has told."""
        _, _, rest = record.partition(" BatchHost=")
        return Question(("scontrol", "-o", "show", "node", *rest.split()[:1]), str)

    def nodes(self) -> Question[list[str]]:
        """Ask for the nodes of all partitions."""
        return Part().nodes()

    def cores(self) -> Question[Cores]:
        """Ask for the cores of all nodes."""
        return Question(("sinfo", "-h", "-o", status.CORES), status.cores)

    def planned(self, said: str) -> tuple[int, float] | None:
        """Read what `sbatch --test-only` says on its standard error; it submits nothing."""
        return status.planned(said, datetime.now())

    def waiting(self, row: Row, queue: Mapping[str, Sequence[int]], query: str) -> Pending:
        """Say why a job has not begun, in Slurm's words and ours."""
        return status.waiting(row, queue, query)

    def ended(self, run: RunId, job: str, final: Final, *, ours: bool) -> Ended:
        """Say how a run ended."""
        return status.ended(run, job, final, ours=ours)


def _accounted(*which: str) -> Question[dict[str, Final]]:
    delimiter = f"|{token_hex(8)}|"  # a comment may hold anything else
    words = ("sacct", "-a", "-X", "-D", "-n", "-P", f"--delimiter={delimiter}", "-o", status.ACCOUNTED, *which)
    return Question(words, lambda said: status.read_accounted(said, delimiter))


NUMBER = re.compile(r"^(\d+)(;\S+)?$", re.M)  # before the name of a cluster


def number_of(said: str) -> str:
    """Return the number of the job that `sbatch --parsable` tells; empty: none. A site's wrapper may say more.

    >>> number_of("your quota: 12 GB\\n530;oak\\nhave a nice day\\n"), number_of("quota 12\\n")
    ('530', '')
    """
    result = NUMBER.findall(said)
    return result[0][0] if len({number for number, _ in result}) == 1 else ""


def _of(accounts: Sequence[str]) -> tuple[str, ...]:
    return ("-u", ",".join(accounts)) if accounts else ("--me",)
