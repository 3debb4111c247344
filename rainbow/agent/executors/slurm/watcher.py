"""The questions to a site, asked in the background: where our jobs are, and how those ended that are over.

One question for all jobs at each look. A row, or a record, is believed only if it is ours (job.py). A job that
is not there any more is looked for by its mark, also among other numbers; not there for GONE seconds, it is lost.
"""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from rainbow.agent.executors.interface import Final, Phase, Question, Row, Site, T
from rainbow.agent.executors.run import Ended, Result, RunId, Written
from rainbow.agent.executors.shared_folder import NodeDevices, SharedFolder, given_in
from rainbow.agent.executors.slurm.accounts import Identity
from rainbow.agent.executors.slurm.call import CallPlace, may_rerun
from rainbow.agent.executors.slurm.commands import COMMAND_TIMEOUT, Commands, SilentError
from rainbow.agent.executors.slurm.handover import Handover
from rainbow.agent.executors.slurm.job import CLOCKS, Active, is_ours, news, other, tails, unbound

LOOK = 0.2  # seconds between two looks, at least
QUICK, SLOW = 2.0, 15.0  # seconds between two questions to the site, shortly after a change and else
LIVELY = 30.0  # seconds that count as shortly after a change
COST = 100.0  # a question is asked again after so many times as long as its answer took,
LONGEST = 60.0  # seconds at most
LIVE = 5.0  # seconds between two looks at what runs have written
RANKS = 15.0  # seconds that the order of the queue stands
APART = 30.0  # seconds between two searches for a job whose number is unknown, before it is handed over again
FEW_JOBS = 4  # jobs that are asked about one by one
GUARDED = 60.0  # seconds between two looks at whether others have jobs where all is to be ours
GONE = 60.0  # seconds between two questions after which a job that nobody knows is lost


class Watcher:
    """Asks a site about the runs in `active`, and writes into them what it has heard."""

    def __init__(
        self,
        site: Site,
        active: Mapping[RunId, Active],
        commands: Commands,
        desk: SharedFolder,
        place: CallPlace,
        identity: Identity,
        handover: Handover,
        *,
        owned: bool,
    ) -> None:
        self.rows: dict[str, Row] = {}  # of our jobs alone, by their numbers
        self.queue: tuple[float, str, dict[str, list[int]]] = (-math.inf, "", {})
        self.silent_since = ""
        self.written: dict[RunId, Written] = {}
        self.given: dict[RunId, NodeDevices] = {}
        self.odd = 0  # rows that could not be read
        self.changed = time.monotonic()
        self._begin: Callable[[Active], None] = lambda _: None
        self._site, self._active, self._commands, self._desk, self._place = site, active, commands, desk, place
        self._identity, self._handover, self._owned = identity, handover, owned
        self._guarded, self._took, self._asked_at = -math.inf, 0.0, 0.0
        self._over = threading.Event()

    def start(self, begin: Callable[[Active], None]) -> None:
        """Watch in the background; `begin` is called for a run that has begun."""
        self._begin = begin
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self._guard()
        threading.Thread(target=self._watch, name=self._site.name, daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()

    def is_ours_now(self, active: Active) -> bool:
        """Ask whether the job of this number is ours, before anything is done to it."""
        said = self._ask(self._site.record(active.native or ""))
        return said is not None and is_ours(active, said, self._identity.own)

    def _ask(self, question: Question[T]) -> T:
        requests = [one for one in (question.command, *question.also) if one]
        return question.read("\f".join(self._commands.ask(*one, text=question.told) for one in requests))

    def _whose(self) -> list[str]:
        """Return all accounts we submit as; none: our own alone."""
        names = {one.account.name for one in list(self._active.values()) if one.account}
        return sorted({*names, self._identity.own}) if names else []

    def _watch(self) -> None:
        """Ask again and again: what our jobs are, where those without a number are, how those ended that are over."""
        looked = -math.inf
        while not self._over.is_set():
            if self._active and time.monotonic() >= looked + self._pause():
                try:
                    self._guard()
                    self._look()
                    self.silent_since = ""
                except (OSError, subprocess.SubprocessError):
                    self.silent_since = self.silent_since or time.strftime("%H:%M")
                looked = time.monotonic()
            for one in [one for one in list(self._active.values()) if one.has_begun]:
                if one.account and time.monotonic() < one.given_at < math.inf:
                    self._ask_given(one)
                if (written := news(one, self._place, self._commands)) is not None:
                    self.written[one.run.id] = written
            self._over.wait(min(LIVE, max(LOOK, looked + self._pause() - time.monotonic())))

    def _pause(self) -> float:
        """Return for how long the site is not asked: shortly after a change of ours less, of a slow one more."""
        lively = time.monotonic() < self.changed + LIVELY
        least, cost = (QUICK, COST / 10) if lively else (SLOW, COST)
        return max(least, min(self._took * cost, LONGEST))

    def _ask_given(self, one: Active) -> None:
        """Ask which cores a job of another account has: it has no desk to write that down."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            said = self._ask(self._site.cores_of(one.native or ""))
            one.given_at = math.inf
            self.given[one.run.id] = given_in(said + self._ask(self._site.node(said)))

    # ── one look at all ──

    def _look(self) -> None:
        self._asked_at = time.monotonic()
        rows, odd = self._ask(self._site.jobs(self._whose()))
        self._took, self.odd = time.monotonic() - self._asked_at, len(odd)
        slow = time.time() - COMMAND_TIMEOUT
        active = [one for one in list(self._active.values()) if one.end is None]
        active = [one for one in active if not one.submitting or one.asked_at < slow]
        marked = _by_mark(rows.values())
        for one in active:
            self._recognize(one, rows, marked.get(one.mark, ()))
        numbered = [one for one in active if one.native]
        self.rows = {one.native or "": row for one in numbered if (row := self._row_of(one, rows)) is not None}
        self._rank([one for one in numbered if not one.has_begun])
        self._seek([one for one in active if not one.native and not one.submitting])
        over = [one for one in numbered if one.final is None and self._is_over(one)]
        ended = [one for one in over if one.native in self.rows]
        answer = self._ask(self._site.over()) if len(ended) > FEW_JOBS else {}
        for one in over:
            self._note(one, answer)

    def _row_of(self, one: Active, rows: Mapping[str, Row]) -> Row | None:
        row = rows.get(one.native or "")
        if row is None or not is_ours(one, row, self._identity.own):
            return None
        one.submitted = row.submitted
        one.where = (row.partition or one.where[0], row.nodes or one.where[1])
        return row

    def _recognize(self, one: Active, rows: Mapping[str, Row], marked: Sequence[Row]) -> None:
        """See whether a job of this number is still ours; else take the number of the one that has our mark."""
        row = rows.get(one.native or "")
        if row is not None and is_ours(one, row, self._identity.own):
            one.foreign = ""
            return
        one.foreign = other(one, row, self._site.name) if row is not None and row.user else ""
        ours = (each.id for each in marked if is_ours(one, each, self._identity.own))
        if numbers := one.among(ours):
            self._adopt(one, min(numbers))

    def _adopt(self, one: Active, number: str) -> None:
        """Take another number for a run's, by the mark of the job that has it."""
        self._desk.name(one.run.id, number)
        one.native, one.foreign, one.missing, one.submitted = number, "", [], ""

    def _guard(self) -> None:
        """Pin nothing while others have jobs here: the site may have given them what a policy of ours chose."""
        if not self._owned or time.monotonic() < self._guarded + GUARDED:
            return
        users = self._others()
        if users is None:
            return
        self._guarded = time.monotonic()
        if self._handover.pinned is bool(users):
            self._handover.pinned = not users
            said = f"{', '.join(sorted(users)[:3])} have jobs here, too: tasks are not pinned to nodes (shared)"
            text = said if users else "no others have jobs here any more: tasks are pinned to nodes (owned)"
            sys.stderr.write(f"rainbow agent: {text}\n")

    def _others(self) -> set[str] | None:
        """Return who else has jobs here; None: a job may be ours whose number we have not heard yet."""
        known = list(self._active.values())
        jobs = self._ask(self._site.users())
        known += self._active.values()
        ours = {one.native for one in known}
        users = {user for job, user in jobs.items() if job not in ours} - {self._identity.own}
        unsure = {one.account.name for one in known if one.account and not one.native}
        return None if users and users <= unsure else users

    def _rank(self, waiting: Sequence[Active]) -> None:
        now = time.monotonic()
        pending = [one for one in waiting if one.native in self.rows and self.rows[one.native or ""].reason]
        if pending and now >= self.queue[0] + RANKS:
            self.queue = (now, time.strftime("%H:%M"), self._ask(self._site.queue()))

    # ── whose number was never heard ──

    def _seek(self, unknown: Sequence[Active]) -> None:
        """Look for jobs whose number we never heard, by their marks; twice in vain: they are handed over again."""
        if not unknown:
            return
        now = time.monotonic()
        for one in unknown:
            if self._desk.native(one.run.id):  # heard of by the node that has begun it
                one.native = self._desk.native(one.run.id)
            elif one.is_stopping and (one.sought or not one.has_script) and self._desk.take_back(one.run.id):
                one.end = Ended(one.run.id, Result.STOPPED, detail="it was not handed over")
            elif not one.sought or now >= one.sought[0] + APART:
                one.sought.append(now)
                if len(one.sought) > 1:
                    self._not_there(one)

    def _not_there(self, one: Active) -> None:
        """Hand a run over again whose job is not there: unless it may have run, and been forgotten."""
        one.sought = []
        if ended := self._recorded(one):
            self._adopt(one, ended[0])
            return
        if one.unnumbered:
            one.end = Ended(one.run.id, Result.FAILED, detail=one.unnumbered)
            return
        since = self._ask(self._site.booted())
        forgotten = since is not None and since > one.asked_at - CLOCKS
        if not forgotten or may_rerun(one.run) or not (one.has_script or self._desk.begun(one.run.id)):
            self._handover.again(one)
            return
        text = f"{self._site.name} was started anew before it said whether it had taken the job; it may have run"
        one.end = Ended(one.run.id, Result.FAILED, detail=text, cause="lost")

    def _recorded(self, one: Active) -> tuple[str, Final] | None:
        """Look for a job that is over in the site's own accounts, by its mark; most keep none."""
        results: dict[str, Final] = {}
        with contextlib.suppress(subprocess.CalledProcessError, SilentError):
            results = self._ask(self._site.recorded(self._whose() or [self._identity.own], one.asked_at - CLOCKS))
        for job in one.among(results):
            if results[job].mark and is_ours(one, results[job], self._identity.own):
                return job, results[job]
        return None

    # ── what is over ──

    def _is_over(self, one: Active) -> bool:
        """Return whether it is to be asked how a job ended: it is over or gone, and its nodes have not told us."""
        row = self.rows.get(one.native or "")
        if row is not None and row.phase in (Phase.RUNNING, Phase.HELD) and (one.has_script or one.is_requeued):
            self._begin(one)
        if row is not None and row.phase is Phase.WAITING and one.begun_at < self._asked_at:
            self._put_back(one)
        if row is not None and row.phase is not Phase.ENDED:
            one.missing, one.over_since = [], None
            return False
        first, one.over_since = one.over_since is None, one.over_since or time.monotonic()
        return not (first and row is not None and one.has_begun and not one.has_script)

    def _put_back(self, one: Active) -> None:
        """Take in that the site has put a job back into its queue: a node failed, another job took its place."""
        one.has_begun, one.begun_at, one.is_requeued = False, math.inf, True
        one.over_since, one.given_at, one.stopped_at = None, math.inf, math.inf
        self._desk.forget_ends(one.run.id, range(one.shares))
        self.changed = time.monotonic()

    def _note(self, one: Active, answer: Mapping[str, Final]) -> None:
        """Take in how a job ended."""
        claimed = self._desk.claimed(one.run.id)
        if claimed and claimed != one.native:  # handed over twice: the job that has the run is watched
            self._desk.name(one.run.id, claimed)
            one.native = claimed
            return
        now = time.monotonic()
        native = one.native or ""
        known = answer.get(native)
        believed = known is not None and known.state != "CANCELLED" and is_ours(one, known, self._identity.own)
        final = known if believed else self._final(one)
        if final is None and native not in self.rows:
            one.missing.append(now)
            if len(one.missing) > 1 and (ended := self._recorded(one)):
                self._adopt(one, ended[0])
                one.over_since, final = now, ended[1]
            elif one.is_stopping and self._site.forgets(one.has_begun):
                final = Final("CANCELLED")
            elif now >= one.missing[0] + GONE:  # a record may be missing of a job that ran to its end
                final = Final("LOST")
        if final is not None:
            one.where = (final.partition or one.where[0], final.nodes or one.where[1])
            if one.account and final.state != "LOST":
                # read here, by a command for each file: the agent waits for nothing when it polls
                one.last = tails(one, self._place, self._commands)
                one.unbound = unbound(one, self._place)
            one.final, self.changed = final, now

    def _final(self, one: Active) -> Final | None:
        """Ask how a job ended, until who knows all of it has told."""
        result: Final | None = None
        native = one.native or ""
        for question in self._site.final(native):
            with contextlib.suppress(subprocess.CalledProcessError, *([SilentError] if result else [])):
                said = self._ask(question).get(native)
                if said is not None and is_ours(one, said, self._identity.own):
                    result = said
            if result is not None and result.state != "CANCELLED":  # who canceled it, not everybody knows
                break
        return result


def _by_mark(rows: Collection[Row]) -> dict[str, list[Row]]:
    result: dict[str, list[Row]] = {}
    for row in rows:
        if row.mark:
            result.setdefault(row.mark, []).append(row)
    return result
