"""A control group for each run, where the agent may make one: a bound on its memory, cores and processes.

Version 2 of the kernel's interface, or version 1 where the controllers are mounted so; no systemd is asked. A run
that needs more memory than it holds is ended by the kernel, and that is reported as the cause. Needs nothing but the
standard library.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rainbow.agent.executors.isolation import open_folder
from rainbow.agent.executors.run import Ended, Result, Run

ROOT = Path("/sys/fs/cgroup")
OURS = "rainbow"
MIB = 2**20
PERIOD = 100_000  # microseconds in which a run has its cores' time
PROCESSES = 1_024  # processes and threads for each core: enough for any honest run, no room for a fork bomb
CONTROLLERS = ("memory", "pids", "cpu")

Limits = Mapping[str, int]


def limits_of(run: Run) -> dict[str, int]:
    """Return what a run holds on this machine: memory (bytes), cores, processes; 0 is no limit.

    >>> limits_of(Run(("t", 1), "j", ("x",), placement={"n0": {"core": 2, "memory": 512}}))
    {'memory': 536870912, 'cores': 2, 'pids': 2048}
    """
    held = [amounts for worker, amounts in run.placement.items() if worker]
    cores = sum(amounts.get("core", 0) for amounts in held)
    memory = sum(amounts.get("memory", 0) for amounts in held) * (1 if "memory" in run.units else MIB)
    return {"memory": memory, "cores": cores, "pids": PROCESSES * max(cores, run.processes, 1)}


class ControlGroup:
    """The control group of a run: one folder, or with version 1 one for each controller."""

    def __init__(self, folders: Mapping[str, Path], limits: Limits) -> None:
        self._folders, self._limits = folders, limits
        self._killed = 0
        homes = {folder: _home(controller) for controller, folder in folders.items()}
        self._moves = [(f"{folder}/cgroup.procs", f"{home}/cgroup.procs") for folder, home in homes.items()]
        for controller, folder in folders.items():
            there = folder.is_dir()
            folder.mkdir(exist_ok=True)
            for name, value in _settings(controller, limits):
                with contextlib.suppress(OSError):  # a kernel without swap accounting, or an old one
                    _set(f"{folder}/{name}", value)
            if there and controller == "memory":
                self._killed = self.killed()

    def hold_open(self) -> None:
        """Reach the group by open folders from now on: its own mount becomes read only for the run."""
        self._moves = [(_held(members), _held(home)) for members, home in self._moves]
        self._folders = {name: Path(_held(str(folder))) for name, folder in self._folders.items()}

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Let what this process starts in the block be of the group.

        The process itself enters and leaves: a child that entered before its program begins could not be started by
        vfork, and that is three quarters of what a start costs.
        """
        try:
            for members, _ in self._moves:
                _set(members, "0")
            yield
        finally:
            for _, home in reversed(self._moves):
                _set(home, "0")

    def killed(self) -> int:
        """Return how many of the group's processes the kernel has ended for want of memory."""
        folder = self._folders.get("memory")
        return _killed(folder) if folder else 0

    def judged(self, end: Ended) -> Ended:
        """Say so if a run ended badly for want of memory."""
        if end.result is not Result.EXITED or end.exit_code == 0 or self.killed() <= self._killed:
            return end
        held = self._limits["memory"] // MIB
        return replace(end, detail=f"out of memory: it needed more than the {held} MiB it holds", cause="memory")

    def remove(self) -> None:
        """End what is left in the group, and take it away."""
        limit = time.monotonic() + 2.0
        for folder in dict.fromkeys(self._folders.values()):
            while not _is_gone(folder) and time.monotonic() < limit:
                for pid in _processes(folder):
                    with contextlib.suppress(OSError):
                        os.kill(pid, 9)
                time.sleep(0.01)


def _held(path: str) -> str:
    """Return a path by its open parent, for a folder in it can be taken away by its name alone."""
    parent, name = os.path.split(path)
    return f"{open_folder(Path(parent))}/{name}"


def judged_here(end: Ended, job: str) -> Ended:
    """Say so if a run ended badly for want of memory, by the group that a resource manager has made for its job."""
    groups = ((ROOT / "memory", _own("memory")), (ROOT, _own("")))
    ours = re.compile(rf"(?<!\d){re.escape(job or '-')}(?!\d)")  # in another group others' ends would count, too
    killed = any(_killed(root / own.lstrip("/")) for root, own in groups if own and ours.search(own))
    if end.result is not Result.EXITED or end.exit_code == 0 or not killed:
        return end
    return replace(end, detail="out of memory: it needed more than its job holds", cause="memory")


def of_run(name: str, run: Run) -> ControlGroup | None:
    """Return a new group for a run; None where the agent may make none."""
    for _ in range(2):
        try:
            folders = {controller: base / f"run-{name}" for controller, base in bases_here().items()}
            return ControlGroup(folders, limits_of(run)) if folders else None
        except OSError:  # what was found before may have been taken away
            bases_here.cache_clear()
    return None


def remove(name: str) -> None:
    """End what is left in the group of a run that nobody watches any more."""
    folders = {controller: base / f"run-{name}" for controller, base in bases_here().items()}
    there = {controller: folder for controller, folder in folders.items() if folder.is_dir()}
    if there:
        ControlGroup(there, {"memory": 0, "cores": 0, "pids": 0}).remove()


@functools.cache
def bases_here() -> dict[str, Path]:
    """Return {controller: the folder in which this process may make groups}."""
    results = {}
    for controller in CONTROLLERS:
        base = _base(controller)
        if base is not None:
            results[controller] = base
    return results if "pids" in results or "memory" in results else {}


def _base(controller: str) -> Path | None:
    old, new = ROOT / controller, ROOT
    for root, of in ((old, controller), (new, "")):
        own = _own(of) if root.is_dir() else None
        if own is None:
            continue
        place = root / own.lstrip("/")
        # where our own group is not shown (a container), the root that is shown is what we have
        for parent in (place, root):
            made = _made(parent / OURS, controller, version=1 if of else 2)
            if made is not None:
                return made
    return None


@functools.cache
def _home(controller: str) -> Path:
    """Return the group that this process was in when it was asked first."""
    old = ROOT / controller
    root, own = (old, _own(controller)) if old.is_dir() else (ROOT, _own(""))
    place = root / (own or "").lstrip("/")
    return place if place.is_dir() else root


def _set(file: str, value: str) -> None:
    out = os.open(file, os.O_WRONLY)
    try:
        os.write(out, value.encode())
    finally:
        os.close(out)


def _made(folder: Path, controller: str, *, version: int) -> Path | None:
    try:
        if version == 2:
            if controller not in (folder.parent / "cgroup.controllers").read_text().split():
                return None
            (folder.parent / "cgroup.subtree_control").write_text(f"+{controller}")
        if not folder.parent.is_dir():
            return None
        folder.mkdir(exist_ok=True)
        if version == 2:
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _own(controller: str) -> str | None:
    """Return our own group of a controller (version 1), or of all (version 2, "")."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            if controller in names.split(",") if controller else names == "":
                return path
    return None


def _killed(folder: Path) -> int:
    """Return how many processes of a group the kernel has ended for want of memory."""
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError, ValueError):
            for line in (folder / name).read_text().splitlines():
                word, _, count = line.partition(" ")
                if word == "oom_kill":
                    return int(count)
    return 0


def _settings(controller: str, limits: Limits) -> Iterator[tuple[str, str]]:
    memory, cores = str(limits["memory"]), limits["cores"]
    if controller == "memory" and limits["memory"]:
        yield from (("memory.max", memory), ("memory.swap.max", "0"), ("memory.oom.group", "0"))
        yield from (("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory))
    if controller == "pids" and limits["pids"]:
        yield "pids.max", str(limits["pids"])
    if controller == "cpu" and cores:
        yield from (("cpu.max", f"{cores * PERIOD} {PERIOD}"), ("cpu.cfs_quota_us", str(cores * PERIOD)))


def _is_gone(folder: Path) -> bool:
    """Take a group away that has no processes; return whether it is gone."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _processes(folder: Path) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    return []
