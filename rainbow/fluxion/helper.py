"""The process beside this one that has the library: asked one question at a time, ended when it is too slow.

A fault in the library, an answer that is none, or a limit that is over leaves a reason in words, and the next
question starts another process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from rainbow.errors import RainbowError

SECONDS = 5.0  # that one answer may take, unless RAINBOW_FLUXION_SECONDS says otherwise
MOST_BYTES = 64 * 2**20  # of an answer
MISSING = "backend fluxion: libreapi_cli.so not found; set RAINBOW_FLUXION"


class NoLibrary(RainbowError):
    """The library is not there, or is not one."""

    code = "plugin-unknown"


class NoAnswer(Exception):
    """There is no answer to this question; the text says why."""


class Helper:
    """Starts the process when it is first asked, and again after it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._library: str | None = None  # what RAINBOW_FLUXION was when it started

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer; NoAnswer or NoLibrary says why there is none."""
        with self._lock:
            process = self._running()
            try:
                answer = self._answer(process, question)
            except NoAnswer:
                self.end()
                raise
        if "missing" in answer:
            self.end()
            named = os.environ.get("RAINBOW_FLUXION")
            raise NoLibrary(f"backend fluxion: {named}: {answer['missing']}" if named else MISSING)
        if "error" in answer:
            raise NoAnswer(f"Fluxion refuses: {answer['error'][:300]}")
        return answer

    def end(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):  # what was not written yet
                        pipe.close()

    def _running(self) -> subprocess.Popen[bytes]:
        named = os.environ.get("RAINBOW_FLUXION")
        if self._process is not None and (self._process.poll() is not None or named != self._library):
            self.end()
        if self._process is None:
            command = [sys.executable, "-m", "rainbow.fluxion.library"]
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, with a module of ours
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self._library = named
        return self._process

    def _answer(self, process: subprocess.Popen[bytes], question: dict[str, Any]) -> dict[str, Any]:
        if process.stdin is None or process.stdout is None:
            raise NoAnswer("Fluxion's process has no pipes")
        end = time.monotonic() + float(os.environ.get("RAINBOW_FLUXION_SECONDS") or SECONDS)
        with suppress(BrokenPipeError):  # it has ended: reading says how
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        text = b""
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise NoAnswer("Fluxion has not answered within its time limit (RAINBOW_FLUXION_SECONDS)")
            part = os.read(process.stdout.fileno(), 2**16)
            text += part
            if not part or len(text) > MOST_BYTES:
                raise NoAnswer(
                    f"Fluxion's process ended{_how(process)}" if not part else "Fluxion's answer is too long"
                )
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise NoAnswer("Fluxion's process answered what is no answer")
        return answer


def _how(process: subprocess.Popen[bytes]) -> str:
    with suppress(subprocess.TimeoutExpired):
        code = process.wait(1)
        return f" by {signal.Signals(-code).name}" if code < 0 else f" with exit code {code}"
    return ""
