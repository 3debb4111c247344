"""A process that takes one step of a cluster and is killed in it."""

from __future__ import annotations

import os
import signal
from typing import Any

from rainbow.service.scheduler import step
from rainbow.store import clusters, jobs, tasks
from tests.conftest import Clock, open_service_at

# after which function of a step the process ends
PHASES = {
    "1 what has changed was read": (step, "follow"),
    "2 what is lost was given back": (step, "lose_the_silent"),
    "3 the view was frozen": (step, "frozen"),
    "4 the plan was made and checked": (step, "check_plan"),
    "5 orders were written, not committed": (tasks, "save_all"),
    "5 memory was written, not committed": (clusters, "set_memory"),
    "6 a reason was written, not committed": (jobs, "change"),
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
