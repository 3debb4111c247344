"""Until when an agent's runs may continue without a word from the server: a file that those who watch them read.

The agent writes it after every answer. Its time is this machine's since it was booted, asleep or not: no user can set
that clock. A file of another boot is over; where there is none, there is no limit. Standard library only.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import time
from pathlib import Path
from typing import NamedTuple

NAME = "lease"
BOOT = Path("/proc/sys/kernel/random/boot_id")


class Lease(NamedTuple):
    """When runs are to be stopped, and how many seconds they get between TERM and KILL."""

    until: float
    kill: float


NO_LIMIT = Lease(math.inf, math.inf)


def now() -> float:
    """Return seconds by a clock that continues while the machine sleeps, and that no user can set."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def write(folder: Path, lease: Lease) -> None:
    """Set the limit of a folder's runs."""
    draft = folder / f"{NAME}.draft"
    draft.write_text(json.dumps({"boot": _boot(), "until": lease.until, "kill": lease.kill}))
    os.replace(draft, folder / NAME)


def read(folder: Path) -> Lease:
    """Return the limit of a folder's runs."""
    try:
        answer = json.loads(_text(f"{folder}/{NAME}"))
        until = float(answer["until"])
        return Lease(until if answer["boot"] == _boot() or until == math.inf else 0.0, float(answer["kill"]))
    except FileNotFoundError:
        return NO_LIMIT
    except (ValueError, KeyError, TypeError):  # not what we have written: whoever did wants no good
        return Lease(0.0, 0.0)


def _text(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


@functools.cache
def _boot() -> str:
    with contextlib.suppress(OSError):
        return BOOT.read_text().strip()
    return ""
