"""Files and a pipe between a keeper and the wardens of its runs.

KEY         the run; locked by its warden for as long as that lives
    KEY.pid     the warden
    KEY.begun   its processes have been started
    KEY.stop    its presence asks for the end; it may name a signal that comes first, and for how many seconds
    KEY.hold    its presence asks to hold it in place
    KEY.end     how it ended
    KEY.out     the end of what it has written so far, where that goes to no file
    news        a pipe: the keys of what has begun or ended

Every file appears whole. The folder is the owner's alone; what is read from the pipe is no more than a hint. Needs
nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import functools
import json
import os
import signal
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from rainbow.agent.executors.run import Ended, Run, RunId, end_from_json, end_to_json, run_from_json, run_to_json
from rainbow.agent.executors.shared_folder import key_of

PRIVATE = "private.json"  # in the agent's folder: paths of files with its secrets
KINDS = ("", ".pid", ".begun", ".stop", ".hold", ".end", ".out")


def keep_private(folder: Path, files: Iterable[Path]) -> None:
    """Let no run of an agent's folder see these files, where runs have spaces of their own."""
    draft = folder / f"{PRIVATE}.draft"
    draft.write_text(json.dumps([str(file.resolve()) for file in files]))
    os.replace(draft, folder / PRIVATE)


class Wards:
    """The folder of the runs of a keeper. `folder` is the agent's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._place = folder / "wards"
        self._base = str(self._place)
        self._own = sha256(self._base.encode("utf-8", "surrogateescape")).hexdigest()[:8]
        self._place.mkdir(mode=0o700, exist_ok=True)

    def moved(self, folder: Path) -> Wards:
        """Return the same wards by another path of the agent's folder."""
        same = copy.copy(self)
        same.folder, same._place, same._base = folder, folder / "wards", f"{folder}/wards"
        return same

    def name(self, run: RunId) -> str:
        """Return the key of a run."""
        return _key(run)

    def group(self, run: RunId) -> str:
        """Return what a run's control group is called: the machine has one place for those of all agents."""
        return f"{_key(run)}-{self._own}"

    def private(self) -> list[Path]:
        """Return what no run may see: the agent's folder, and the files that the agent has named."""
        try:
            names = json.loads((self.folder / PRIVATE).read_text())
        except FileNotFoundError:
            names = []
        return [self.folder, *map(Path, names)]

    def news(self) -> int:
        """Open the pipe to hear of what happens."""
        path = self._place / "news"
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def there(self) -> dict[str, RunId]:
        """Return {key: run} of all that is there."""
        result = {}
        for path in self._place.iterdir():
            if "." not in path.name and path.name != "news":
                with contextlib.suppress(OSError, ValueError, KeyError):
                    result[path.name] = run_from_json(json.loads(path.read_text())).id
        return result

    @contextlib.contextmanager
    def put(self, run: Run) -> Iterator[int]:
        """Leave a run for its warden, who inherits the lock that says that it is watched."""
        draft = self._at(run.id, ".draft")
        _put(draft, json.dumps(run_to_json(run)), os.O_CREAT | os.O_TRUNC)
        lock = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.replace(draft, self._at(run.id, ""))
            yield lock
        finally:
            os.close(lock)

    def clear(self, run: RunId) -> None:
        """Throw a run's files away."""
        for kind in reversed(KINDS):
            _unlink(self._at(run, kind))

    # ── by the warden ──

    def set_warden(self, run: RunId, pid: int) -> None:
        """Note which process watches a run."""
        self._write(f"{_key(run)}.pid", str(pid))

    def begin(self, run: RunId) -> None:
        """Say that a run has begun."""
        _put(self._at(run, ".begun"), "", os.O_CREAT)
        self._say(run)

    def end(self, end: Ended) -> None:
        """Say how a run ended."""
        self._write(f"{_key(end.id)}.end", json.dumps(end_to_json(end)))
        self._say(end.id)

    def write(self, run: RunId, text: str) -> None:
        """Leave what a run has written so far."""
        self._write(f"{_key(run)}.out", text)

    def is_asked(self, kind: str, run: RunId) -> bool:
        """Return whether a run is to `stop`, or to be on `hold`."""
        return os.path.exists(self._at(run, f".{kind}"))

    def _say(self, run: RunId) -> None:
        with contextlib.suppress(OSError):  # no keeper listens: it looks when there is one again
            _put(f"{self._base}/news", f"{_key(run)}\n", os.O_NONBLOCK)

    # ── by the keeper ──

    def warning(self, run: RunId) -> tuple[str, float] | None:
        """Return the signal that a run gets before its end, and for how many seconds; None: it ends at once."""
        try:
            name, grace = Path(self._at(run, ".stop")).read_text().split()
            return name, float(grace)
        except (OSError, ValueError):
            return None

    def ask(self, kind: str, run: RunId, *, yes: bool = True, text: str = "") -> None:
        """Ask for something, or take it back; the warden is woken."""
        if yes and text:
            self._write(f"{_key(run)}.{kind}", text)
        elif yes:
            _put(self._at(run, f".{kind}"), "", os.O_CREAT)
        else:
            _unlink(self._at(run, f".{kind}"))
        warden = self.warden(run)
        if warden and self.is_watched(run):
            with contextlib.suppress(OSError):
                os.kill(warden, signal.SIGUSR1)

    def warden(self, run: RunId) -> int:
        """Return the process that watches a run, 0 where it is not known yet."""
        try:
            return int(Path(self._at(run, ".pid")).read_text())
        except (OSError, ValueError):
            return 0

    def is_watched(self, run: RunId) -> bool:
        """Return whether a run's warden lives."""
        try:
            with open(self._at(run, ""), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def has_begun(self, run: RunId) -> bool:
        """Return whether a run has begun."""
        return os.path.exists(self._at(run, ".begun"))

    def output(self, run: RunId) -> Path:
        """Return where its warden leaves what a run has written so far."""
        return Path(self._at(run, ".out"))

    def how_ended(self, run: RunId) -> Ended | None:
        """Return how a run ended, if its warden has said so."""
        try:
            return end_from_json(json.loads(Path(self._at(run, ".end")).read_text()))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _at(self, run: RunId, kind: str) -> str:
        return f"{self._base}/{_key(run)}{kind}"

    def _write(self, name: str, text: str) -> None:
        draft = f"{self._base}/{name}.draft"
        _put(draft, text, os.O_CREAT | os.O_TRUNC)
        os.replace(draft, f"{self._base}/{name}")


@functools.lru_cache(1024)
def _key(run: RunId) -> str:
    return key_of(run)


def _unlink(file: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(file)


def _put(file: str, text: str, how: int) -> None:
    """Write without what Python's own files would touch: in a warden all of that are fresh pages."""
    out = os.open(file, os.O_WRONLY | os.O_CLOEXEC | how, 0o600)
    try:
        remaining = text.encode()
        while remaining:
            remaining = remaining[os.write(out, remaining) :]
    finally:
        os.close(out)
