"""Executor `local`: processes of this machine, watched by a keeper that outlives the agent (keeper.py).

Without a folder there is no keeper, and the runs end with the agent.
"""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rainbow.agent import bare
from rainbow.agent.executors import lease
from rainbow.agent.executors.interface import Executor
from rainbow.agent.executors.keeper import APART, SLOW, USUAL_LEASE, address, word_of
from rainbow.agent.executors.local import LocalExecutor
from rainbow.agent.executors.process import files_of, read_end
from rainbow.agent.executors.run import Ended, Result, Run, RunId, Written, end_from_json, run_to_json
from rainbow.agent.executors.wards import Wards
from rainbow.errors import RequestError

COMES_UP = 20.0  # seconds a new keeper may take
LIVE = 1.0  # seconds between two looks at what runs write
KEEPER_LOST = "lost: the process supervising the task died"


class SupervisedExecutor:
    """Runs tasks through the keeper of a folder, which is started where there is none."""

    def __init__(
        self, environment: Mapping[str, str], folder: Path, patience: float = USUAL_LEASE, *, apart: bool = False
    ) -> None:
        self._how = APART if apart else ""
        self._environment = dict(environment)
        self._folder = folder.resolve()
        self._patience = patience
        self._address = address(self._folder)
        self._known: list[RunId] = []  # told by `poll`, which the keeper does not know yet
        self._lost: list[Ended] = []
        self._wards = Wards(self._folder)
        self._files: dict[RunId, tuple[Path, ...]] = {}  # of what runs write: output, and errors if they are apart
        self._keep: dict[RunId, int] = {}  # bytes of it
        self._seen: dict[RunId, tuple[float, ...]] = {}
        self._looked = -math.inf
        self._running: dict[RunId, None] = dict.fromkeys(self._connect())
        self._begun = list(self._running)

    def start(self, run: Run) -> None:
        """Have a run started and return; the keeper does not answer, `poll` says what came of it."""
        self._running[run.id] = None
        home = self._environment.get("HOME") or ""
        if not run.cwd and os.path.isdir(home):  # the keeper itself is in /
            run = replace(run, cwd=home)
        files = files_of(run, self._environment)
        output = files.get("output", self._wards.output(run.id))
        self._files[run.id] = (output, files["error"]) if "error" in files else (output,)
        self._keep[run.id] = max(1, run.output)
        try:
            self._say("start", run=run_to_json(run))
        except OSError:  # it has not heard all of it: it cannot have begun
            del self._running[run.id]
            self._find_again()
            self._running[run.id] = None
            self._say("start", run=run_to_json(run))

    def poll(self) -> Sequence[Ended]:
        """Return what has ended; the next call lets the keeper forget it."""
        answer = self._ask("poll", known=self._known)
        ended = [end_from_json(reported) for reported in answer["ended"]] + self._lost
        self._known, self._lost = [end.id for end in ended], []
        self._begun += [(task, attempt) for task, attempt in answer["begun"]]
        for end in ended:
            self._running.pop(end.id, None)
            self._files.pop(end.id, None)
            self._keep.pop(end.id, None)
        return ended

    def begun(self) -> Sequence[RunId]:
        """Return what has begun since the last call."""
        begun, self._begun = self._begun, []
        return begun

    def written(self) -> Mapping[RunId, Written]:
        """Return the end of what runs have written, of those that have written more since the last call."""
        now = time.monotonic()
        if now < self._looked + LIVE:
            return {}
        self._looked = now
        sizes = {run: self._sizes(run) for run in self._running}
        fresh = [run for run, result in sizes.items() if any(result) and result != self._seen.get(run)]
        self._seen = sizes
        return {run: Written(*(read_end(path, self._keep[run]) for path in self._files[run])) for run in fresh}

    def _sizes(self, run: RunId) -> tuple[float, ...]:
        return tuple(_changed(path) for path in self._files.get(run, ()))

    def stop(self, run: RunId) -> None:
        """Begin to end a run."""
        self._ask("stop", run=run)

    def warn(self, run: RunId, name: str, grace: float) -> None:
        """Send a signal to a run, and begin to end it `grace` seconds later."""
        self._ask("stop", run=run, signal=name, grace=grace)

    def suspend(self, run: RunId) -> None:
        """Hold a run in place."""
        self._ask("suspend", run=run)

    def resume(self, run: RunId) -> None:
        """Let a held run continue."""
        self._ask("resume", run=run)

    def running(self) -> Sequence[RunId]:
        """Return the runs whose end has not been told."""
        return list(self._running)

    def renew(self, until: float, kill: float) -> None:
        """Let runs continue until then, by the clock of lease.py; they get `kill` seconds between TERM and KILL."""
        lease.write(self._folder, lease.Lease(until, kill))

    def close(self) -> None:
        """End everything, the keeper too."""
        self._ask("close")
        self._talk.close()
        self._running.clear()

    def _ask(self, verb: str, **more: Any) -> dict[str, Any]:
        try:
            return self._call(verb, **more)
        except (OSError, EOFError):
            self._find_again()
            return self._call(verb, **more)

    def _find_again(self) -> None:
        """Connect again; what the keeper there is now does not know was lost with the one before."""
        known = self._connect()
        for run in [run for run in self._running if run not in known]:
            del self._running[run]
            self._lost.append(Ended(run, Result.LOST, detail=KEEPER_LOST))

    def _say(self, verb: str, **more: Any) -> None:
        self._talk.sendall(json.dumps({"do": verb, **more}).encode() + b"\n")

    def _call(self, verb: str, **more: Any) -> dict[str, Any]:
        self._say(verb, **more)
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _connect(self) -> list[RunId]:
        """Reach the keeper, starting one if need be; return the runs it knows."""
        end = time.monotonic() + COMES_UP
        started: subprocess.Popen[bytes] | None = None
        while True:
            try:
                return self._greet()
            except (OSError, EOFError):
                if time.monotonic() > end:
                    raise
            if started is None or started.poll() is not None:
                started = self._start_keeper()
            time.sleep(0.05)

    def _greet(self) -> list[RunId]:
        talk = socket.socket(socket.AF_UNIX)
        talk.settimeout(SLOW)
        talk.connect(self._address)
        self._talk, self._lines = talk, talk.makefile("rb")
        word = word_of(self._folder)
        answer = self._call("hello", word=word, environment=self._environment, patience=self._patience)
        return [(task, attempt) for task, attempt in answer["known"]]

    def _start_keeper(self) -> subprocess.Popen[bytes]:
        with (self._folder / "keeper.log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own module
                bare.command("keeper", str(self._folder), str(self._patience), self._how),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"PATH": self._environment.get("PATH", "")},  # what the agent knows, its secret, is not for it
                start_new_session=True,
            )


def _changed(path: Path) -> float:
    """Return when a file was changed; 0: it is not there, or empty."""
    try:
        result = path.stat()
    except OSError:
        return 0.0
    return result.st_mtime if result.st_size else 0.0


def opened(argument: str, environment: Mapping[str, str], folder: Path | None) -> Executor:
    """Open the executor for "" or "apart"; RequestError for any other argument."""
    if argument not in ("", APART):
        raise RequestError(f"local:{argument} is not known; there are: local, local:{APART}")
    if folder is None:
        return LocalExecutor(environment)
    return SupervisedExecutor(environment, folder, apart=argument == APART)
