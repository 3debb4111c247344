"""Secrets of this process: taken out of its environment and arguments; neither children nor /proc show them.

forget      called once at start: secrets leave os.environ and the memory that /proc/PID/environ and cmdline show
secret_of   what was there, or in the file that NAME_FILE names
hand_over   leaves them for a worker of this process, in a file that has no name on any disk
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

NAMES = ("RAINBOW_SECRET", "RAINBOW_TOKEN", "RAINBOW_REGISTRATION_SECRET", "RAINBOW_ADMIN_TOKEN")
STAT = Path("/proc/self/stat")
SHORTEST = 4  # bytes of a secret: what is shorter would be found in other words

_taken: dict[str, str] = {}


def forget(*text: str | None) -> None:
    """Take every secret out of the environment; `text` are secrets that came as arguments."""
    for name in NAMES:
        value = os.environ.pop(name, None)
        if value:
            _taken[name] = value
    _erase([*_taken.values(), *filter(None, text)])


def secret_of(name: str) -> str | None:
    """Return the secret called like its variable: from the environment, else from the file that NAME_FILE names."""
    value = _taken.get(name) or os.environ.get(name)
    if value:
        return value
    file = os.environ.get(f"{name}_FILE")
    return Path(file).read_text(encoding="utf-8").strip() or None if file else None


def hand_over() -> str:
    """Return where a process of the same user reads the secrets while this one lives; "" where there are none."""
    if not _taken or sys.platform != "linux":
        return ""
    handle = os.memfd_create("rainbow-secrets", 0)  # not closed by exec: gunicorn takes the place of this process
    os.write(handle, json.dumps(_taken).encode())
    return f"/proc/{os.getpid()}/fd/{handle}"


def take_over(place: str) -> None:
    """Take the secrets that the parent has left."""
    if place:
        _taken.update(json.loads(Path(place).read_text(encoding="utf-8")))


def _erase(secrets: Iterable[str]) -> None:
    """Overwrite secrets where the kernel reads this process's first environment and arguments from."""
    if sys.platform != "linux":
        return
    requirements = [result for result in map(os.fsencode, secrets) if len(result) >= SHORTEST]
    for start, end in _regions() if requirements else ():
        text = ctypes.string_at(start, end - start)
        for secret in requirements:
            at = text.find(secret)
            while at >= 0:
                ctypes.memset(start + at, ord("x"), len(secret))
                at = text.find(secret, at + len(secret))


def _regions() -> Iterator[tuple[int, int]]:
    """Yield the (start, end) of the arguments and of the environment in this process's memory."""
    fields = STAT.read_text().rpartition(")")[2].split()  # the first is the third of proc(5)
    for first in (48, 50):
        start, end = int(fields[first - 3]), int(fields[first - 2])
        if 0 < start < end:
            yield start, end
