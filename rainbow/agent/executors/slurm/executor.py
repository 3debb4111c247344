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
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from rainbow.agent.executors.interface import Final, Phase, Site
from rainbow.agent.executors.run import Checked, Ended, Pending, Result, Run, RunId, SiteJob, Written
from rainbow.agent.executors.shared_folder import NodeDevices, SharedFolder, key_of, merged
from rainbow.agent.executors.slurm.accounts import Identity
from rainbow.agent.executors.slurm.call import CallPlace, Element, errors_of, may_rerun
from rainbow.agent.executors.slurm.commands import Commands, Rest, SilentError, opened_rest
from rainbow.agent.executors.slurm.handover import Handover
from rainbow.agent.executors.slurm.job import Active, mark_of, requestor_of, tails
from rainbow.agent.executors.slurm.site import Part, Slurm
from rainbow.agent.executors.slurm.watcher import GONE, LOOK, Watcher
from rainbow.jobspec.sbatch.request import NotCarriedError
from rainbow.state_machine import REQUEUED

EXPLAINED = 1.0  # seconds between two accounts of what waits
LATE = 10.0  # seconds that a run's own word may take through a shared file system after its job's end
HARD = 15.0  # seconds after which a run that was asked to stop is canceled, and canceled again
HOUR = 3600.0  # seconds that the size of a job is of interest after somebody has asked for it
MODES = ("shared", "owned")
HELPER = f"sudo -n {sys.executable} -I -m rainbow.agent.executors.slurm.helper"  # which a line of sudoers allows


class SlurmExecutor:
    """Runs tasks as jobs of Slurm; `mode` shared: requests go over whole; owned: placements are pinned."""

    of_site = False  # nodes tell how commands go, through the desk

    def __init__(
        self,
        mode: str,
        environment: Mapping[str, str],
        folder: Path | None,
        identity: Identity | None = None,
        helper: Sequence[str] = (),
        rest: Rest | None = None,
        part: Part = Part(),  # noqa: B008 - a tuple
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
        self._site, self._handover = self._opened_site(part)
        self._handover.pinned, self._handover.part = self._owned, part
        self._active: dict[RunId, Active] = {}
        self._told: list[Active] = []
        self._begun: list[RunId] = []
        self._looked = 0.0
        self._site_jobs: dict[RunId, SiteJob] = {}
        self._checked: dict[str, Checked | None] = {}
        self._plans: dict[int, tuple[float, float]] = {}  # {cores: when it was asked, when such a job would start}
        self._explained: tuple[float, dict[RunId, Pending]] = (-math.inf, {})
        seen = (self._site, self._active, self._commands, self._desk, self._place, self._identity, self._handover)
        self._watcher = Watcher(*seen, owned=self._owned)
        listed = self._desk.listed()
        for run in self._desk.there():
            self._adopt(run, listed)
        self._watcher.start(self._begin)

    def _opened_site(self, part: Part) -> tuple[Site, Handover]:
        """Return whom runs are handed over to, and how."""
        return Slurm(part), Handover(self._commands, self._desk, self._place, self._identity, self._ask_as)

    @property
    def odd(self) -> int:
        """Rows of the last answer that could not be read."""
        return self._watcher.odd

    # ── handing over ──

    def start(self, run: Run) -> None:
        """Leave a run for the nodes and hand it over, in the background."""
        if run.id in self._active:
            return
        active = self._active[run.id] = Active(run, of_site=self.of_site)
        try:
            self._desk.put(run, self._environment)
        except (OSError, ValueError) as fault:
            active.end = Ended(run.id, Result.FAILED, detail=f"failed to start: {fault}")
            return
        self._handover.start(active)
        self._watcher.changed = time.monotonic()

    def trouble(self) -> str:
        """Return why the helper does not work; empty: it does, or there is none."""
        return self._commands.helper_trouble()

    # ── jobs to come ──

    def check(self, question: str, run: Run) -> None:
        """Ask Slurm in the background whether it would take a run."""
        self._handover.pool.submit(self._check, question, run)

    def _check(self, question: str, run: Run) -> None:
        try:
            result = self._site.planned(self._handover.test(run))
            self._checked[question] = Checked("", result and result[1])
            if result is not None:
                self._plans[result[0]] = time.monotonic(), time.monotonic() + result[1]
        except NotCarriedError as fault:
            self._checked[question] = Checked(f"it cannot be handed over to {self._site.name}: {fault}")
        except subprocess.CalledProcessError as fault:
            self._checked[question] = Checked(f"{self._site.name} says: {self._handover.refusal_of(fault.output)}")
        except Exception:  # whatever it is, nothing is known of what the site would do
            self._checked[question] = None

    def checked(self) -> Mapping[str, Checked | None]:
        """Return what Slurm has said since the last call."""
        result, self._checked = self._checked, {}
        return result

    def waits(self) -> Mapping[int, float]:
        """Return in how many seconds jobs would start, by cores, of those asked about within the hour."""
        now, known = time.monotonic(), dict(self._plans)
        return {cores: max(0.0, start - now) for cores, (at, start) in known.items() if now < at + HOUR}

    def _adopt(self, run: Run, listed: Mapping[str, tuple[str, str]]) -> None:
        """Continue a run of an agent that was killed: by its number, or by the mark in its job's comment."""
        key = self._desk.noted(run.id)
        group, index = listed.get(key_of(run.id), ("", ""))
        if key is None and not group and self._desk.take_back(run.id):  # killed before anything was handed over
            return
        mark = mark_of(run, group or key or "", of_array=bool(group))
        active = self._active[run.id] = Active(run, mark, of_site=self.of_site)
        active.element = Element(group, index) if group else None
        self._handover.adopted(active)
        active.native = self._desk.native(run.id)
        active.asked_at = self._desk.noted_at(run.id, group)
        active.numbered_at = self._desk.named_at(run.id)

    def _ask_as(self, active: Active, *command: str) -> str:
        """Ask as the account that a job belongs to."""
        return self._commands.ask(*command, account=active.account, requestor=requestor_of(active.run))

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
            self._note_site(active, ends=end is not None)
            if end is not None:
                del self._active[active.run.id]
                self._told.append(active)
                self._watcher.changed = now
                ended.append(end)
        return ended

    def _note_site(self, active: Active, *, ends: bool) -> None:
        if ends and not active.where[1]:  # it was too short for a look at it
            partition, nodes = self._desk.placed(active.run.id)
            active.where = (partition or active.where[0], nodes)
        if active.native and (now := SiteJob(active.native, *active.where, active.foreign)) != active.site_job:
            active.site_job = self._site_jobs[active.run.id] = now

    def site_jobs(self) -> Mapping[RunId, SiteJob]:
        """Return the numbers, partitions and nodes that have changed since the last call."""
        if not self._site_jobs:
            return {}
        result, self._site_jobs = self._site_jobs, {}
        return result

    def _look_up(self, active: Active, now: float) -> None:
        """Look which cores Slurm gave a run that is bound to them, as its node has written down."""
        if now < active.given_at < math.inf and (options := self._desk.given(active.run.id)) is not None:
            active.given_at = math.inf
            self._watcher.given[active.run.id] = options

    def given(self) -> Mapping[RunId, NodeDevices]:
        """Return what Slurm gave the runs of which that was heard since the last call."""
        options, self._watcher.given = self._watcher.given, {}
        return options

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
            active.stopped_at = self._watcher.changed = now
        final = active.final
        if final is None:
            return end if now >= active.stopped_at + 2 * GONE else None
        if final.state in ("COMPLETED", "LOST") or (end.result is Result.EXITED and final.state == "FAILED"):
            return end
        said = self._site.ended(active.run.id, active.native or "", final, ours=False)
        said = _once(active, said)
        return replace(said, output=end.output, errors=end.errors)

    def _end_as_said(self, active: Active, final: Final) -> Ended:
        run, native = active.run.id, active.native or ""
        if final.state == "LOST":
            return self._lost(active, active.foreign or f"{self._site.name} does not know job {native} any more")
        if final.state == "COMPLETED" and not active.has_script:
            return self._lost(active, f"{self._site.name} job {native} ended without a word from its nodes")
        taken_back = active.is_withdrawn and not active.has_begun and final.state == "CANCELLED"
        end = _once(active, self._site.ended(run, native, final, ours=active.is_stopping or taken_back))
        last = active.last or tails(active, self._place, self._commands)
        return Ended(run, end.result, end.exit_code, *last, end.detail or active.unbound, end.cause)

    def _lost(self, active: Active, detail: str) -> Ended:
        """End a run whose end is not known: it may have run, and runs again only if its job allows it."""
        result = Result.LOST if may_rerun(active.run) else Result.FAILED
        return Ended(active.run.id, result, detail=detail, cause="lost")

    def written(self) -> Mapping[RunId, Written]:
        """Return the end of what runs have written, of those that have written more since the last call."""
        if not self._watcher.written:
            return {}
        written, self._watcher.written = self._watcher.written, {}
        return {run: ends for run, ends in written.items() if run in self._active}

    def begun(self) -> Sequence[RunId]:
        """Return what nodes have begun since the last call."""
        begun, self._begun = self._begun, []
        return begun

    def held(self) -> Set[RunId]:
        """Return what its users hold in place at the site."""
        rows = self._watcher.rows
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
        if self._watcher.silent_since:
            since = self._watcher.silent_since
            return Pending(
                "site:silent", f"{self._site.name} has not answered since {since}", {"native_id": active.native}
            )
        if active.foreign:
            return Pending("site:other", active.foreign, {"native_id": active.native})
        if not active.native:
            return Pending("submitting", f"{self._site.name} has not answered the submission yet")
        row = self._watcher.rows.get(active.native)
        if row is None or row.phase is not Phase.WAITING:
            text = f"{self._site.name} job {active.native} " + (
                "has nodes, which have not begun it" if row else "is submitted"
            )
            return Pending(f"site:{row.state if row else 'submitted'}", text, {"native_id": active.native})
        why = self._site.waiting(row, self._watcher.queue[2], self._watcher.queue[1])
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
        self._watcher.changed = time.monotonic()

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
            self._watcher.changed = time.monotonic()

    def suspend(self, run: RunId) -> None:
        """Ask the nodes to hold a run; Slurm's own limit continues."""
        self._desk.ask_to_hold(run)

    def resume(self, run: RunId) -> None:
        """Ask the nodes to let a run continue."""
        self._desk.ask_to_go_on(run)

    def _cancel(self, active: Active, *, pending: bool = False) -> None:
        """Cancel a job, if it is ours still."""
        with contextlib.suppress(subprocess.CalledProcessError, SilentError):  # it is asked again after HARD seconds
            words = self._site.cancel(active.native or "", pending=pending)
            if words and self._watcher.is_ours_now(active):
                self._ask_as(active, *words)
        self._watcher.changed = time.monotonic()

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
        self._watcher.stop()


def _may_be_the_sites(end: Ended) -> bool:
    """Return whether a run ended by what Slurm sends when it ends a job: TERM, and KILL a while later."""
    by_signal = end.result is Result.EXITED and end.exit_code in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    return end.result is Result.STOPPED or (by_signal and not end.cause)


def _once(active: Active, end: Ended) -> Ended:
    """Return an end that is final, where the site has ended a job that must not start twice."""
    if active.is_stopping or active.is_withdrawn or may_rerun(active.run) is not False:
        return end
    cause = {Result.LOST: "node", Result.STOPPED: "preempted"}.get(end.result, "")
    return replace(end, result=Result.FAILED, cause=cause) if cause else end


def helper_words() -> list[str]:
    """Return the words of the program that becomes other accounts, without the file it reads."""
    return shlex.split(os.environ.get("RAINBOW_SLURM_HELPER") or HELPER)


def opened(argument: str, environment: Mapping[str, str], folder: Path | None) -> SlurmExecutor:
    """Open the executor for "MODE" or "MODE,IDENTITY[,USERS]"; MODE may be owned;partition=P;reservation=R.

    The helper is the command in RAINBOW_SLURM_HELPER; for RAINBOW_SLURM_REST and _TOKENS see commands.py.
    """
    mode, how, users = [*argument.split(",", 2), "", ""][:3]
    mode, *words = mode.split(";")
    part = Part(**dict(word.split("=", 1) for word in words))
    identity = Identity(how or "service", Path(users) if users else None)
    helper = helper_words() if how == "helper" else []
    rest = opened_rest(os.environ) if how == "rest" else None
    return SlurmExecutor(mode, environment, folder, identity, [*helper, users] if helper else (), rest, part)
