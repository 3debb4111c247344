"""One process of a run, started by Popen, or by `posix_spawn` where nothing else happens; and what it writes.

A warden is forked for each run, and what it touches is copied page by page. Popen and the threads it imports were
half of that, so wardens start processes by `posix_spawn`. That knows no directory to start in: the warden goes there
itself, which a process with threads must not do. Needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import signal
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from rainbow.agent.executors.run import TAIL, Run

Streams = tuple[int, int, int]  # descriptors of standard input, output and error
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


def by_popen(run: Run, environment: Mapping[str, str], streams: Streams) -> Process:
    """Start a process of a run with these streams, in a session of its own."""
    import subprocess

    return subprocess.Popen(  # noqa: S603 - running what users ask for is the purpose; argv, no shell
        run.command,
        cwd=run.cwd or None,
        env=environment,
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        start_new_session=True,
    )


def by_spawn(run: Run, environment: Mapping[str, str], streams: Streams) -> Process:
    """Do the same from a process without threads, in a fraction of the time."""
    if run.cwd:
        os.chdir(run.cwd)
    try:
        return _Spawned(_spawned(run.command, environment, streams))
    finally:
        if run.cwd:
            os.chdir(HOME)


def _spawned(command: tuple[str, ...], environment: Mapping[str, str], streams: Streams) -> int:
    """Start a command; the first of its places on PATH that can be executed counts, as for `execvpe`."""
    actions = [(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(streams)]
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


# ── what it reads and writes ──

PIPE_READS = 32  # of 64 KiB: a pipe holds a MiB at most


def files_of(run: Run, environment: Mapping[str, str]) -> dict[str, Path]:
    """Return the files of a run by stream, in its folder, with what stands for %a, %x, %u and %N.

    The numbers of %j and %A the server has written already.

    >>> run = Run(("j-0", 1), "j", ("x",), "/w", {"RAINBOW_ARRAY_INDEX": "3"}, files={"output": "7_%3a.%%.out"})
    >>> files_of(run, {})["output"].as_posix()
    '/w/7_003.%.out'
    """
    seen = {**run.variables, **run.environment}
    said = {"a": seen.get("RAINBOW_ARRAY_INDEX") or NO_INDEX, "x": seen.get("SLURM_JOB_NAME") or "job", "%": "%"}
    said |= {"u": environment.get("USER") or _login(), "N": os.uname().nodename, "t": "0", "n": "0", "s": "0"}
    said |= {"A": run.job, "j": run.job, "J": run.job}  # of a server of a version without numbers
    base = run.cwd or environment.get("HOME") or "/"
    return {
        stream: Path(base, _PATTERN.sub(lambda result: _said(result, said), path))
        for stream, path in run.files.items()
    }


NO_INDEX = "4294967294"  # what Slurm writes for %a of a job that is no array
_PATTERN = re.compile(r"%([0-9]{0,4})([A-Za-z%])", re.ASCII)


def _said(match: re.Match[str], said: Mapping[str, str]) -> str:
    text = said.get(match[2], match[0])
    return text.zfill(min(int(match[1] or 0), 10)) if text.isdecimal() else text


def _login() -> str:
    import pwd  # a warden starts without it

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def open_file(path: Path, flags: int) -> int:
    """Open a file that a job names; ValueError says why it cannot be."""
    try:
        return os.open(path, flags | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ValueError(f"cannot open {str(path)!r}: {error.strerror}") from error


def read_end(path: Path, keep: int, owner: int | None = None) -> str:
    """Return the last bytes of a file as text; nothing of one that is not there, or is no plain file.

    `owner`: the account whose file it must be, and which lets everybody read it.
    """
    with contextlib.suppress(OSError), open(path, "rb", opener=_plain) as file:
        result = os.fstat(file.fileno())
        if owner is not None and (result.st_uid != owner or not result.st_mode & stat.S_IROTH):
            return ""
        file.seek(max(0, result.st_size - keep))
        return file.read(keep).decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return ""


def _plain(path: str, flags: int) -> int:
    """Open a file that is one: a link is not followed, and nobody waits for the other end of a pipe."""
    result = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(result).st_mode):
        os.close(result)
        raise OSError(f"{path} is no file")
    return result


class Tail:
    """A pipe to write to and the last `keep` bytes written; a thread reads it so that no writer is ever held up.

    `copy`: a descriptor that gets all of it, too.
    """

    keep = TAIL

    def __init__(self, copy: int | None = None) -> None:
        import threading  # what every warden would copy, and none needs

        self._kept = b""
        self._copy = copy
        self._reader, self.writer = os.pipe()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.closing(os.fdopen(self._reader, "rb", buffering=0)) as pipe:
            while chunk := pipe.read(1 << 16):
                self._kept = (self._kept + chunk)[-self.keep :]
                if self._copy is not None:
                    self._pass_on(self._copy, memoryview(chunk))

    def _pass_on(self, to: int, chunk: memoryview) -> None:
        try:
            while chunk:
                chunk = chunk[os.write(to, chunk) :]
        except OSError:  # a full disk, say: the run is not to wait for it
            self._copy = None

    @property
    def complete(self) -> bool:
        """Return whether every writer has closed its end."""
        return not self._thread.is_alive()

    @property
    def behind(self) -> bool:
        """Return whether there is something to read that has not been read."""
        poll = select.poll()
        try:
            poll.register(self._reader, select.POLLIN)
            return bool(poll.poll(0))
        except (OSError, ValueError):  # closed by now
            return False

    @property
    def text(self) -> str:
        """What was written last; bytes that are no text, and NUL, which no database keeps, are replaced."""
        return self._kept.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


class FileTail(Tail):
    """A file that is written to, whose end is what was written last; nobody waits for it.

    It begins empty, as Slurm's do; all processes of the run append to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer = open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC)

    complete, behind = True, False

    @property
    def text(self) -> str:
        """The end of it, where it is a plain file."""
        return read_end(self.path, self.keep)


class ReadTail(Tail):
    """A tail without a thread of its own: who waits for the run reads what comes, by `read`."""

    def __init__(self) -> None:
        self._kept, self._copy = b"", None
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self.is_open = True
        self.is_dirty = False  # there is more than when somebody looked, who says so

    def fileno(self) -> int:
        """Return what to wait for."""
        return self._reader

    def read(self) -> bool:
        """Read what is there; return whether there was something."""
        try:
            chunk = os.read(self._reader, 1 << 16) if self.is_open else b""
        except BlockingIOError:
            return False
        if not chunk and self.is_open:
            self.is_open = False
            os.close(self._reader)
        self._kept = (self._kept + chunk)[-self.keep :]
        self.is_dirty |= bool(chunk)
        return bool(chunk)

    @property
    def complete(self) -> bool:
        """Return whether every writer has closed its end; what they wrote is read first, up to a pipe's size."""
        for _ in range(PIPE_READS):
            if not self.read():
                break
        return not self.is_open


class _NoTail(Tail):
    """What is there before anything is open."""

    complete, behind, text = True, False, ""

    def __init__(self) -> None:
        pass


NO_TAIL = _NoTail()
