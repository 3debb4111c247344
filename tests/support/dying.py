"""Processes that are killed, by kill -9, in the midst of what they do: one step of a cluster, or a whole server.

`python -m tests.support.dying MODULE:FUNCTION before|after N ARGUMENT...` is `rainbow` with these arguments; it and
the process that started it end when the function is called for the N-th time.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from itertools import count
from operator import attrgetter
from typing import Any

from rainbow.cli import main as command_line
from rainbow.service.live_state.matcher_cache import FreeSpace
from rainbow.service.scheduler import step
from rainbow.store import clusters, jobs, tasks, workers
from tests.conftest import Clock, open_service_at

# after which function of a step the process ends
PHASES = {
    "1 what has changed was read": (step, "follow"),
    "2 what is lost was given back": (step, "lose_the_silent"),
    "3 the view was frozen": (step, "frozen"),
    "4 a start was checked": (FreeSpace, "unproved"),
    "4 the plan was made and checked": (step, "check_plan"),
    "5 orders were written, not committed": (tasks, "save_all"),
    "5 certificates were written, not committed": (workers, "keep_certificates"),
    "5 memory was written, not committed": (clusters, "set_memory"),
    "6 a reason was written, not committed": (jobs, "set_waits"),
    "6 all was written, not committed": (clusters, "new_epoch"),
    "7 all was committed": (step, "_carry_out"),
}


def main(database: str, now: str, phase: str) -> None:
    """Take the step that ends the process."""
    clock = Clock()
    clock.now = float(now)
    service = open_service_at(database, clock)
    module, name = PHASES[phase]
    whole = getattr(module, name)

    def killed(*arguments: Any, **named: Any) -> None:
        whole(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(module, name, killed)
    step.step(service, "oak")


def serving(place: str, when: str, times: int, *arguments: str) -> None:
    """Be `rainbow` until the function is called for the last time."""
    module, _, function = place.partition(":")
    owner, _, name = f"{module}.{function}".rpartition(".")
    holder = import_module(module) if owner == module else attrgetter(owner[len(module) + 1 :])(import_module(module))
    whole, calls = getattr(holder, name), count(1)

    def killed(*options: Any, **named: Any) -> Any:
        last = next(calls) >= times
        if last and when == "before":
            end()
        answer = whole(*options, **named)
        if last:
            end()
        return answer

    setattr(holder, name, killed)
    command_line(arguments, prog_name="rainbow")


def end() -> None:
    """Kill this process and its parent, the one that would start it again."""
    for process in (os.getppid(), os.getpid()):
        os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    place, when, times, *arguments = sys.argv[1:]
    serving(place, when, int(times), *arguments)
