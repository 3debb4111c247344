"""Keepers, which hold what an agent runs, found among the processes and ended."""

from __future__ import annotations

from pathlib import Path

import psutil

from rainbow.agent.executors.local import sweep

WARDEN = "rainbow-warden"


def keepers(folder: Path) -> list[psutil.Process]:
    named = [one for one in psutil.process_iter() if "keeper" in words(one) and str(folder) in " ".join(words(one))]
    return [one for one in named if called(one) != WARDEN]


def wardens(folder: Path) -> list[psutil.Process]:
    """Return those that watch the runs of a folder, one for each run."""
    named = [one for one in psutil.process_iter() if "keeper" in words(one) and str(folder) in " ".join(words(one))]
    return [one for one in named if called(one) == WARDEN]


def called(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return ""


def words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def end_of_marked(folder: Path) -> None:
    for state in (folder / "state").glob("*"):
        sweep(str(state))


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
