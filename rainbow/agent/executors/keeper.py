"""The keeper: a process next to the agent that starts its tasks and outlives it.

An agent that restarts asks its keeper which runs still execute and how the others ended. The keeper listens on a
socket in the agent's folder and answers each JSON line with another, except `start`, so that many starts need no
round trip; a start that fails is reported as an end. The first line of a connection says the word that the folder
holds; a connection that says another is closed and changes nothing. Every run has its own warden (warden.py), which
outlives the keeper: the next keeper of the folder finds it. An end is deleted only when the agent has confirmed it.
Without a call for a lease, and with the agent's own lease expired, the keeper ends all runs and itself: by then the
server has given the tasks to other workers.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hmac
import json
import os
import secrets
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from rainbow.agent.executors import cgroups, isolation, lease, warden
from rainbow.agent.executors.local import MARK, sweep
from rainbow.agent.executors.run import Ended, Result, RunId, end_to_json, run_from_json
from rainbow.agent.executors.wards import Wards

USUAL_LEASE = 60.0  # seconds: a server's lease unless it is configured
TICK = 0.5  # seconds between two looks at the wardens that another keeper has started
SLOW = 30.0  # seconds to take one message
CLOSES = 15.0  # seconds for all runs to end
WARDEN_LOST = "the process that watched it was killed"
LONGEST_LINE = 64 << 20  # bytes of the agent's, whose jobs hold scripts and environments
LONGEST_GREETING = 1 << 20  # bytes of one that has not said the word yet
MOST_STRANGERS = 16  # connections that have not said it
WORD = "keeper.word"
APART = "apart"  # runs in spaces of processes of their own where that is allowed; else they see each other


def address(folder: Path) -> str:
    """Return where the keeper of a folder listens; a socket's address is short, so it goes by the open folder."""
    path = str(folder / "keeper.sock")
    if len(os.fsencode(path)) < 100:
        return path
    return f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY)}/keeper.sock"


def word_of(folder: Path) -> str:
    """Return the word that opens the keeper of a folder; empty before a keeper has made it."""
    try:
        return (folder / WORD).read_text()
    except FileNotFoundError:
        return ""


def _make_word(folder: Path) -> str:
    """Return the word of a folder, a new one where it has none."""
    if not word_of(folder):
        draft = folder / f"{WORD}.draft"
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(16))
        os.replace(draft, folder / WORD)
    return word_of(folder)


@dataclass(slots=True, eq=False)
class _Connection:
    """A connection, and what it has said of a line so far; `is_agent`: it knows the word."""

    socket: socket.socket
    text: bytes = b""
    is_agent: bool = False


class Keeper:
    """Serves one agent at a time; who comes later takes the place of who came before."""

    def __init__(self, folder: Path, patience: float = USUAL_LEASE, *, apart: bool = False) -> None:
        self._folder = folder
        self._patience = patience
        self._apart = apart
        self._environment: dict[str, str] = {}
        self._wards = Wards(folder)
        self._watched: dict[RunId, int] = {}  # the warden we have forked, 0: another keeper has
        self._ends: dict[RunId, Ended] = {}  # until the agent has said that it knows
        self._dead: set[int] = set()  # wardens of ours that have ended
        self._looked = 0.0  # at all runs
        self._begun: set[RunId] = set()
        self._told_begun: list[RunId] = []
        self._heard = time.monotonic()
        self._word = _make_word(folder)
        self._agent: _Connection | None = None
        self._strangers: list[_Connection] = []
        self._over = False
        self._selector = selectors.DefaultSelector()
        self._door = socket.socket(socket.AF_UNIX)
        where = address(folder)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(where)
        before = os.umask(0o177)  # nobody else's agent may speak to it
        self._door.bind(where)
        os.umask(before)
        self._door.listen()
        self._selector.register(self._door, selectors.EVENT_READ, self._greet)
        self._listen_for_wardens()
        self._adopt()

    def _listen_for_wardens(self) -> None:
        self._news = self._wards.news()
        self._selector.register(self._news, selectors.EVENT_READ, self._hear_news)
        woken, writing = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        warden.heed()
        self._selector.register(woken, selectors.EVENT_READ, partial(_drain, woken))

    def _adopt(self) -> None:
        """Find the runs of an earlier keeper: what is watched continues, how the rest ended is reported."""
        for run in self._wards.there().values():
            self._watched[run] = 0

    def serve(self) -> None:
        """Serve until told to close, or until nobody asks any more."""
        while not self._over:
            for key, _ in self._selector.select(TICK):
                key.data()
            if dead := self._buried():
                self._look_at(run for run, pid in self._watched.items() if pid in dead)
            if time.monotonic() >= self._looked + TICK:
                self._collect()
            silent = time.monotonic() > self._heard + self._patience
            self._over |= silent and self._may_end()
        self._close()

    def _may_end(self) -> bool:
        limit = lease.read(self._folder)
        return not self._watched or limit == lease.NO_LIMIT or lease.now() >= limit.until

    # ── what becomes of the runs ──

    def _hear_news(self) -> None:
        keys = set(_drain(self._news).decode("ascii", "replace").split("\n"))
        self._look_at(run for run in self._watched if self._wards.name(run) in keys)

    def _buried(self) -> set[int]:
        """Return our wardens that have ended since the last look."""
        result = set()
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                result.add(pid)
        self._dead |= result
        return result

    def _collect(self) -> None:
        """Look at every run: of a warden that another keeper has started nobody else says that it was killed."""
        self._looked = time.monotonic()
        self._buried()
        self._look_at(self._watched)

    def _look_at(self, runs: Iterable[RunId]) -> None:
        """See which of these runs have begun or ended."""
        for run in list(runs):
            pid = self._watched[run]
            if run not in self._begun and self._wards.has_begun(run):
                self._begun.add(run)
                self._told_begun.append(run)
            end = self._wards.how_ended(run)
            if end is None and not (pid in self._dead if pid else not self._wards.is_watched(run)):
                continue
            end = end or self._wards.how_ended(run) or self._lost(run)
            del self._watched[run]
            self._dead.discard(pid)
            self._begun.discard(run)
            self._ends[run] = end

    def _lost(self, run: RunId) -> Ended:
        """End what is left of a run whose warden was killed."""
        sweep(_mark(self._folder), run[0])
        cgroups.remove(self._wards.group(run))
        return Ended(run, Result.LOST, detail=WARDEN_LOST)

    def _close(self) -> None:
        """End everything at once."""
        lease.write(self._folder, lease.Lease(0.0, 0.0))
        limit = time.monotonic() + CLOSES
        while self._watched and time.monotonic() < limit:
            for run in self._watched:
                self._wards.ask("stop", run)
            self._collect()
            time.sleep(0.05)
        for run in [*self._watched, *self._ends]:
            self._wards.clear(run)
        (self._folder / lease.NAME).unlink(missing_ok=True)

    # ── the agent's words ──

    def _greet(self) -> None:
        connection = _Connection(self._door.accept()[0])
        connection.socket.settimeout(SLOW)
        self._strangers.append(connection)
        self._selector.register(connection.socket, selectors.EVENT_READ, partial(self._hear, connection))
        if len(self._strangers) > MOST_STRANGERS:
            self._hang_up(self._strangers[0])

    def _hang_up(self, connection: _Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        if connection is self._agent:
            self._agent = None
        else:
            self._strangers.remove(connection)

    def _hear(self, connection: _Connection) -> None:
        if connection is not self._agent and connection not in self._strangers:  # hung up on since the selector spoke
            return
        try:
            more = connection.socket.recv(1 << 16)
            *lines, connection.text = (connection.text + more).split(b"\n")
            for message in map(json.loads, lines):
                if not connection.is_agent:
                    self._admit(connection, message)
                answer = self._answered(message)
                if message["do"] != "start":
                    connection.socket.sendall(json.dumps(answer).encode() + b"\n")
            is_over = not more or len(connection.text) > (LONGEST_LINE if connection.is_agent else LONGEST_GREETING)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):  # nothing that our agent would say
            is_over = True
        if is_over and (connection is self._agent or connection in self._strangers):
            self._hang_up(connection)

    def _admit(self, connection: _Connection, message: Mapping[str, Any]) -> None:
        """Let a connection be the agent's, in place of the one before; ValueError if it does not know the word."""
        word = message.get("word") if isinstance(message, dict) and message["do"] == "hello" else None
        if not isinstance(word, str) or not hmac.compare_digest(word.encode(), self._word.encode()):
            raise ValueError("this is not our agent")
        if self._agent is not None:
            self._hang_up(self._agent)
        self._strangers.remove(connection)
        self._agent, connection.is_agent = connection, True

    def _answered(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._heard = time.monotonic()
        try:
            return self._do(message)
        except Exception as fault:  # one task's fault must not end the others
            return {"fault": f"{type(fault).__name__}: {fault}"}

    def _do(self, message: Mapping[str, Any]) -> dict[str, Any]:
        verb = message["do"]
        if verb == "hello":
            self._patience = message["patience"]
            self._environment = {**message["environment"], MARK: _mark(self._folder)}
            return {"known": [*self._watched, *self._ends]}
        if verb == "start":
            self._start(message["run"])
        elif verb == "poll":
            return {"ended": self._new_ends(message["known"]), "begun": self._new_begun()}
        elif verb in ("stop", "suspend", "resume"):
            self._ask(verb, _run_id(message["run"]), _warning(message))
        elif verb == "close":
            self._over = True
            self._close()
        return {}

    def _ask(self, verb: str, run: RunId, text: str) -> None:
        if run in self._watched:
            self._wards.ask("stop" if verb == "stop" else "hold", run, yes=verb != "resume", text=text)

    def _start(self, answer: Mapping[str, Any]) -> None:
        run = run_from_json(answer)
        if run.id in self._ends or run.id in self._watched:
            return
        try:
            with self._wards.put(run) as lock:  # the warden has it before anybody can look whether it lives
                self._watched[run.id] = warden.fork(self._wards, run, self._environment, lock, apart=self._apart)
        except Exception as fault:  # of this machine, not of the run: those are ends already
            self._ends[run.id] = Ended(run.id, Result.FAILED, detail=f"{type(fault).__name__}: {fault}")

    def _new_ends(self, known: list[Any]) -> list[dict[str, Any]]:
        for run in map(_run_id, known):
            if self._ends.pop(run, None):
                self._wards.clear(run)
        return [end_to_json(end) for end in self._ends.values()]

    def _new_begun(self) -> list[RunId]:
        begun, self._told_begun = self._told_begun, []
        return begun


def _mark(folder: Path) -> str:
    """Return what processes of a folder's runs are marked with: it does not say where the folder is."""
    return sha256(os.fsencode(folder)).hexdigest()[:16]


def _warning(message: Mapping[str, Any]) -> str:
    """Return what a warden reads of a stop: the signal that comes first, and for how many seconds."""
    return f"{message['signal']} {float(message['grace'])}" if message.get("signal") else ""


def _run_id(answer: Any) -> RunId:
    task, attempt = answer
    return task, attempt


def _drain(pipe: int) -> bytes:
    with contextlib.suppress(BlockingIOError):
        return os.read(pipe, 1 << 16)
    return b""


def main(folder: str, patience: str = str(USUAL_LEASE), how: str = "") -> None:
    """Be the keeper of a folder, unless it has one."""
    place = Path(folder)
    lock = os.open(place / "keeper.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(0)
    for number in (signal.SIGINT, signal.SIGHUP):  # of the agent's terminal, not meant for us
        signal.signal(number, signal.SIG_IGN)
    apart = how == APART and not isolation.allowed()
    if apart:  # read once here, not in the warden of each run
        isolation.control_groups()
        isolation.last_capability()
    gc.collect()
    gc.collect()
    gc.freeze()  # wardens share what is there now
    Keeper(place, float(patience), apart=apart).serve()
