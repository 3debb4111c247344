"""Executor `psij:NAME`: jobs of a resource manager, through PSI/J (`slurm`, `local`, `pbs`, `lsf`, `flux`, ...).

Every run is one job of the resource manager, on the nodes where it was placed, and runs there through
shared_folder.py; how it ended is read from the folder, which all nodes must see. What the resource manager says of a
job is asked every second, and is believed only where the nodes say nothing: the job was canceled, refused or lost.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psij
from psij.executors.batch.batch_scheduler_executor import BatchSchedulerExecutorConfig, check_status_exit_code

from rainbow.agent import bare
from rainbow.agent.executors.interface import Phase, Row
from rainbow.agent.executors.local import allowed, for_managers
from rainbow.agent.executors.run import Ended, Pending, Result, Run, RunId, shares, workers_of
from rainbow.agent.executors.shared_folder import SharedFolder, key_of, merged
from rainbow.agent.executors.slurm import status

POLL = 1  # seconds between two questions to the resource manager; PSI/J's own default shows a state after 32
MOST_UNANSWERED = 3_600  # questions in a row that it may leave unanswered before PSI/J calls all jobs failed
LOOK = 0.2  # seconds between two looks into the folder
ALLOWANCE = 60.0  # seconds the resource manager gives a run more than its limit, which is held on the node
LATE = 10.0  # seconds after its job's end that a run's own word may take through a shared file system
HARD = 15.0  # seconds after which a run that was asked to stop is canceled
MEMORY = 2**20  # bytes: what a number of memory without a unit counts
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
BY_NODE = {"slurm": "slurm.nodelist"}  # how an executor's jobs are pinned
NOTHING_ALONG = {"slurm": {"SBATCH_EXPORT": "NIL"}}  # so that a submit sends none of the agent's own environment
STEPS = {"slurm": {"SLURM_EXPORT_ENV": "ALL"}}  # else steps of a job that was submitted so start without PATH
# what starts shared_folder.py once on every node; elsewhere all processes are the first node's
SPREAD = {"slurm": "srun"}
SQUEUE = ["squeue", "-h", "-r", "-t", "all", "--me", "-o", status.ROWS]
ASK_PSIJ = "Failed to poll"  # how PSI/J begins when it could not ask, and so knows nothing

_STATES = {
    psij.JobState.NEW: "is submitted",
    psij.JobState.QUEUED: "is queued",
    psij.JobState.ACTIVE: "has nodes, which have not begun it",
}


@dataclass(slots=True)
class _Active:
    run: Run
    shares: int
    job: psij.Job | None = None
    over_since: float | None = None
    hard_at: float = math.inf
    end: Ended | None = None  # what needs no node to say it
    has_begun: bool = False


class BatchExecutor:
    """Runs tasks as jobs of a resource manager."""

    def __init__(self, name: str, environment: Mapping[str, str], folder: Path | None) -> None:
        self._name = name or "slurm"
        self._environment = environment
        place = (folder or Path(tempfile.mkdtemp(prefix="rainbow-"))).resolve()
        self._desk = SharedFolder(place)
        config = BatchSchedulerExecutorConfig(
            work_directory=place / "psij",
            queue_polling_interval=POLL,
            initial_queue_polling_delay=POLL,
            queue_polling_error_threshold=MOST_UNANSWERED,
        )
        self._psij = psij.JobExecutor.get_instance(self._name, config=config)
        commands = {**for_managers(os.environ), **NOTHING_ALONG.get(self._name, {})}
        setattr(self._psij, "_run_command", partial(_run_command, commands))  # noqa: B010 - PSI/J has no door for it
        self._rows: dict[str, Row] = {}
        if self._name == "slurm":
            # PSI/J's own reader loses sight of all jobs while one row has a reason of two words
            setattr(self._psij, "get_status_command", lambda _: SQUEUE)  # noqa: B010
            setattr(self._psij, "parse_status_output", self._read_squeue)  # noqa: B010
        self._pool = ThreadPoolExecutor(4, "psij")
        self._active: dict[RunId, _Active] = {}
        self._told: list[_Active] = []
        self._begun: list[RunId] = []
        self._looked = 0.0
        for run in self._desk.there():
            self._adopt(run)

    def _read_squeue(self, exit_code: int, out: str) -> dict[str, psij.JobStatus]:
        """Read what squeue lists, each row by itself; reasons are kept for `pending`."""
        check_status_exit_code(SQUEUE[0], exit_code, out)
        self._rows, _ = status.read_rows(out)
        return {job: psij.JobStatus(_state(row), message=row.reason or None) for job, row in self._rows.items()}

    def _shares(self, run: Run) -> int:
        return len(shares(run)) if self._name in SPREAD else 1

    def _adopt(self, run: Run) -> None:
        """Continue a run of an agent that was killed; one that was perhaps never submitted is taken back."""
        native = self._desk.native(run.id)
        if native is None and self._desk.take_back(run.id):
            return
        active = self._active[run.id] = _Active(run, self._shares(run))
        native = native or self._desk.native(run.id)
        if native:
            active.job = psij.Job(self._spec(run))
            try:
                self._psij.attach(active.job, native)
            except Exception:  # psij's own, of many kinds: the process or job is gone
                active.over_since = time.monotonic()

    def start(self, run: Run) -> None:
        """Leave a run for the nodes and submit its job, in the background."""
        if run.id in self._active:
            return
        active = self._active[run.id] = _Active(run, self._shares(run))
        try:
            self._desk.put(run, self._environment)
        except (OSError, ValueError) as fault:
            active.end = Ended(run.id, Result.FAILED, detail=f"failed to start: {fault}")
            return
        self._pool.submit(self._submit, active)

    def _submit(self, active: _Active) -> None:
        run = active.run
        try:
            job = psij.Job(self._spec(run))
            self._psij.submit(job)
            self._desk.name(run.id, str(job.native_id))
            active.job = job
        except Exception as fault:  # whatever PSI/J and the resource manager find wrong with it
            if self._desk.take_back(run.id):
                active.end = Ended(run.id, Result.FAILED, detail=f"{self._name} rejected the job: {_one_line(fault)}")

    def _spec(self, run: Run) -> psij.JobSpec:
        python, *arguments = bare.command(
            "shared_folder", str(self._desk.folder), key_of(run.id), str(self._shares(run))
        )
        spec = psij.JobSpec(executable=python, arguments=arguments, directory=Path("/"), inherit_environment=False)
        # the resource manager keeps what it is given; what the task itself is to see goes through the desk
        spec.environment = {**allowed(self._environment), **STEPS.get(self._name, {})}
        spec.resources = resources_of(run)
        spec.launcher = SPREAD[self._name] if self._shares(run) > 1 else "single"
        spec.attributes = self._attributes(run)
        return spec

    def _attributes(self, run: Run) -> psij.JobAttributes:
        attributes = psij.JobAttributes()
        if run.duration > 0:
            attributes.duration = timedelta(seconds=math.ceil((run.duration + ALLOWANCE) / 60) * 60)
        else:
            attributes.duration = None
        workers = workers_of(run)
        if workers and self._name in BY_NODE and all(map(HOST.fullmatch, workers)):
            attributes.set_custom_attribute(BY_NODE[self._name], ",".join(workers))
        return attributes

    def poll(self) -> Sequence[Ended]:
        """Return what has ended; files of what was returned before are thrown away."""
        for active in self._told:
            self._desk.clear(active.run.id, range(active.shares))
        self._told = []
        now = time.monotonic()
        if now < self._looked + LOOK:
            return []
        self._looked = now
        there = self._desk.ended()
        self._note_begun()  # after the ends: what has ended has begun
        ended = []
        for active in list(self._active.values()):
            end = self._end_of(active, there.get(key_of(active.run.id), []), now)
            if end is not None:
                del self._active[active.run.id]
                self._told.append(active)
                ended.append(end)
        return ended

    def _note_begun(self) -> None:
        keys = self._desk.all_begun()
        for run, active in self._active.items():
            if not active.has_begun and key_of(run) in keys:
                active.has_begun = True
                self._begun.append(run)

    def begun(self) -> Sequence[RunId]:
        """Return what nodes have begun since the last call."""
        begun, self._begun = self._begun, []
        return begun

    def pending(self) -> Mapping[RunId, Pending]:
        """Return how the resource manager's queue has what has not begun; of Slurm's also the reason."""
        waiting = (active for active in self._active.values() if not active.has_begun and active.end is None)
        return {active.run.id: self._pending(active) for active in waiting}

    def _pending(self, active: _Active) -> Pending:
        if active.job is None or not active.job.native_id:
            return Pending("submitting", f"{self._name} has not answered the submission yet")
        state, native = active.job.status.state, str(active.job.native_id)
        words = _STATES.get(state, f"is {state.name.lower()}")
        row = self._rows.get(native)
        if row is not None and row.reason and row.phase is Phase.WAITING:
            return status.waiting(row, {}, "")
        return Pending(state.name, f"{self._name} job {native} {words}", {"native_id": native})

    def _end_of(self, active: _Active, places: list[int], now: float) -> Ended | None:
        if len(places) >= active.shares:
            return merged([self._desk.read_end(active.run.id, place) for place in sorted(places)])
        if active.end is not None:
            return active.end
        if now >= active.hard_at and active.job is not None:
            active.hard_at = now + HARD
            self._pool.submit(self._cancel, active.job)
        return self._end_as_said(active, now)

    def _end_as_said(self, active: _Active, now: float) -> Ended | None:
        """Return the end of a run whose job is over without a word from its nodes."""
        status = active.job.status if active.job is not None else None
        if active.over_since is None:
            if status is None or not status.state.final:
                return None
            if (status.message or "").startswith(ASK_PSIJ):
                self._ask_again(active)
                return None
            active.over_since = now
        if now < active.over_since + LATE and self._desk.begun(active.run.id):
            return None
        canceled = status is not None and status.state is psij.JobState.CANCELED
        if canceled or self._desk.is_asked_to_stop(active.run.id):
            return Ended(active.run.id, Result.STOPPED, detail=f"{self._name} canceled it")
        said = (status.message if status is not None else None) or "job disappeared from the resource manager"
        return Ended(active.run.id, Result.FAILED, detail=f"{self._name} ended it: {_one_line(said)}")

    def _ask_again(self, active: _Active) -> None:
        job = psij.Job(self._spec(active.run))
        native = self._desk.native(active.run.id)
        if native:
            self._psij.attach(job, native)
            active.job = job

    def stop(self, run: RunId) -> None:
        """Ask the nodes to end a run; a job that does not run yet is canceled."""
        active = self._active.get(run)
        if active is None or run in (one.run.id for one in self._told):
            return
        self._desk.ask_to_stop(run)
        active.hard_at = time.monotonic() + HARD
        if active.job is not None and not self._desk.begun(run):
            self._pool.submit(self._cancel, active.job)

    def suspend(self, run: RunId) -> None:
        """Ask the nodes to hold a run; the resource manager's own limit continues."""
        self._desk.ask_to_hold(run)

    def resume(self, run: RunId) -> None:
        """Ask the nodes to let a run continue."""
        self._desk.ask_to_go_on(run)

    def _cancel(self, job: psij.Job) -> None:
        with contextlib.suppress(Exception):  # it has ended meanwhile, or is canceled again after HARD seconds
            job.cancel()

    def running(self) -> Sequence[RunId]:
        """Return the runs whose end has not been told."""
        return list(self._active)

    def close(self) -> None:
        """Cancel every job."""
        for active in self._active.values():
            self._desk.ask_to_stop(active.run.id)
            if not self._desk.take_back(active.run.id) and active.job is not None:
                continue  # its node reads that it is to stop
            if active.job is not None:
                self._pool.submit(self._cancel, active.job)
        self._pool.shutdown(wait=True)
        end = time.monotonic() + HARD
        while self._active and time.monotonic() < end:
            self.poll()
            for run in [run for run in self._active if not self._desk.begun(run)]:
                del self._active[run]
            time.sleep(LOOK)
        for active in self._active.values():
            if active.job is not None:
                self._cancel(active.job)
        self._active.clear()


def _state(row: Row) -> psij.JobState:
    """Return what PSI/J calls the state of a row; of a state that is not known nothing is concluded."""
    if row.phase is not Phase.ENDED:
        return psij.JobState.ACTIVE if row.phase in (Phase.RUNNING, Phase.HELD) else psij.JobState.QUEUED
    ends = {"COMPLETED": psij.JobState.COMPLETED, "CANCELLED": psij.JobState.CANCELED}
    return ends.get(row.state, psij.JobState.FAILED)


def _run_command(environment: Mapping[str, str], command: list[str]) -> str:
    """Do what PSI/J's own function of this name does, but not with the agent's whole environment."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)  # noqa: S603 - PSI/J's
    if done.returncode:
        said = "\n".join(filter(None, (done.stdout, done.stderr))) or f"exit code {done.returncode}"
        raise subprocess.CalledProcessError(done.returncode, command, output=said)
    return done.stdout


def resources_of(run: Run) -> psij.ResourceSpecV1:
    """Turn a placement into what PSI/J asks for: as much on every node as the node that holds most."""
    amounts: Sequence[Mapping[str, int]] = [run.placement[worker] for worker in workers_of(run)]
    most = {kind: max((each.get(kind, 0) for each in amounts), default=0) for kind in ("core", "gpu", "memory")}
    nodes = max(len(amounts), 1)
    requirements: dict[str, Any] = {"node_count": nodes, "processes_per_node": 1}
    if most["core"]:
        requirements["cpu_cores_per_process"] = most["core"]
    if most["gpu"]:
        requirements["gpu_cores_per_process"] = most["gpu"]
    if most["memory"]:
        requirements["memory"] = most["memory"] * (1 if "memory" in run.units else MEMORY)
    return psij.ResourceSpecV1(**requirements)


def _one_line(fault: object) -> str:
    return " ".join(str(fault).split())[:300]
