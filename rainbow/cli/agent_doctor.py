"""`rainbow agent doctor`: what this machine allows an agent to do, and whether its site works."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from rainbow.agent.executors import cgroups, isolation
from rainbow.agent.executors.gridengine.site import GridEngine
from rainbow.agent.executors.slurm.accounts import MAPPED, account_of, read_users
from rainbow.agent.executors.slurm.commands import Commands, SilentError, words_of
from rainbow.agent.executors.slurm.executor import helper_words
from rainbow.agent.executors.slurm.site import Slurm
from rainbow.cli.exit_codes import Exit
from rainbow.cli.output import printer
from rainbow.errors import RainbowError

WALLS = "each task has processes of its own, and sees no secret of the agent"
Row = tuple[str, str, str]
OK, WARNING, ERROR = "ok", "warning", "error"
SITES = {
    "slurm": (Slurm, ("sbatch", "squeue", "scancel", "scontrol", "sinfo")),
    "gridengine": (GridEngine, ("qsub", "qstat", "qdel", "qacct", "qhost")),
}
SHARED = ("nfs", "lustre", "gpfs", "beegfs", "ceph", "cifs", "afs", "9p", "fuse", "gfs2", "ocfs2", "virtiofs")


def doctor(executor: str, identity: str, users: Path | None, folder: Path) -> Exit:
    """Print what was found; return how the command ends."""
    results = list(_machine())
    if (kind := executor.partition(":")[0]) in SITES:
        results = [*_site(kind), *_accounts(identity, users), *_folder(identity, folder), *results]
    printer.console().print(printer.table(["CHECK", "RESULT", "DETAIL"], results))
    return Exit.ERROR if any(result == ERROR for _, result, _ in results) else Exit.OK


def _machine() -> Iterator[Row]:
    """Yield what the machine allows an agent to do for its tasks."""
    apart, groups, mine = isolation.allowed(), cgroups.bases_here(), os.getuid()
    space = (
        f"tasks see and can signal each other: {apart}" if apart else "each task has a space of processes of its own"
    )
    yield "isolation", WARNING if apart else OK, space
    held = f"each task has a control group: {', '.join(groups)}"
    none = "no control group may be made: a task may take more memory, cores and processes than it holds"
    yield "limits", OK if len(groups) == len(cgroups.CONTROLLERS) else WARNING, held if groups else none
    user = f"tasks run as user {mine}" if mine else "tasks run as root: run the agent as a user of its own"
    yield "user", OK if mine else WARNING, user
    yield "clock", OK, "leases are measured since the machine was booted; the time of day may be set"


def _site(kind: str) -> Iterator[Row]:
    made, programs = SITES[kind]
    absent = [name for name in programs if shutil.which(name) is None]
    yield (
        "commands",
        ERROR if absent else OK,
        f"not on the PATH: {', '.join(absent)}" if absent else ", ".join(programs),
    )
    if absent:
        return
    site = made()
    try:
        question = site.nodes()
        nodes = question.read(Commands().ask(*question.command))
        yield "site", OK if nodes else ERROR, f"{site.name} answers; it has {len(nodes)} nodes"
    except (SilentError, subprocess.CalledProcessError) as fault:
        said = words_of(fault.output) if isinstance(fault, subprocess.CalledProcessError) else str(fault)
        yield "site", ERROR, f"{site.name} does not answer: {said}"


def _accounts(identity: str, users: Path | None) -> Iterator[Row]:
    if identity in MAPPED and users is None:
        yield "accounts", ERROR, f"identity {identity} needs --users FILE"
        return
    if users is not None:
        try:
            known = read_users(users)
        except RainbowError as fault:
            yield "accounts", ERROR, str(fault)
            return
        yield from _mapped(known) if identity in MAPPED else [("accounts", OK, f"{len(known)} users are known")]
    if identity == "helper" and users is not None:
        words = [*helper_words(), str(users.resolve())]
        why = Commands(words).helper_trouble()
        line = f"{_login()} ALL=(root) NOPASSWD: {shlex.join(words[2:])}"
        yield "helper", ERROR if why else OK, f"{why}; sudoers needs: {line}" if why else "it answers"


def _mapped(known: dict[str, dict[str, object]]) -> Iterator[Row]:
    faults = []
    for requestor in sorted(known):
        try:
            account_of(known, requestor)
        except RainbowError as fault:
            faults.append(f"{requestor}: {fault}")
    said = "; ".join(faults[:5]) if faults else f"{len(known)} users have accounts here"
    yield "accounts", ERROR if faults else OK, said


def _folder(identity: str, folder: Path) -> Iterator[Row]:
    """Say whether the nodes are likely to see the agent's folder, through which its own account's commands go."""
    there = next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))
    kind = _file_system(there.resolve())
    if not os.access(there, os.W_OK):
        yield "folder", ERROR, f"{there} cannot be written to (--state-dir)"
    elif identity in MAPPED or kind.startswith(SHARED):
        yield "folder", OK, f"{folder} is on {kind or 'a file system'}"
    else:
        yield "folder", WARNING, f"{folder} is on {kind}: every node must see it (--state-dir)"


def _file_system(path: Path) -> str:
    best, kind = "", ""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, at, result, *_ = line.split()
        if (str(path) == at or str(path).startswith(at.rstrip("/") + "/")) and len(at) >= len(best):
            best, kind = at, result
    return kind


def _login() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
