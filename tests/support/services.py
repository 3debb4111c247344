"""The services that tests run for real: what to install for each, and what to say where one is not there.

`python -m tests.support.services` (a step of `make test`) installs what is missing where apt and root are at hand,
quietly, and does nothing where all is there. A service that could not be had skips its tests with the reason; where
CI is set it fails them, for there nobody reads what was skipped. One more service is one more row of SERVICES.
"""

from __future__ import annotations

import importlib
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CI = os.environ.get("CI", "").lower() not in ("", "0", "false")


@dataclass(frozen=True)
class Wanted:
    """A service: Debian's packages, the programs that must be there, and where else than on the PATH they may be."""

    packages: tuple[str, ...]
    programs: tuple[str, ...]
    folders: tuple[str, ...] = ()
    told_by: str = ""  # the environment variable that names a folder of the programs
    must: bool = True  # be there in CI
    instead: tuple[str, ...] = ()  # programs that do as well where the others cannot be had
    on_demand: bool = False  # installed by whoever runs a campaign that wants it, and not by each `make test`

    def runs(self) -> str:
        """Return the path of the first program that is there; an empty text if none is."""
        return next((str(path) for name in (*self.programs, *self.instead) if (path := self.program(name))), "")

    def program(self, name: str) -> Path | None:
        """Return where this program is: in the folder named, else the newest of Debian's, else on the PATH."""
        named = os.environ.get(self.told_by, "") if self.told_by else ""
        results = [path for pattern in self.folders for path in sorted(Path("/").glob(pattern[1:]), reverse=True)]
        path = os.pathsep.join([*map(str, results), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
        there = shutil.which(name, os.F_OK, named or path)
        return Path(there) if there else None

    def absent(self) -> list[str]:
        """Return the programs that are not there."""
        return [name for name in self.programs if self.program(name) is None]


SERVICES = {
    "PostgreSQL": Wanted(
        packages=("postgresql",),
        programs=("initdb", "pg_ctl"),
        folders=("/usr/lib/postgresql/*/bin",),
        told_by="RAINBOW_POSTGRES_BIN",
    ),
    "Slurm": Wanted(
        packages=("slurmctld", "slurmd", "slurm-client"),
        programs=("slurmctld", "slurmd", "sinfo", "sbatch", "squeue", "scancel"),
    ),
    "slurmrestd": Wanted(
        packages=("slurmrestd", "slurm-wlm-jwt-plugin"),
        programs=("slurmrestd", "auth_jwt.so"),
        folders=("/usr/sbin", "/usr/lib/*/slurm-wlm"),
        must=False,  # packages that not every image has beside Slurm's
    ),
    "Grid Engine": Wanted(
        packages=("gridengine-master", "gridengine-exec", "gridengine-client"),
        programs=("sge_qmaster", "sge_execd", "qsub", "qconf"),
        folders=("/usr/lib/gridengine",),
        must=False,
    ),
    "Patroni": Wanted(
        packages=("patroni", "etcd-server", "postgresql"),
        programs=("patroni", "etcd", "setpriv", "pgrep"),
        must=False,
        on_demand=True,
    ),
    "sudo": Wanted(packages=("sudo",), programs=("sudo", "unshare", "setpriv"), must=False),
    "Chromium": Wanted(
        packages=("chromium-headless-shell", "fonts-dejavu-core"),  # takes a third of the whole browser's time
        programs=("chromium-headless-shell",),
        instead=("chromium",),
    ),
}


def missing(service: str) -> str:
    """Say why there is no such service here; an empty text if there is."""
    requirement = SERVICES[service]
    absent = "" if requirement.instead and requirement.runs() else ", ".join(requirement.absent())
    return (
        f"{service} is not installed: no {absent} (apt-get install {' '.join(requirement.packages)})"
        if absent
        else ""
    )


def without(reason: str, *, must: bool = True) -> None:
    """Leave a test or a module that lacks what it needs, if there is a reason to: skipped here, failed in CI."""
    if reason and CI and must:
        pytest.fail(f"must not be skipped where CI is set: {reason}", pytrace=False)
    if reason:
        pytest.skip(reason, allow_module_level=True)


def package(name: str) -> Any:
    """Import a package that the extra `dev` brings; leave the test or the module where it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as fault:
        without(f"{fault.name} is not installed (pip install -e '.[dev]')")
        raise


def require(service: str) -> None:
    """Leave a test whose service is not there."""
    without(missing(service), must=SERVICES[service].must)


def require_checkout_of_everybody() -> None:
    """Skip where other users may not read this checkout: what runs as one of them cannot import it."""
    closed = [folder for folder in Path(__file__).resolve().parents if not folder.stat().st_mode & stat.S_IXOTH]
    if closed:
        without(f"other users may not enter {closed[-1]}, in which this checkout is", must=False)


def _install(packages: list[str]) -> str:
    """Install by apt; what went wrong, if anything."""
    if os.getuid() != 0 or not shutil.which("apt-get"):
        return "it takes root and apt-get"
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=2"]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    said = ""
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run([*apt, *arguments], env=quiet, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr if done.returncode else ""
    return said[-2000:]


def main() -> int:
    """Install what is missing; a failure only where CI is set."""
    lacking = {
        name: requirement
        for name, requirement in SERVICES.items()
        if not requirement.on_demand and requirement.absent()
    }
    if not lacking:
        return 0
    print(f"installing {', '.join(lacking)} for the tests", flush=True)
    problem = _install([package for requirement in lacking.values() for package in requirement.packages])
    remaining = [reason for name in lacking if (reason := missing(name))]
    failed = CI and any(requirement.must for name, requirement in lacking.items() if missing(name))
    for reason in remaining:
        print(f"{'failed' if failed else 'its tests will be skipped'}: {reason}")
    if remaining and problem:
        print(problem)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
