"""The executor: hands every run to Slurm once, watches all of them with one question, and reads how they ended.

desk      what runs, and how it ended, goes through a folder that all nodes see (shared_folder.py); a run whose
          jobspec has a script is the script itself, and its end is what Slurm says
handover  each run goes to Slurm once (handover.py)
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from rainbow.agent.executors.interface import Final, Phase, Question, Row, T
from rainbow.agent.executors.run import Ended, Pending, Result, Run, RunId, Written
from rainbow.agent.executors.shared_folder import Given, SharedFolder, given_in, key_of, merged
from rainbow.agent.executors.slurm.accounts import Identity
from rainbow.agent.executors.slurm.call import CallPlace, Element, errors_of
from rainbow.agent.executors.slurm.commands import Commands, Rest, SilentError, opened_rest
from rainbow.agent.executors.slurm.handover import Handover
from rainbow.agent.executors.slurm.job import Active, mark_of, news, requestor_of, tails, unbound
from rainbow.agent.executors.slurm.site import Slurm
from rainbow.state_machine import REQUEUED

LOOK = 0.2  # seconds between two looks into the folder
QUICK, SLOW = 2.0, 15.0  # seconds between two questions to Slurm, shortly after a change and else
LIVELY = 30.0  # seconds that count as shortly after a change
COST = 100.0  # a question is asked again after so many times as long as its answer took,
LONGEST = 60.0  # seconds at most
LIVE = 5.0  # seconds between two looks at what runs have written
EXPLAINED = 1.0  # seconds between two accounts of what waits
RANKS = 15.0  # seconds that the order of the queue stands
LATE = 10.0  # seconds that a run's own word may take through a shared file system after its job's end
HARD = 15.0  # seconds after which a run that was asked to stop is canceled, and canceled again
APART = 30.0  # seconds between two searches for a job whose number is unknown, before it is handed over again
FEW_JOBS = 4  # jobs that are asked about one by one
GUARDED = 60.0  # seconds between two looks at whether others have jobs where all is to be ours
GONE = 60.0  # seconds between two questions after which a job that nobody knows is lost
MODES = ("shared", "owned")
HELPER = f"sudo -n {sys.executable} -I -m rainbow.agent.executors.slurm.helper"  # which a line of sudoers allows


class SlurmExecutor:
    """Runs tasks as jobs of Slurm; `mode` shared: requests go over whole; owned: placements are pinned."""

    def __init__(
        self,
        mode: str,
        environment: Mapping[str, str],
        folder: Path | None,
        identity: Identity | None = None,
        helper: Sequence[str] = (),
        rest: Rest | None = None,
    ) -> None:
        if mode and mode not in MODES:
            raise ValueError(f"the executor slurm has no mode {mode:.40}; it has: {', '.join(MODES)}")
        self._owned = mode == "owned"
        self._environment = environment
        self._identity = identity or Identity()
        self._commands = Commands(helper, rest)
        self._desk = SharedFolder((folder or Path(tempfile.mkdtemp(prefix="rainbow-"))).resolve())
        binds = self._owned and os.environ.get("RAINBOW_BIND") != "none"
        self._place = CallPlace(self._desk.folder, environment, binds=binds)
        self._given: dict[RunId, Given] = {}
        self._site = Slurm()
        self._handover = Handover(self._commands, self._desk, self._place, self._identity, self._ask_as)
        self._handover.pinned = self._owned
        self._active: dict[RunId, Active] = {}
        self._told: list[Active] = []
        self._begun: list[RunId] = []
        self._looked = self._asked_at = 0.0
        self._changed = time.monotonic()
        self._rows: dict[str, Row] = {}
        self._queue: tuple[float, str, dict[str, list[int]]] = (-math.inf, "", {})
        self._silent_since: str = ""
        self._explained: tuple[float, dict[RunId, Pending]] = (-math.inf, {})
        self.odd = 0  # rows of squeue that could not be read
        self._guarded, self._took = -math.inf, 0.0
        self._written: dict[RunId, Written] = {}
        listed = self._desk.listed()
        for run in self._desk.there():
            self._adopt(run, listed)
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self._guard()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="squeue", daemon=True)
        self._watcher.start()

    # ── handing over ──

    def start(self, run: Run) -> None:
        """Leave a run for the nodes and hand it over, in the background."""
        if run.id in self._active:
            return
        active = self._active[run.id] = Active(run)
        try:
            self._desk.put(run, self._environment)
        except (OSError, ValueError) as fault:
            active.end = Ended(run.id, Result.FAILED, detail=f"failed to start: {fault}")
            return
        self._handover.start(active)
        self._changed = time.monotonic()

    def _adopt(self, run: Run, listed: Mapping[str, tuple[str, str]]) -> None:
        """Continue a run of an agent that was killed: by its number, or by the mark in its job's comment."""
        key = self._desk.noted(run.id)
        group, index = listed.get(key_of(run.id), ("", ""))
        if key is None and not group and self._desk.take_back(run.id):  # killed before anything was handed over
            return
        active = self._active[run.id] = Active(run, mark_of(run, group or key or "", of_array=bool(group)))
        active.element = Element(group, index) if group else None
        self._handover.adopted(active)
        active.native = self._desk.native(run.id)

    # ── what Slurm is asked, in the background ──

    def _ask(self, question: Question[T]) -> T:
        return question.read(self._commands.ask(*question.command, told=question.told))

    def _ask_as(self, active: Active, *command: str) -> str:
        """Ask as the account that a job belongs to."""
        return self._commands.ask(*command, account=active.account, requestor=requestor_of(active.run))

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
                    self._silent_since = ""
                except (OSError, subprocess.SubprocessError):
                    self._silent_since = self._silent_since or time.strftime("%H:%M")
                looked = time.monotonic()
            for one in [one for one in list(self._active.values()) if one.has_begun]:
                if one.account and time.monotonic() < one.given_at < math.inf:
                    self._ask_given(one)
                if (written := news(one, self._place, self._commands)) is not None:
                    self._written[one.run.id] = written
            self._over.wait(min(LIVE, max(LOOK, looked + self._pause() - time.monotonic())))

    def _pause(self) -> float:
        """Return for how long Slurm is not asked: shortly after a change of ours less, of a slow one more."""
        lively = time.monotonic() < self._changed + LIVELY
        least, cost = (QUICK, COST / 10) if lively else (SLOW, COST)
        return max(least, min(self._took * cost, LONGEST))

    def _look(self) -> None:
        self._asked_at = time.monotonic()
        rows, odd = self._ask(self._site.jobs(self._whose()))
        self._took = time.monotonic() - self._asked_at
        self._rows, self.odd = rows, len(odd)
        active = list(self._active.values())
        self._rank([one for one in active if one.native and not one.has_begun])
        self._seek([one for one in active if not one.native and not one.submitting and one.end is None])
        over = [one for one in active if one.native and one.final is None and self._is_over(one, rows)]
        told = self._ask(self._site.over()) if len(over) > FEW_JOBS else {}
        for one in over:
            self._note(one, rows.get(one.native or ""), told)

    def _guard(self) -> None:
        """Pin nothing while others have jobs here: Slurm may have given them what a policy of ours chose."""
        if not self._owned or time.monotonic() < self._guarded + GUARDED:
            return
        users = self._others()
        if users is None:
            return
        self._guarded = time.monotonic()
        if self._handover.pinned is bool(users):
            self._handover.pinned = not users
            said = (
                f"{', '.join(sorted(users)[:3])} have jobs on this Slurm, too: tasks are not pinned to nodes (shared)"
            )
            told = said if users else "no others have jobs on this Slurm any more: tasks are pinned to nodes (owned)"
            sys.stderr.write(f"rainbow agent: {told}\n")

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
        pending = [one for one in waiting if one.native in self._rows and self._rows[one.native or ""].reason]
        if pending and now >= self._queue[0] + RANKS:
            self._queue = (now, time.strftime("%H:%M"), self._ask(self._site.queue()))

    def _seek(self, unknown: Sequence[Active]) -> None:
        """Look for jobs whose number we never heard, by their marks; twice in vain: they are handed over again."""
        if not unknown:
            return
        found = self._ask(self._site.marked(self._whose(), [one.mark for one in unknown]))
        now = time.monotonic()
        for one in unknown:
            if ids := one.among(found.get(one.mark, ())):
                self._desk.name(one.run.id, min(ids))
            if self._desk.native(one.run.id):  # heard of by its comment, or by the node that has begun it
                one.native = self._desk.native(one.run.id)
            elif one.is_stopping and (one.sought or not one.has_script) and self._desk.take_back(one.run.id):
                one.end = Ended(one.run.id, Result.STOPPED, detail="it was not handed over")
            elif not one.sought or now >= one.sought[0] + APART:
                one.sought.append(now)
                if len(one.sought) > 1:
                    one.sought = []
                    self._handover.again(one)

    def _is_over(self, one: Active, rows: Mapping[str, Row]) -> bool:
        """Return whether Slurm is to be asked how a job ended: it is over or gone, and its nodes have not told us."""
        row = rows.get(one.native or "")
        if row is not None and row.phase in (Phase.RUNNING, Phase.HELD) and (one.has_script or one.is_requeued):
            self._begin(one)
        if row is not None and row.phase is Phase.WAITING and one.begun_at < self._asked_at:
            self._put_back(one)
        if row is not None and row.phase is not Phase.ENDED:
            one.missing = []
            return False
        first, one.over_since = one.over_since is None, one.over_since or time.monotonic()
        return not (first and row is not None and one.has_begun and not one.has_script)

    def _put_back(self, one: Active) -> None:
        """Take in that Slurm has put a job back into its queue: a node failed, another job took its place."""
        one.has_begun, one.begun_at, one.is_requeued = False, math.inf, True
        one.over_since, one.given_at, one.stopped_at = None, math.inf, math.inf
        self._desk.forget_ends(one.run.id, range(one.shares))
        self._changed = time.monotonic()

    def _note(self, one: Active, row: Row | None, told: Mapping[str, Final]) -> None:
        """Take in how a job ended."""
        claimed = self._desk.claimed(one.run.id)
        if claimed and claimed != one.native:  # handed over twice: the job that has the run is watched
            self._desk.name(one.run.id, claimed)
            one.native = claimed
            return
        now = time.monotonic()
        native = one.native or ""
        final = told[native] if native in told and told[native].state != "CANCELLED" else self._final(native)
        if final is None and row is None:
            one.missing.append(now)
            if now >= one.missing[0] + GONE:
                final = Final("LOST")
        if final is not None:
            if one.account:  # read here, by a command for each file: the agent waits for nothing when it polls
                one.last = tails(one, self._place, self._commands)
                one.unbound = unbound(one, self._place)
            one.final, self._changed = final, now

    def _final(self, native: str) -> Final | None:
        found: Final | None = None
        for question in self._site.final(native):
            with contextlib.suppress(subprocess.CalledProcessError, *([SilentError] if found else [])):
                found = self._ask(question).get(native, found)
            if found is not None and found.state != "CANCELLED":  # who canceled it, not everybody knows
                break
        return found

    # ── what the agent asks ──

    def poll(self) -> Sequence[Ended]:
        """Return what has ended; files of what was returned before are thrown away."""
        for active in self._told:
            self._desk.clear(active.run.id, range(active.shares))
            if element := active.element:
                others = (one.element for one in self._active.values() if one.element)
                self._desk.strike(*element, last=all(one.group != element.group for one in others))
        self._told = []
        now = time.monotonic()
        if now < self._looked + LOOK:
            return []
        self._looked = now
        there, begun = self._desk.ended(), self._desk.all_begun()
        ended = []
        for active in list(self._active.values()):
            if active.key in begun and not active.is_requeued:
                self._begin(active)
            self._look_up(active, now)
            end = self._end_of(active, there.get(active.key, []), now)
            if end is not None:
                del self._active[active.run.id]
                self._told.append(active)
                self._changed = now
                ended.append(end)
        return ended

    def _look_up(self, active: Active, now: float) -> None:
        """Look which cores Slurm gave a run that is bound to them, as its node has written down."""
        if now < active.given_at < math.inf and (given := self._desk.given(active.run.id)) is not None:
            active.given_at = math.inf
            self._given[active.run.id] = given

    def _ask_given(self, active: Active) -> None:
        """Ask which cores a job of another account has: it has no desk to write that down."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            record = self._ask(self._site.record(active.native or ""))
            active.given_at = math.inf
            self._given[active.run.id] = given_in(record + self._ask(self._site.node(record)))

    def given(self) -> Mapping[RunId, Given]:
        """Return what Slurm gave the runs of which that was heard since the last call."""
        given, self._given = self._given, {}
        return given

    def _begin(self, active: Active) -> None:
        if not active.has_begun:
            active.has_begun, active.begun_at = True, time.monotonic()
            active.given_at = time.monotonic() + LATE if self._place.binds else math.inf
            self._begun.append(active.run.id)

    def _end_of(self, active: Active, places: list[int], now: float) -> Ended | None:
        if len(places) >= active.shares:
            end = self._told_by_nodes(active, places)
            if active.is_stopping or not _may_be_the_sites(end):
                return end
            return self._end_at_site(active, end, now)
        if active.end is not None:
            return active.end
        self._insist(active)
        final = active.final
        if final is None or active.over_since is None:
            return None
        waits_for_node = not active.has_script and (active.has_begun or final.state == "COMPLETED")
        if waits_for_node and now < active.over_since + LATE:
            return None
        return self._end_as_said(active, final)

    def _told_by_nodes(self, active: Active, places: Sequence[int]) -> Ended:
        end = merged([self._desk.read_end(active.run.id, place) for place in sorted(places)])
        if errors_of(active.run):
            return replace(end, errors=tails(active, self._place, self._commands).errors)
        return end

    def _end_at_site(self, active: Active, end: Ended, now: float) -> Ended | None:
        """Return the end of a run that got a signal not from us, None: Slurm has not said why.

        It may have been canceled there, have run too long, or be in the queue again; or it got it from elsewhere.
        """
        if active.stopped_at == math.inf:
            active.stopped_at = self._changed = now
        final = active.final
        if final is None:
            return end if now >= active.stopped_at + 2 * GONE else None
        if final.state in ("COMPLETED", "LOST") or (end.result is Result.EXITED and final.state == "FAILED"):
            return end
        said = self._site.ended(active.run.id, active.native or "", final, ours=False)
        return replace(said, output=end.output, errors=end.errors)

    def _end_as_said(self, active: Active, final: Final) -> Ended:
        run, native = active.run.id, active.native or ""
        if final.state == "LOST":
            return Ended(run, Result.LOST, detail=f"Slurm does not know job {native} any more", cause="lost")
        if final.state == "COMPLETED" and not active.has_script:
            return Ended(run, Result.LOST, detail=f"Slurm job {native} ended without a word from its nodes")
        taken_back = active.is_withdrawn and not active.has_begun and final.state == "CANCELLED"
        end = self._site.ended(run, native, final, ours=active.is_stopping or taken_back)
        last = active.last or tails(active, self._place, self._commands)
        return Ended(run, end.result, end.exit_code, *last, end.detail or active.unbound, end.cause)

    def written(self) -> Mapping[RunId, Written]:
        """Return the end of what runs have written, of those that have written more since the last call."""
        if not self._written:
            return {}
        written, self._written = self._written, {}
        return {run: ends for run, ends in written.items() if run in self._active}

    def begun(self) -> Sequence[RunId]:
        """Return what nodes have begun since the last call."""
        begun, self._begun = self._begun, []
        return begun

    def held(self) -> Set[RunId]:
        """Return what its users hold in place at the site."""
        rows = self._rows
        return {
            one.run.id
            for one in self._active.values()
            if one.has_begun and (row := rows.get(one.native or "")) is not None and row.phase is Phase.HELD
        }

    def pending(self) -> Mapping[RunId, Pending]:
        """Return how Slurm's queue has what has not begun: its reason, rank and planned start."""
        now = time.monotonic()
        if now >= self._explained[0] + EXPLAINED or not self._active:
            waiting = (active for active in self._active.values() if not active.has_begun and active.end is None)
            self._explained = now, {active.run.id: self._pending(active) for active in waiting}
        return self._explained[1]

    def _pending(self, active: Active) -> Pending:
        if self._silent_since:
            since = self._silent_since
            return Pending("site:silent", f"Slurm has not answered since {since}", {"native_id": active.native})
        if not active.native:
            return Pending("submitting", "Slurm has not answered the submission yet")
        row = self._rows.get(active.native)
        if row is None or row.phase is not Phase.WAITING:
            text = f"Slurm job {active.native} " + ("has nodes, which have not begun it" if row else "is submitted")
            return Pending(f"site:{row.state if row else 'submitted'}", text, {"native_id": active.native})
        why = self._site.waiting(row, self._queue[2], self._queue[1])
        return replace(why, facts={**why.facts, REQUEUED: True}) if active.is_requeued else why

    def stop(self, run: RunId) -> None:
        """Ask the nodes to end a run; a job that does not run yet is canceled."""
        active = self._active.get(run)
        if active is None:
            return
        active.is_stopping = True
        self._desk.ask_to_stop(run)
        by_nodes = not active.has_script and self._desk.begun(run)
        active.hard_at = time.monotonic() + (HARD if by_nodes else 0)
        self._insist(active)
        self._changed = time.monotonic()

    def _insist(self, active: Active) -> None:
        """Cancel a job that was asked to stop: as soon as its number is known, if its nodes do not, and again."""
        if active.native and (now := time.monotonic()) >= active.hard_at:
            active.hard_at = now + HARD
            self._handover.pool.submit(self._cancel, active)

    def withdraw(self, run: RunId) -> None:
        """Cancel a job if Slurm has not begun it."""
        active = self._active.get(run)
        if active is not None and active.native and not active.has_begun:
            active.is_withdrawn = True
            self._handover.pool.submit(self._cancel, active, pending=True)
            self._changed = time.monotonic()

    def suspend(self, run: RunId) -> None:
        """Ask the nodes to hold a run; Slurm's own limit continues."""
        self._desk.ask_to_hold(run)

    def resume(self, run: RunId) -> None:
        """Ask the nodes to let a run continue."""
        self._desk.ask_to_go_on(run)

    def _cancel(self, active: Active, *, pending: bool = False) -> None:
        with contextlib.suppress(subprocess.CalledProcessError, SilentError):  # it is asked again after HARD seconds
            self._ask_as(active, *self._site.cancel(active.native or "", pending=pending))
        self._changed = time.monotonic()

    def running(self) -> Sequence[RunId]:
        """Return the runs whose end has not been told."""
        return list(self._active)

    def close(self) -> None:
        """Cancel every job."""
        for active in list(self._active.values()):
            self.stop(active.run.id)
        self._handover.pool.shutdown(wait=True)
        for active in self._active.values():
            if active.native and time.monotonic() >= active.hard_at:  # its number was not known before
                self._cancel(active)
            active.hard_at = math.inf
        end = time.monotonic() + HARD
        while self._active and time.monotonic() < end:
            self.poll()
            for run in [run for run in self._active if not self._desk.begun(run)]:
                del self._active[run]
            time.sleep(LOOK)
        for active in self._active.values():
            if active.native:
                self._cancel(active)
        self._active.clear()
        self._over.set()


def _may_be_the_sites(end: Ended) -> bool:
    """Return whether a run ended by what Slurm sends when it ends a job: TERM, and KILL a while later."""
    by_signal = end.result is Result.EXITED and end.exit_code in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    return end.result is Result.STOPPED or (by_signal and not end.cause)


def opened(argument: str, environment: Mapping[str, str], folder: Path | None) -> SlurmExecutor:
    """Open the executor for "MODE" or "MODE,IDENTITY[,USERS]".

    The helper is the command in RAINBOW_SLURM_HELPER; for RAINBOW_SLURM_REST and _TOKENS see commands.py.
    """
    mode, how, users = [*argument.split(",", 2), "", ""][:3]
    identity = Identity(how or "service", Path(users) if users else None)
    helper = shlex.split(os.environ.get("RAINBOW_SLURM_HELPER") or HELPER) if how == "helper" else []
    rest = opened_rest(os.environ) if how == "rest" else None
    return SlurmExecutor(mode, environment, folder, identity, [*helper, users] if helper else (), rest)
