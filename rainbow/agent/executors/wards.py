"""What a keeper and the wardens of its runs tell each other: files, and a pipe that says at which to look.

KEY         the run; locked by its warden for as long as that lives
    KEY.pid     the warden
    KEY.begun   its processes have been started
    KEY.stop    its presence asks for the end
    KEY.hold    its presence asks to hold it in place
    KEY.end     how it ended
    news        a pipe: the keys of what has begun or ended

Every file appears whole. The folder is the owner's alone; what is read from the pipe is no more than a hint. Needs
nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from rainbow.agent.executors.run import Ended, Run, RunId, end_from_json, end_to_json, run_from_json, run_to_json
from rainbow.agent.executors.shared_folder import key_of

KINDS = ("", ".pid", ".begun", ".stop", ".hold", ".end")


class Wards:
    """The folder of the runs of a keeper. `folder` is the agent's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._place = folder / "wards"
        self._place.mkdir(mode=0o700, exist_ok=True)

    def name(self, run: RunId) -> str:
        """Return the key of a run."""
        return key_of(run)

    def news(self) -> int:
        """Open the pipe to hear of what happens."""
        path = self._place / "news"
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def there(self) -> dict[str, RunId]:
        """Return {key: run} of all that is there."""
        found = {}
        for path in self._place.iterdir():
            if "." not in path.name and path.name != "news":
                with contextlib.suppress(OSError, ValueError, KeyError):
                    found[path.name] = run_from_json(json.loads(path.read_text())).id
        return found

    @contextlib.contextmanager
    def put(self, run: Run) -> Iterator[int]:
        """Leave a run for its warden, who inherits the lock that says that somebody watches it."""
        draft = self._place / f"{key_of(run.id)}.draft"
        draft.write_text(json.dumps(run_to_json(run)))
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
            self._at(run, kind).unlink(missing_ok=True)

    # ── by the warden ──

    def set_warden(self, run: RunId, pid: int) -> None:
        """Note which process watches a run."""
        self._write(f"{key_of(run)}.pid", str(pid))

    def begin(self, run: RunId) -> None:
        """Say that a run has begun."""
        self._at(run, ".begun").touch()
        self._say(run)

    def end(self, end: Ended) -> None:
        """Say how a run ended."""
        self._write(f"{key_of(end.id)}.end", json.dumps(end_to_json(end)))
        self._say(end.id)

    def is_asked(self, kind: str, run: RunId) -> bool:
        """Tell whether a run is to `stop`, or to be on `hold`."""
        return os.path.exists(self._at(run, f".{kind}"))

    def _say(self, run: RunId) -> None:
        with contextlib.suppress(OSError):  # no keeper listens: it looks when there is one again
            pipe = os.open(self._place / "news", os.O_WRONLY | os.O_NONBLOCK)
            with contextlib.closing(os.fdopen(pipe, "wb", buffering=0)) as out:
                out.write(f"{key_of(run)}\n".encode())

    # ── by the keeper ──

    def ask(self, kind: str, run: RunId, *, yes: bool = True) -> None:
        """Ask for something, or take it back; the warden is woken."""
        if yes:
            self._at(run, f".{kind}").touch()
        else:
            self._at(run, f".{kind}").unlink(missing_ok=True)
        warden = self.warden(run)
        if warden and self.is_watched(run):
            with contextlib.suppress(OSError):
                os.kill(warden, signal.SIGUSR1)

    def warden(self, run: RunId) -> int:
        """Return the process that watches a run, 0 where it is not known yet."""
        try:
            return int(self._at(run, ".pid").read_text())
        except (OSError, ValueError):
            return 0

    def is_watched(self, run: RunId) -> bool:
        """Tell whether a run's warden lives."""
        try:
            with self._at(run, "").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def has_begun(self, run: RunId) -> bool:
        """Tell whether a run has begun."""
        return self._at(run, ".begun").exists()

    def how_ended(self, run: RunId) -> Ended | None:
        """Return how a run ended, if its warden has said so."""
        try:
            return end_from_json(json.loads(self._at(run, ".end").read_text()))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _at(self, run: RunId, kind: str) -> Path:
        return self._place / f"{key_of(run)}{kind}"

    def _write(self, name: str, text: str) -> None:
        draft = self._place / f"{name}.draft"
        draft.write_text(text)
        os.replace(draft, self._place / name)
