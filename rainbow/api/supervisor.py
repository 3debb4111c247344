"""The parent of the server's worker processes: starts them, and restarts each that ends.

The pause before a start doubles while the workers of a place end soon after theirs; the others continue. The
listening socket is the parent's: clients that connect meanwhile are served by the others, or wait for the next one.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

import structlog

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before an ended worker is started again
HEALTHY = 60.0  # seconds after which an end has nothing to do with the ones before
LOOK = 0.5  # seconds between two looks at the workers
log = structlog.get_logger("rainbow.server")


@dataclass
class _Place:
    """A worker that is to run, and when: it is started again once it is due."""

    number: int
    worker: BaseProcess | None = None
    began: float = 0.0
    due: float = 0.0
    pause: float = FIRST_PAUSE


class Supervisor:
    """Keeps workers running. `start` starts that of a place; they get `grace` seconds to end after the signal."""

    def __init__(
        self,
        start: Callable[[int], BaseProcess],
        grace: float,
        workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start, self._grace, self._clock = start, grace, clock
        self._told = threading.Event()
        self._places = [_Place(number) for number in range(workers)]

    def run(self) -> None:
        """Run until SIGINT or SIGTERM."""
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: self.stop())
        while not self._told.is_set():
            now = self._clock()
            for place in self._places:
                self._look(place, now)
            due = [place.due - now for place in self._places if place.worker is None]
            wait([worker.sentinel for worker in self._workers], max(0.0, min([LOOK, *due])))
        self._end()

    def stop(self) -> None:
        """Tell the workers to end, and start no other. A signal handler may call it."""
        self._told.set()
        for worker in self._workers:
            worker.terminate()

    @property
    def _workers(self) -> list[BaseProcess]:
        return [place.worker for place in self._places if place.worker is not None]

    def _look(self, place: _Place, now: float) -> None:
        worker = place.worker
        if worker is not None and not worker.is_alive():
            lived = now - place.began
            pause = FIRST_PAUSE if lived >= HEALTHY else place.pause
            log.error("worker-ended", pid=worker.pid, status=worker.exitcode, lived=round(lived, 1), again_in=pause)
            place.worker, place.due, place.pause = None, now + pause, min(2 * pause, LONGEST_PAUSE)
        elif worker is None and now >= place.due and not self._told.is_set():
            place.began, place.worker = now, self._start(place.number)
            log.info("worker-started", pid=place.worker.pid)

    def _end(self) -> None:
        end = self._clock() + self._grace
        for worker in self._workers:
            worker.terminate()  # it may have been started as the signal came
        for worker in self._workers:
            worker.join(max(0.0, end - self._clock()))
            if worker.is_alive():
                log.warning("worker-killed", pid=worker.pid, after=self._grace)
                worker.kill()
                worker.join()
