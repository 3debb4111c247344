"""`rainbow slurm-shims`: Slurm's commands as links to one small file, which has the server carry them out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from rainbow.cli.session import with_place
from rainbow.errors import Conflict

COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "srun", "salloc", "sacctmgr", "sshare")
FILE = "rainbow-slurm-command"
SOURCE = Path(__file__).with_name("slurm_command.py")
PYTHON = "/usr/bin/python3"


@click.command("slurm-shims")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@with_place
def slurm_shims(url: str, credentials: Path, folder: Path) -> None:
    """Write Slurm's commands into FOLDER: sbatch, squeue, sacct, scancel, scontrol, sinfo and srun over Rainbow.

    One file of the standard library and links to it. It knows the server's URL and where the credentials file is, no
    secret. Put FOLDER first in PATH; other files of these names there are never overwritten.
    """
    own = folder / FILE
    taken = [name for name in COMMANDS if _is_of_others(folder / name)]
    if taken:
        raise Conflict(f"{folder} has other files of these names: {', '.join(taken)}; give an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    draft = own.with_name(f"{FILE}.part")
    draft.write_text(text_of(url, str(credentials)))
    draft.chmod(0o755)
    draft.replace(own)
    for name in COMMANDS:
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(FILE)
    click.echo(f"{len(COMMANDS)} commands in {folder}, for {url}")
    click.echo(f"export PATH={folder.absolute()}:$PATH")


def _is_of_others(path: Path) -> bool:
    return os.path.lexists(path) and not (path.is_symlink() and os.readlink(path) == FILE)


def text_of(url: str, credentials: str) -> str:
    """Return the file's text for a server and a credentials file."""
    python = PYTHON if os.access(PYTHON, os.X_OK) else sys.executable
    text = SOURCE.read_text()
    for name, value in (("URL", url), ("CREDENTIALS", credentials)):
        text = text.replace(f'{name} = ""', f"{name} = {value!r}", 1)
    return f"#!{python} -IS\n{text}"
