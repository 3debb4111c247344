"""Start one process of a run: by Popen, or by `posix_spawn` where nothing else happens in this process.

A warden is forked for each run, and what it touches is copied page by page. Popen and the threads it imports were
half of that, so wardens start processes by `posix_spawn`. That knows no directory to start in: the warden goes there
itself, which a process with threads must not do. Needs nothing but the standard library.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator, Mapping
from typing import Protocol

from rainbow.agent.executors.run import Run

HOME = "/"  # where a warden is, as its keeper
RESTORED = [signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores them; what it starts should not


class Process(Protocol):
    """A child of this process. `returncode` is -N if signal N ended it, None until `poll` has seen its end."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Return the code if it has ended."""

    def wait(self) -> int:
        """Return the code when it has ended."""


def by_popen(run: Run, environment: Mapping[str, str], output: int) -> Process:
    """Start a process of a run that writes to `output`, in a session of its own."""
    import subprocess

    return subprocess.Popen(  # noqa: S603 - running what users ask for is the purpose; argv, no shell
        run.command,
        cwd=run.cwd or None,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def by_spawn(run: Run, environment: Mapping[str, str], output: int) -> Process:
    """Do the same from a process without threads, in a fraction of the time."""
    if run.cwd:
        os.chdir(run.cwd)
    try:
        return _Spawned(_spawned(run.command, environment, output))
    finally:
        if run.cwd:
            os.chdir(HOME)


def _spawned(command: tuple[str, ...], environment: Mapping[str, str], output: int) -> int:
    """Start a command; the first of its places on PATH that can be executed counts, as for `execvpe`."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
    ]
    refused: OSError | None = None
    for path in _places(command[0], environment):
        try:
            return os.posix_spawn(path, command, environment, file_actions=actions, setsid=True, setsigdef=RESTORED)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = refused or error
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])


def _places(name: str, environment: Mapping[str, str]) -> Iterator[str]:
    if os.path.dirname(name):
        yield name
        return
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            yield path


class _Spawned:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._waited(os.WNOHANG)

    def wait(self) -> int:
        return self._waited(0) or 0

    def _waited(self, how: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, how)
            except ChildProcessError:  # somebody else has waited for it, as Popen says
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode
