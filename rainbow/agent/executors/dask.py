"""Executor `dask:ADDRESS`: processes on the workers of a Dask cluster, for whom one machine is not enough.

Rainbow must be installed where the workers run. A worker called as a worker of the graph gets what was placed there;
otherwise Dask chooses. A run takes one thread of a worker for as long as it lasts. Dask keeps what ended until the
agent has told it (a published dataset holds it), so an agent that is killed finds it again.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from distributed import Client, Event, Future

from rainbow.agent.executors import dask_worker
from rainbow.agent.executors.run import Ended, Result, Run, RunId, end_from_json, run_to_json, shares
from rainbow.agent.executors.shared_folder import key_of, merged
from rainbow.errors import RequestError, Unavailable

COMES_UP = 10.0  # seconds to reach the scheduler


@dataclass(slots=True)
class _Active:
    id: RunId
    ranks: tuple[int, ...] = ()  # the first of every share
    futures: list[Future] = field(default_factory=list)
    end: Ended | None = None


class DaskExecutor:
    """Runs tasks on the workers of a Dask cluster."""

    def __init__(self, address: str, environment: Mapping[str, str], folder: Path | None) -> None:
        if not address:
            raise RequestError("missing Dask scheduler address: use dask:tcp://HOST:8786")
        self._environment = dict(environment)
        place = str(folder.resolve()) if folder else uuid.uuid4().hex
        self._owner = sha256(f"{socket.gethostname()}\n{place}".encode()).hexdigest()[:16]
        try:
            self._client = Client(address, timeout=COMES_UP, set_as_default=False)
        except (OSError, ValueError) as fault:
            raise Unavailable(f"the Dask scheduler at {address} cannot be reached: {fault}") from fault
        self._pool = ThreadPoolExecutor(4, "dask")
        self._active: dict[RunId, _Active] = {}
        self._waiting: deque[tuple[_Active, Run]] = deque()
        self._submitting = threading.Lock()
        self._told: list[_Active] = []
        self._begun: deque[RunId] = deque()  # Dask's own thread adds to it
        self._client.subscribe_topic(dask_worker.topic_of(self._owner), self._hear)
        if folder:
            self._adopt()

    def _adopt(self) -> None:
        """Find what an agent of this folder had submitted; what it had not published yet is stopped."""
        for name in self._client.list_datasets():
            if str(name).startswith(f"rainbow-{self._owner}-"):
                task, attempt, ranks, futures = self._client.get_dataset(name)
                self._active[(task, attempt)] = _Active((task, attempt), tuple(ranks), list(futures))
        self._begun.extend(self._active)  # Dask does not say what it has said before
        known = [key_of(run) for run in self._active]
        self._client.run(dask_worker.stop_others, self._owner, known)

    def start(self, run: Run) -> None:
        """Submit a run's shares, in the background, with what else is to be submitted."""
        if run.id not in self._active:
            active = self._active[run.id] = _Active(run.id)
            self._waiting.append((active, run))
            self._pool.submit(self._submit)

    def _submit(self) -> None:
        """Submit what waits, unless another call has taken it: asking Dask once for many is what makes it quick."""
        with self._submitting:
            batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if not batch:
                return
            try:
                names = self._names()
                for active, run in batch:
                    self._submit_one(active, run, names)
                taken = [active for active, _ in batch if active.end is None]
                self._publish(taken)
            except Exception as fault:  # whatever Dask finds wrong with it
                for active, _ in batch:
                    active.end = active.end or _not_taken(active.id, fault)

    def _submit_one(self, active: _Active, run: Run, names: Mapping[str, str]) -> None:
        try:
            dealt = shares(run)
            active.ranks = tuple(ranks[0] for _, ranks in dealt)
            active.futures = [self._share(run, *share, names) for share in dealt]
        except Exception as fault:  # of this run alone: what it says is nothing Dask can send
            active.end = _not_taken(active.id, fault)

    def _publish(self, taken: Sequence[_Active]) -> None:
        answer = {self._called(active.id): (*active.id, active.ranks, active.futures) for active in taken}
        if answer:
            self._client.publish_dataset(**answer, override=True)

    def _share(self, run: Run, worker: str, ranks: tuple[int, ...], names: Mapping[str, str]) -> Future:
        return self._client.submit(
            dask_worker.work,
            self._owner,
            key_of(run.id),
            run_to_json(replace(run, ranks=ranks)),
            self._environment,
            key=f"rainbow-{self._owner}-{key_of(run.id)}-{ranks[0]}",
            workers=[names[worker]] if worker in names else None,
            pure=False,
            retries=0,
        )

    def _names(self) -> dict[str, str]:
        """Return {name of a worker: its address}."""
        known = self._client.scheduler_info(n_workers=-1)["workers"]
        return {str(worker["name"]): address for address, worker in known.items()}

    def _called(self, run: RunId) -> str:
        return f"rainbow-{self._owner}-{key_of(run)}"

    def poll(self) -> Sequence[Ended]:
        """Return what has ended; Dask may forget what was returned before."""
        for active in self._told:
            self._pool.submit(self._forget, active)
        ended = [end for end in map(self._end_of, list(self._active.values())) if end is not None]
        self._told = [self._active.pop(end.id) for end in ended]
        return ended

    def _hear(self, event: Any) -> None:
        _, said = event
        self._begun.append((said["task"], said["attempt"]))

    def begun(self) -> Sequence[RunId]:
        """Return what workers have begun since the last call."""
        begun = [self._begun.popleft() for _ in range(len(self._begun))]
        return list(dict.fromkeys(begun))

    def _forget(self, active: _Active) -> None:
        with contextlib.suppress(KeyError, OSError):
            self._client.unpublish_dataset(self._called(active.id))
        for rank in active.ranks:
            Event(dask_worker.begun_name(self._owner, key_of(active.id), rank), self._client).clear()

    def _end_of(self, active: _Active) -> Ended | None:
        if active.end is not None:
            return active.end
        if not active.futures or not all(future.done() for future in active.futures):
            return None
        return merged([_end_of(active.id, future) for future in active.futures])

    def stop(self, run: RunId) -> None:
        """Ask the workers to end a run; one that has not begun is canceled."""
        active = self._active.get(run)
        if active is None:
            return
        began = self._client.run(dask_worker.stop, self._owner, key_of(run))
        if not any(began.values()) and not any(future.done() for future in active.futures):
            active.end = Ended(run, Result.STOPPED, detail="it had not begun")
            self._client.cancel(active.futures)

    def running(self) -> Sequence[RunId]:
        """Return the runs whose end has not been told."""
        return list(self._active)

    def close(self) -> None:
        """End everything, and leave the cluster."""
        if self._client.status == "closed":
            return
        self._pool.shutdown(wait=True)
        with contextlib.suppress(OSError, TimeoutError):
            self._client.run(dask_worker.stop_others, self._owner, [])
            for active in [*self._active.values(), *self._told]:
                self._client.cancel(active.futures)
                self._forget(active)
        self._active.clear()
        self._client.close()


def _not_taken(run: RunId, fault: Exception) -> Ended:
    return Ended(run, Result.FAILED, detail=f"Dask rejected the task: {fault}")


def _end_of(run: RunId, future: Future) -> Ended:
    """Return what a share's worker said; one that was lost with its worker runs again."""
    if future.status == "finished":
        answer: Any = future.result()
        return end_from_json(answer)
    return Ended(run, Result.STOPPED, detail=f"Dask lost it: {future.status}")
