"""A run in a space of processes of its own: it signals nobody else, and all of it ends with its first process.

Linux lets root do so, and where user namespaces are allowed any user. Needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import sys
from pathlib import Path

NEW_MOUNTS, NEW_USER, NEW_PIDS = 0x00020000, 0x10000000, 0x20000000  # CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID
PRIVATE_DOWNWARDS = 16384 | 524288  # MS_REC | MS_SLAVE: what is mounted later outside is seen, not the other way
QUIET = 2 | 4 | 8  # MS_NOSUID | MS_NODEV | MS_NOEXEC
SET_DEATH_SIGNAL = 1


def needs_gate() -> bool:
    """Return whether the first process of a space needs a parent that has left for a space of users of its own."""
    return os.getuid() != 0


def fork_first() -> int:
    """Fork, as root, the first process of a space of its own; what else this process forks stays where it is."""
    _check()
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    child = -1
    try:
        _call("unshare", NEW_PIDS)
        child = os.fork()
    finally:
        if child != 0:
            _call("setns", own, NEW_PIDS)
        os.close(own)
    return child


def become_gate() -> None:
    """Let the next process that is forked be the first of a space of its own; OSError where that is not allowed."""
    _check()
    user, group = os.getuid(), os.getgid()
    _call("unshare", NEW_USER | NEW_PIDS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def end_with_parent() -> None:
    """Let this process be killed when its parent ends."""
    _call("prctl", SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def settle_in() -> None:
    """Make /proc tell of the new space, in its first process."""
    _call("unshare", NEW_MOUNTS)
    _call("mount", b"none", b"/", None, PRIVATE_DOWNWARDS, None)
    _call("mount", b"proc", b"/proc", b"proc", QUIET, None)


def call_itself(name: str) -> None:
    """Let this process have a name of its own in lists of processes; not longer than 15 letters."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a machine whose /proc is not there, or is somebody else's
            comm = os.open("/proc/self/comm", os.O_WRONLY)
            os.write(comm, name.encode())
            os.close(comm)


def allowed() -> str:
    """Try it; return why it is not allowed, or an empty text."""
    reading, writing = os.pipe()
    try:
        child = os.fork() if needs_gate() else fork_first()
    except OSError as fault:
        return str(fault)
    if child == 0:
        try:
            if needs_gate():
                become_gate()
                inner = os.fork()
                if inner:
                    os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]))
            settle_in()
            os._exit(0)
        except BaseException as fault:
            os.write(writing, str(fault).encode())
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as said:
        words = said.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "" if code == 0 else words or "/proc cannot be mounted"


def _check() -> None:
    if sys.platform != "linux":
        raise OSError("only Linux has namespaces")


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc(), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
