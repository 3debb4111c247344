"""Runs a share of a run on a node, as a resource manager starts it: `python bare.py on_node FOLDER KEY SHARES`.

What is run, and how it ends, goes through files of the shared folder (desk.py), never through a shell's line.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rainbow.agent.desk import Desk
from rainbow.agent.local import LocalExecutor
from rainbow.agent.runs import Ended, Result, Run
from rainbow.agent.shares import shares

TICK = 0.05  # seconds between two looks at what runs
STOP_TICK = 0.5  # and at whether it is to end: that is a file of a shared folder
NATIVE = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "COBALT_JOBID", "FLUX_JOB_ID")
GIVEN_BY_NODE = ("SLURM", "PMI", "FLUX_", "PBS_", "LSB_", "CUDA_VISIBLE", "ROCR_VISIBLE")
OURS = ("SLURM_EXPORT_ENV", "SLURM_JWT")  # said for our own step; a credential
RANK = ("SLURM_PROCID", "PMIX_RANK", "PMI_RANK", "FLUX_TASK_RANK")


def main(folder: str, key: str, count: str) -> None:
    """Run this node's share, one of `count`, and leave its end."""
    desk = Desk(Path(folder))
    taken = desk.take(key)
    if taken is None:  # nobody waits for it any more
        return
    run, environment = taken
    if desk.native(run.id) is None:
        desk.name(run.id, next((os.environ[name] for name in NATIVE if name in os.environ), str(os.getppid())))
    place, ranks = _share(run) if count != "1" else (0, ())
    given = {name: value for name, value in os.environ.items() if name.startswith(GIVEN_BY_NODE) and name not in OURS}
    executor = LocalExecutor({**environment, **given})
    signal.signal(signal.SIGTERM, lambda *_: executor.stop(run.id))
    asked = (lambda: desk.is_asked_to_stop(run.id), lambda: desk.is_asked_to_hold(run.id))
    desk.end(place, work(executor, replace(run, ranks=ranks), *asked))


def work(
    executor: LocalExecutor, run: Run, is_to_stop: Callable[[], bool], is_to_hold: Callable[[], bool] | None = None
) -> Ended:
    """Start a run and return its end; it is held in place for as long as that is asked for."""
    if is_to_stop():
        return Ended(run.id, Result.STOPPED)
    executor.start(run)
    look = time.monotonic() + STOP_TICK
    while not (ended := executor.poll()):
        time.sleep(TICK)
        if time.monotonic() >= look:
            look = time.monotonic() + STOP_TICK
            if is_to_stop():
                executor.stop(run.id)
            elif is_to_hold:
                (executor.suspend if is_to_hold() else executor.resume)(run.id)
    return ended[0]


def _share(run: Run) -> tuple[int, tuple[int, ...]]:
    """Return which share is this node's: by its name, else by the rank the resource manager gave us."""
    dealt = shares(run)
    here = {os.environ.get("SLURMD_NODENAME"), socket.gethostname(), socket.gethostname().partition(".")[0]}
    for place, (worker, ranks) in enumerate(dealt):
        if worker in here:
            return place, ranks
    place = int(next((os.environ[name] for name in RANK if name in os.environ), "0")) % len(dealt)
    return place, dealt[place][1]
