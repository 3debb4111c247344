"""The parent of the server's worker process: starts it, and restarts it whenever it ends.

The pause before a start doubles while workers end soon after theirs. The listening socket is the parent's:
clients that connect meanwhile wait for the next worker.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import structlog

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before an ended worker is started again
HEALTHY = 60.0  # seconds after which an end has nothing to do with the ones before
log = structlog.get_logger("rainbow.server")


class Supervisor:
    """Keeps one worker running. `start` starts one; `grace` is what it gets, in seconds, to end after the signal."""

    def __init__(
        self, start: Callable[[], BaseProcess], grace: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._start, self._grace, self._clock = start, grace, clock
        self._told = threading.Event()
        self._worker: BaseProcess | None = None

    def run(self) -> None:
        """Run until SIGINT or SIGTERM."""
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: self.stop())
        pause = FIRST_PAUSE
        while not self._told.is_set():
            began = self._clock()
            self._worker = worker = self._start()
            log.info("worker-started", pid=worker.pid)
            self._watch(worker)
            if self._told.is_set():
                break
            lived = self._clock() - began
            pause = FIRST_PAUSE if lived >= HEALTHY else pause
            log.error("worker-ended", pid=worker.pid, status=worker.exitcode, lived=round(lived, 1), again_in=pause)
            self._told.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def stop(self) -> None:
        """Tell the worker to end, and start no other. A signal handler may call it."""
        self._told.set()
        if self._worker is not None and self._worker.is_alive():
            self._worker.terminate()

    def _watch(self, worker: BaseProcess) -> None:
        while worker.is_alive() and not self._told.is_set():
            worker.join(0.5)
        if self._told.is_set():
            worker.terminate()  # it may have been started as the signal came
            worker.join(self._grace)
            if worker.is_alive():
                log.warning("worker-killed", pid=worker.pid, after=self._grace)
                worker.kill()
                worker.join()
