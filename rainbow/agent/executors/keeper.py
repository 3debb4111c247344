"""The keeper: a process beside the agent that starts its tasks and outlives it.

anew finds what still runs, and how the rest ended.

It listens on a socket in the agent's folder and answers one JSON object a line with another; but not to `start`, so
that many are said at once: what goes wrong there is an end like others. It forgets an end only when the agent has
said that it knows of it. Nobody asking for PATIENCE seconds, it ends everything and itself: by then the server has
given the tasks to somebody else.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rainbow.agent.executors.local import MARK, LocalExecutor, sweep
from rainbow.agent.executors.run import Ended, Result, RunId, end_to_json, run_from_json

PATIENCE = 60.0  # seconds: a server's lease unless it is configured
TICK = 0.05  # seconds between two looks at what runs
IDLE_TICK = 1.0  # and when nothing runs
SLOW = 30.0  # seconds to take one message


def address(folder: Path) -> str:
    """Return where the keeper of a folder listens; a socket's address is short, so it goes by the open folder."""
    path = str(folder / "keeper.sock")
    if len(os.fsencode(path)) < 100:
        return path
    return f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY)}/keeper.sock"


class Keeper:
    """Serves one agent at a time; who comes later takes the place of who came before."""

    def __init__(self, folder: Path, patience: float = PATIENCE) -> None:
        self._folder = folder
        self._patience = patience
        self._executor = LocalExecutor({})
        self._ends: dict[RunId, Ended] = {}  # until the agent has said that it knows
        self._heard = time.monotonic()
        self._talk: socket.socket | None = None
        self._text = b""
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

    def serve(self) -> None:
        """Serve until told to close, or until nobody asks any more."""
        while not self._over:
            for key, _ in self._selector.select(TICK if self._executor.running() else IDLE_TICK):
                key.data()
            self._collect()
            self._over |= time.monotonic() > self._heard + self._patience
        self._executor.close()

    def _collect(self) -> None:
        self._ends.update((end.id, end) for end in self._executor.poll())

    def _greet(self) -> None:
        if self._talk is not None:
            self._hang_up(self._talk)
        self._talk, _ = self._door.accept()
        self._talk.settimeout(SLOW)
        self._text = b""
        self._selector.register(self._talk, selectors.EVENT_READ, partial(self._hear, self._talk))

    def _hang_up(self, talk: socket.socket) -> None:
        self._selector.unregister(talk)
        talk.close()
        self._talk = None

    def _hear(self, talk: socket.socket) -> None:
        if talk is not self._talk:  # another has taken its place since the selector spoke
            return
        try:
            more = talk.recv(1 << 16)
            self._text += more
            *lines, self._text = self._text.split(b"\n")
            for message in map(json.loads, lines):
                answer = self._answered(message)
                if message["do"] != "start":
                    talk.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            more = b""
        if not more:
            self._hang_up(talk)

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
            self._executor.environment = {**message["environment"], MARK: str(self._folder)}
            return {"known": [*self._executor.running(), *self._ends]}
        if verb == "start":
            self._start(message["run"])
        elif verb == "poll":
            return {"ended": self._told(message["known"]), "begun": self._executor.begun()}
        elif verb in ("stop", "suspend", "resume"):
            getattr(self._executor, verb)(_run_id(message["run"]))
        elif verb == "close":
            self._executor.close()
            self._over = True
        return {}

    def _start(self, told: Mapping[str, Any]) -> None:
        run = run_from_json(told)
        if run.id in self._ends or run.id in self._executor.running():
            return
        try:
            self._executor.start(run)
        except Exception as fault:  # of this machine, not of the run: those are ends already
            self._ends[run.id] = Ended(run.id, Result.FAILED, detail=f"{type(fault).__name__}: {fault}")

    def _told(self, known: list[Any]) -> list[dict[str, Any]]:
        for run in known:
            self._ends.pop(_run_id(run), None)
        self._collect()
        return [end_to_json(end) for end in self._ends.values()]


def _run_id(told: Any) -> RunId:
    task, attempt = told
    return task, attempt


def main(folder: str, patience: str = str(PATIENCE)) -> None:
    """Be the keeper of a folder, unless it has one."""
    place = Path(folder)
    lock = os.open(place / "keeper.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(0)
    for number in (signal.SIGINT, signal.SIGHUP):  # of the agent's terminal, not meant for us
        signal.signal(number, signal.SIG_IGN)
    sweep(str(place))  # what an earlier keeper of this folder has started: it was killed, and nobody knows its end
    Keeper(place, float(patience)).serve()
