"""Flux as a site: the words of its commands, and what they print. Written by Flux's manual pages; no Flux was asked.

    flux job submit     reads a jobspec (RFC 25) and prints the id of the job
    flux jobs           prints lines in a format of ours (FORMAT), of jobs in any state
    flux resource list  prints nodes and cores by state

A job's name ends with the mark, since Flux has no comments. What Flux cannot be asked: to cancel one job only while
it is pending, and when a job would start that is not submitted.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rainbow.agent.executors.interface import Cores, Final, Phase, Question, Row
from rainbow.agent.executors.run import Ended, Pending, Result, Run, RunId
from rainbow.errors import JobspecError
from rainbow.jobspec.flux import flux_document
from rainbow.jobspec.hostlist import expand_hosts
from rainbow.jobspec.sbatch.request import NotCarriedError

FORMAT = "{id}|{state}|{sched.t_estimate!D}|{priority}|{queue}|{nodelist}|{sched.reason_pending}"
WHOSE = "\x1f{username}\x1f{name}"
COLUMNS = FORMAT.count("|")
ENDS = "{id}|{result}|{returncode}|{exception.type}|{exception.note}"
ALL = ("-a", "-n", "-c", "0")  # jobs in every state, no header, any number
PHASES: Mapping[str, Phase] = {
    **dict.fromkeys(("NEW", "DEPEND", "PRIORITY", "SCHED"), Phase.WAITING),
    **dict.fromkeys(("RUN", "CLEANUP"), Phase.RUNNING),
    "INACTIVE": Phase.ENDED,
}
CLASSES = {"DEPEND": "dependency", "PRIORITY": "turn", "SCHED": "room"}  # of what has no reason of its own
NEVER_RAN = -128  # the code of a job that was canceled before it began
MOST_NODES = 1_000_000


class Flux:
    """A Flux instance; as its documents say, not as a real one has answered."""

    name = "Flux"

    def submit(self, run: Run, mark: str) -> Question[str]:
        """Ask for a run as a jobspec."""
        answer: dict[str, Any] = {"resources": [], "system": {}, **(run.request or {})}
        answer["name"] = f"{answer.get('name') or 'rainbow'} {mark}"
        try:
            document = flux_document(answer, run.command, run.processes, run.duration, run.cwd, run.environment)
        except JobspecError as fault:
            raise NotCarriedError(str(fault)) from fault
        return Question(("flux", "job", "submit"), lambda said: said.strip(), json.dumps(document))

    def jobs(self, accounts: Sequence[str]) -> Question[tuple[dict[str, Row], list[str]]]:
        """Ask for all jobs."""
        return Question(("flux", "jobs", *ALL, *_of(accounts), "-o", FORMAT + WHOSE), read_rows)

    def queue(self) -> Question[dict[str, list[int]]]:
        """Ask for the priorities of what is pending."""

        def read(said: str) -> dict[str, list[int]]:
            results: dict[str, list[int]] = {}
            for queue, priority in _columns(said, 1):
                if priority.isdecimal():
                    results.setdefault(queue, []).append(int(priority))
            return {queue: sorted(priorities) for queue, priorities in results.items()}

        return Question(("flux", "jobs", "-A", "-n", "-c", "0", "-f", "pending", "-o", "{queue}|{priority}"), read)

    def over(self) -> Question[dict[str, Final]]:
        """Ask for the results of all that is inactive."""
        return Question(("flux", "jobs", "-n", "-c", "0", "-f", "inactive", "-o", ENDS), read_ends)

    def final(self, job: str) -> Sequence[Question[dict[str, Final]]]:
        """Ask for one job's result."""
        return (Question(("flux", "jobs", "-n", "-o", ENDS, job), read_ends),)

    def recorded(self, accounts: Sequence[str], since: float) -> Question[dict[str, Final]]:
        """Ask for all that is inactive: Flux has no accounts beside."""
        return self.over()

    def booted(self) -> Question[float | None]:
        """Ask nothing: a broker that restarts has its jobs on disk."""
        return Question((), lambda _: None)

    def forgets(self, begun: bool) -> bool:
        """Return False: what has ended is inactive."""
        return False

    def cancel(self, job: str, *, pending: bool = False) -> tuple[str, ...]:
        """Return the words of flux cancel."""
        return () if pending else ("flux", "cancel", job)

    def record(self, job: str) -> Question[Final | None]:
        """Ask whose a job is, and in which state."""

        def read(said: str) -> Final | None:
            row = next(iter(read_rows(said)[0].values()), None)
            return Final(row.state, user=row.user, mark=row.mark) if row else None

        return Question(("flux", "jobs", "-n", "-o", FORMAT + WHOSE, job), read)

    def cores_of(self, job: str) -> Question[str]:
        """Ask nothing: Flux binds what it starts itself."""
        return Question((), str)

    def node(self, record: str) -> Question[str]:
        """Ask nothing."""
        return Question((), str)

    def users(self) -> Question[dict[str, str]]:
        """Ask whose the jobs are that have not ended."""
        words = ("flux", "jobs", "-A", "-n", "-c", "0", "-o", "{id}|{username}")
        return Question(words, lambda said: dict(_columns(said, 1)))

    def nodes(self) -> Question[list[str]]:
        """Ask for all nodes."""

        def read(said: str) -> list[str]:
            return sorted({host for line in said.split() for host in expand_hosts(line, MOST_NODES) or [line]})

        return Question(("flux", "resource", "list", "-n", "-s", "all", "-o", "{nodelist}"), read)

    def cores(self) -> Question[Cores]:
        """Ask for cores by state."""

        def read(said: str) -> Cores:
            count = {"free": 0, "allocated": 0, "down": 0}
            for state, cores in _columns(said, 1):
                if state in count and cores.isdecimal():
                    count[state] += int(cores)
            return count["free"], count["allocated"], sum(count.values())

        words = ("flux", "resource", "list", "-n", "-s", "free,allocated,down", "-o", "{state}|{ncores}")
        return Question(words, read)

    def planned(self, said: str) -> tuple[int, float] | None:
        """Read nothing: Flux plans what is submitted alone."""

    def waiting(self, row: Row, queue: Mapping[str, Sequence[int]], query: str) -> Pending:
        """Say why a job has not begun."""
        why = row.reason or row.state
        text = f"Flux job {row.id} waits{f' in queue {row.partition}' if row.partition else ''}: {why}"
        others = queue.get(row.partition, ())
        rank = 1 + len(others) - bisect_right(others, row.priority)
        text += f"; priority {row.priority}, rank {rank} of {len(others)}" if others else ""
        text += f"; planned for {row.start}" if row.start else ""
        facts: dict[str, str | float | bool | None] = {
            "native_id": row.id,
            "reason": row.reason or None,
            "class": CLASSES.get(row.state),
            "partition": row.partition or None,
            "priority": row.priority,
            "rank": rank if others else None,
            "expected_start": row.start or None,
            "asked_at": query or None,
        }
        answer = {key: value for key, value in facts.items() if value is not None}
        return Pending(f"site:{why}"[:100], text[:300], answer)

    def ended(self, run: RunId, job: str, final: Final, *, ours: bool) -> Ended:
        """Say how a run ended."""
        code, number = final.code
        if ours or final.state == "CANCELED":
            result = Result.STOPPED if ours else Result.CANCELED
            return Ended(run, result, detail=f"canceled{'' if ours else ' at the site'}: Flux job {job}")
        if final.state == "TIMEOUT":
            return Ended(run, Result.TIMED_OUT, detail=f"Flux job {job} ran longer than its limit")
        if final.state == "COMPLETED" or code or number:
            return Ended(run, Result.EXITED, 128 + number if number else code, detail=final.reason)
        return Ended(
            run, Result.FAILED, detail=f"Flux job {job} ended as {final.state}: {final.reason or 'no reason'}"
        )


def _of(accounts: Sequence[str]) -> tuple[str, ...]:
    return ("-u", accounts[0]) if len(accounts) == 1 else ("-A",) if accounts else ()


def _columns(said: str, separators: int) -> Iterator[list[str]]:
    for line in said.splitlines():
        parts = [part.strip() for part in line.split("|", separators)]
        if len(parts) == separators + 1:
            yield parts


def read_rows(said: str) -> tuple[dict[str, Row], list[str]]:
    """Read lines of FORMAT; return the jobs by id, and the lines that cannot be read.

    >>> read_rows("12|SCHED|||batch||no cores | yet\\nodd")[1]
    ['odd']
    """
    rows, odd = dict[str, Row](), list[str]()
    for line in filter(str.strip, said.split("\n")):
        request, _, whose = line.partition("\x1f")
        user, _, name = whose.partition("\x1f")
        mark = name.rstrip().rpartition(" ")[2]
        for job, state, start, priority, queue, nodes, reason in _columns(request, COLUMNS):
            if job.isdecimal():
                level = int(priority) if priority.isdecimal() else 0
                phase = PHASES.get(state, Phase.UNKNOWN)
                own = (user, "", mark if mark.startswith("rainbow=") else "")
                rows[job] = Row(job, state, phase, start, level, "", queue, nodes, reason, *own)
                break
        else:
            odd.append(line[:200])
    return rows, odd


def read_ends(said: str) -> dict[str, Final]:
    """Read lines of ENDS; a negative code is that of a signal."""
    results: dict[str, Final] = {}
    for job, result, code, kind, note in _columns(said, 4):
        number = int(code) if code.lstrip("-").isdecimal() else 0
        signal = -number if NEVER_RAN < number < 0 else 0
        if result:
            reason = ": ".join(filter(None, (kind, note)))
            results[job] = Final(result, (max(0, number), signal), reason=reason)
    return results
