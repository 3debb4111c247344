"""Slurm's commands over Rainbow as a user has them: in a folder of PATH, started as processes."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.shell import Shell


@dataclass
class Commands:
    """Runs commands of the folder; where one ends well nothing is on standard error."""

    folder: Path
    work: Path
    variables: dict[str, str]

    def run(self, *words: str | Path, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        own = {"PATH": f"{self.folder}:/usr/bin:/bin", "HOME": str(self.work), "TZ": "UTC"}
        done = subprocess.run(
            [self.folder / words[0], *map(str, words[1:])],
            input=stdin,
            env={**own, **self.variables, **variables},
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode or not done.stderr, (words, done.stderr)
        return done

    def __call__(self, *words: str | Path, **more: str) -> str:
        done = self.run(*words, **more)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture
def slurm(shell: Shell) -> Commands:
    """Slurm's commands for the server of `shell`."""
    folder = shell.folder / "bin"
    made = shell("slurm-shims", folder)
    assert made.exit_code == 0, made.output
    return Commands(folder, shell.folder, {})
