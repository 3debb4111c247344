"""A run in a space of its own: it signals nobody else, sees no secret, and all of it ends with its first process.

The space has processes and mounts of its own. In it the agent's folder and its secret files are covered, control
groups are read only, and what the run starts has no capability, not even as root. Linux lets root do so, and where
user namespaces are allowed any user. Needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

NEW_MOUNTS, NEW_USER, NEW_PIDS = 0x00020000, 0x10000000, 0x20000000  # CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID
PRIVATE_DOWNWARDS = 16384 | 524288  # MS_REC | MS_SLAVE: what is mounted later outside is seen, not the other way
QUIET = 2 | 4 | 8  # MS_NOSUID | MS_NODEV | MS_NOEXEC
READ_ONLY, BIND, REMOUNT_BIND = 1, 4096, 32 | 4096  # MS_RDONLY, MS_BIND, MS_REMOUNT | MS_BIND
# what a mount must keep in a space of users of its own, as mountinfo and mount(2) call it
KEPT_FLAGS = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
SET_DEATH_SIGNAL, DROP_CAPABILITY, AMBIENT, CLEAR_ALL = 1, 24, 47, 4  # prctl
CAPABILITIES_3 = 0x20080522  # _LINUX_CAPABILITY_VERSION_3


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


def settle_in(private: Iterable[Path] = ()) -> None:
    """Make the new space, in its first process: /proc tells of it, and what is `private` is covered.

    Folders and files may be private. This process keeps its capabilities and what it has open; what it starts does
    not.
    """
    _call("unshare", NEW_MOUNTS)
    _call("mount", b"none", b"/", None, PRIVATE_DOWNWARDS, None)
    _call("mount", b"proc", b"/proc", b"proc", QUIET, None)
    for path in private:
        if path.is_dir():
            _call("mount", b"tmpfs", os.fsencode(path), b"tmpfs", QUIET | READ_ONLY, b"size=4k,mode=755")
        elif path.is_file():
            _call("mount", b"/dev/null", os.fsencode(path), None, BIND, None)
    for where, flags in control_groups():
        _call("mount", None, where, None, REMOUNT_BIND | READ_ONLY | flags, None)
    _drop_capabilities()


def open_folder(path: Path) -> Path:
    """Return another path of a folder, which stays what it is when something is mounted over the folder."""
    return Path(f"/proc/self/fd/{os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)}")


@functools.cache
def control_groups() -> tuple[tuple[bytes, int], ...]:
    """Return where control groups are mounted, and with which flags: who writes there leaves its limits."""
    mounts = []
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        before, _, after = line.partition(b" - ")
        if after.split()[0] in (b"cgroup", b"cgroup2"):
            where, options = before.split()[4:6]
            path = re.sub(rb"\\(\d{3})", lambda octal: bytes([int(octal[1], 8)]), where)
            mounts.append((path, sum(KEPT_FLAGS.get(option, 0) for option in options.decode().split(","))))
    return tuple(mounts)


@functools.cache
def last_capability() -> int:
    """Return the number of the last capability that this kernel has."""
    return int(Path("/proc/sys/kernel/cap_last_cap").read_text())


def _drop_capabilities() -> None:
    """Let what this process starts have no capability, not even as root."""
    for number in range(last_capability() + 1):
        _call("prctl", DROP_CAPABILITY, number, 0, 0, 0)
    _call("prctl", AMBIENT, CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice
    _call("capget", header, sets)
    sets[2] = sets[5] = 0
    _call("capset", header, sets)


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
            settle_in([Path("/tmp")])  # noqa: S108 - covered for this child alone, to see whether that is allowed
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
