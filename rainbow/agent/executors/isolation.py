"""A run in a space of processes of its own: it signals nobody else, and all of it ends with its first process.

Linux lets root do so, and where user namespaces are allowed anybody. Needs nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

NEW_MOUNTS, NEW_USER, NEW_PIDS = 0x00020000, 0x10000000, 0x20000000  # CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID
PRIVATE_DOWNWARDS = 16384 | 524288  # MS_REC | MS_SLAVE: what is mounted later outside is seen, not the other way
QUIET = 2 | 4 | 8  # MS_NOSUID | MS_NODEV | MS_NOEXEC
SET_DEATH_SIGNAL, SET_NAME = 1, 15


def separate() -> None:
    """Let the next process that is forked be the first of a space of its own; OSError where that is not allowed."""
    if sys.platform != "linux":
        raise OSError("only Linux has namespaces")
    user, group = os.getuid(), os.getgid()
    if user == 0:
        _call("unshare", NEW_PIDS | NEW_MOUNTS)
        return
    _call("unshare", NEW_USER | NEW_PIDS | NEW_MOUNTS)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def settle_in() -> None:
    """Make /proc tell of the new space, in its first process, which ends with its parent."""
    _call("prctl", SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    _call("mount", b"none", b"/", None, PRIVATE_DOWNWARDS, None)
    _call("mount", b"proc", b"/proc", b"proc", QUIET, None)


def call_itself(name: str) -> None:
    """Let this process have a name of its own in lists of processes; not longer than 15 letters."""
    if sys.platform == "linux":
        _call("prctl", SET_NAME, name.encode(), 0, 0, 0)


def allowed() -> str:
    """Try it; return why it is not allowed, or an empty text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            separate()
            inner = os.fork()
            if inner == 0:
                settle_in()
                os._exit(0)
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]))
        except BaseException as fault:
            os.write(writing, str(fault).encode())
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as said:
        words = said.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "" if code == 0 else words or "/proc cannot be mounted"


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
