"""The warden: one process for each run that a keeper has started; it watches that run alone and outlives the keeper.

    keeper ─fork─► warden ─► the run's processes            where the system gives no space of processes of its own
                                                        where it does, the warden is that space's first process
    keeper ─fork─► gate ─fork─► warden ─► processes         the same without root

So a run that kills its parent kills its own warden, and no other run's. In a space of its own it cannot even signal
that. Wardens leave how runs began and ended in files (wards.py), and end a run by themselves when the agent's lease
is over, whatever has become of agent and keeper. Needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace

from rainbow.agent.executors import cgroups, isolation, lease
from rainbow.agent.executors.local import GRACE, LocalExecutor
from rainbow.agent.executors.process import ReadTail, by_popen, by_spawn
from rainbow.agent.executors.run import Ended, Result, Run
from rainbow.agent.executors.wards import Wards

TICK = 0.02  # seconds between two looks at a run that is about to end
LIVE = 1.0  # seconds between two words of what it writes
LONGEST = 5.0  # seconds without a look at whether something is asked
OVER = "its agent had no word from the server for a lease"
WAKE = signal.SIGUSR1  # a keeper's word that something is asked
SPAWN = by_spawn if sys.platform == "linux" else by_popen


def fork(wards: Wards, run: Run, environment: Mapping[str, str], lock: int, *, apart: bool) -> int:
    """Start the warden of a run and return its process (or its gate's).

    It has the lock for as long as it lives. What the keeper can do for it is done here, where pages are warm.
    """
    gated = apart and isolation.needs_gate()
    group = cgroups.of_run(wards.group(run.id), run)
    child = isolation.fork_first() if apart and not gated else os.fork()
    if child:
        if not gated:
            wards.set_warden(run.id, child)
        return child
    try:
        _alone(lock)
        if gated:
            _pass_gate(wards, run)
        if apart:
            private = wards.private()
            if group:
                group.hold_open()
            wards = wards.moved(isolation.open_folder(wards.folder))
            isolation.settle_in(private)
        wards.end(_Warden(wards, run, environment, group).watch())
    except BaseException as fault:  # nothing may return into the keeper's own code
        with contextlib.suppress(OSError):
            wards.end(Ended(run.id, Result.FAILED, detail=f"{type(fault).__name__}: {fault}"))
    finally:
        os._exit(0)


def _pass_gate(wards: Wards, run: Run) -> None:
    """Return in the first process of a new space; the one before stays behind as its gate."""
    isolation.become_gate()
    inner = os.fork()
    if inner:
        wards.set_warden(run.id, inner)
        os.waitpid(inner, 0)
        os._exit(0)
    isolation.end_with_parent()


def heed() -> None:
    """Let the signals that wake a warden end neither it, before it listens, nor its keeper."""
    for number in (signal.SIGCHLD, WAKE):
        signal.signal(number, lambda *_: None)


def _alone(lock: int) -> None:
    """Leave the keeper's session, and close what it has open: its sockets and its lock."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    os.closerange(3, lock)
    os.closerange(lock + 1, 4096)
    isolation.call_itself("rainbow-warden")


class _Warden:
    """Watches one run. Signals wake it: a child has ended, or something is asked."""

    def __init__(
        self, wards: Wards, run: Run, environment: Mapping[str, str], group: cgroups.ControlGroup | None
    ) -> None:
        self._wards, self._run, self._group = wards, run, group
        self._tail = ReadTail()
        inside = group.inside if group else contextlib.nullcontext
        self._executor = LocalExecutor(environment, inside=inside, tail=lambda: self._tail, spawn=SPAWN)
        self._woken, writing = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda *_: None)  # the others are heeded since before it was forked
        self._ending = False
        self._lost = False
        self._written, self._write_at = "", time.monotonic() + LIVE

    def watch(self) -> Ended:
        """Run it to its end."""
        if self._wards.is_asked("stop", self._run.id):
            return Ended(self._run.id, Result.STOPPED, detail="it had not begun")
        if lease.now() >= lease.read(self._wards.folder).until:
            return Ended(self._run.id, Result.LOST, detail=f"it was not started: {OVER}")
        self._executor.start(self._run)
        if self._executor.begun():
            self._wards.begin(self._run.id)
        try:
            while not (ended := self._executor.poll()):
                self._wait(self._obey())
                self._write()
                _reap_others(self._executor)
            return self._judged(ended[0])
        finally:
            if self._group:
                self._group.remove()

    def _obey(self) -> float:
        """Do what is asked; return for how many seconds nothing more is to be done unless a signal comes."""
        run, limit = self._run.id, lease.read(self._wards.folder)
        remaining = limit.until - lease.now()
        if remaining <= 0 and not self._ending:
            self._lost = self._ending = True
            self._executor.end(run, min(GRACE, limit.kill))
        if self._wards.is_asked("stop", run) and not self._ending:
            self._ending = True
            warning = self._wards.warning(run)
            self._executor.warn(run, *warning) if warning else self._executor.stop(run)
        (self._executor.suspend if self._wards.is_asked("hold", run) else self._executor.resume)(run)
        until = min(LONGEST, remaining if not self._ending else LONGEST, self._executor.due() - time.monotonic())
        return max(TICK, until)

    def _write(self) -> None:
        """Leave what the run has written for those who follow it."""
        if self._tail.is_dirty and time.monotonic() >= self._write_at and self._tail.text != self._written:
            self._written, self._write_at = self._tail.text, time.monotonic() + LIVE
            self._tail.is_dirty = False
            self._wards.write(self._run.id, self._written)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + (TICK if self._executor.is_ending() else seconds)
        if self._tail.is_dirty:
            until = min(until, max(self._write_at, time.monotonic() + TICK))
        while (remaining := until - time.monotonic()) > 0:
            output = [self._tail.fileno()] if self._tail.is_open else []
            ready, _, _ = select.select([self._woken, *output], [], [], remaining)
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                return
            if ready:
                self._tail.read()
                until = min(until, max(self._write_at, time.monotonic()))

    def _judged(self, end: Ended) -> Ended:
        if self._lost and end.result is Result.STOPPED:
            return replace(end, result=Result.LOST, detail=OVER)
        return self._group.judged(end) if self._group else end


def _reap_others(executor: LocalExecutor) -> None:
    """Bury what nobody waits for: in a space of its own its first process gets the orphans."""
    if os.getpid() != 1:
        return
    while True:
        try:
            result = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if result is None or executor.owns(result.si_pid):
            return
        os.waitpid(result.si_pid, os.WNOHANG)
