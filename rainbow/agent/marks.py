"""Marks what is started by a variable of its environment, so that it is found when nobody watches it any more."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

MARK = "RAINBOW_KEEPER"


def sweep(value: str) -> None:
    """Kill every process of this machine that is marked so: whoever watched it was killed. Needs /proc."""
    mark = f"{MARK}={value}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
