"""Slurm's commands, the only place where they are started: without a shell, each with a time limit.

The environment is built: nothing of the agent's but where Slurm and its programs are. A call for another account
becomes that account, its groups included, before the program starts; a helper does so where the agent cannot.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from rainbow.agent.executors.local import for_managers
from rainbow.agent.executors.slurm.accounts import Account
from rainbow.agent.executors.slurm.call import Call

PATIENCE = 60.0  # seconds for one command; what sbatch has not answered by then is unknown, not refused
PASSING = ("Unable to contact", "Socket timed out", "timed out", "Connection refused", "temporarily unable")
FOR_ACCOUNTS = ("sbatch", "scancel", "scontrol", "tail")  # what is called as another account


class SilentError(OSError):
    """Slurm did not answer: nothing is known, nothing is concluded."""


class Commands:
    """Starts them as the agent's account, or as another. `helper`: the words of the program that becomes it."""

    def __init__(self, helper: Sequence[str] = ()) -> None:
        self._helper = tuple(helper)
        self._environment = for_managers(os.environ)

    def ask(self, *command: str, told: str = "", account: Account | None = None, requestor: str = "") -> str:
        """Return what a command prints; CalledProcessError has its words, SilentError: it has not answered."""
        return _said(command, self._run(command, told, None, account, requestor))

    def sbatch(self, call: Call, account: Account | None = None, requestor: str = "") -> str:
        """Submit a call. Its environment goes by a descriptor: named by --export, Slurm would add a login's."""
        command = ("sbatch", "--parsable", *call.words)
        return _said(command, self._run(command, call.script, call.environment, account, requestor))

    def _run(
        self,
        command: Sequence[str],
        told: str,
        exported: Mapping[str, str] | None,
        account: Account | None,
        requestor: str,
    ) -> subprocess.CompletedProcess[str]:
        if account is not None and self._helper:
            return self._helped(command, told, exported, requestor)
        return run(command, told, exported, self._environment, account)

    def _helped(
        self, command: Sequence[str], told: str, exported: Mapping[str, str] | None, requestor: str
    ) -> subprocess.CompletedProcess[str]:
        asked = json.dumps({"requestor": requestor, "command": command, "input": told, "environment": exported})
        done = run(self._helper, asked, None, self._environment, None)
        try:
            answer = json.loads(done.stdout)
            return subprocess.CompletedProcess(command, answer["code"], answer["out"], answer["err"])
        except (ValueError, KeyError, TypeError):
            said = f"the helper {self._helper[0]} has not answered: {done.stderr.strip()[:200]}"
            return subprocess.CompletedProcess(command, done.returncode or 1, "", said)


def _said(command: Sequence[str], done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode and any(words in done.stderr for words in PASSING):
        raise SilentError(words_of(done.stderr))
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, output=done.stderr or done.stdout)
    return done.stdout


def run(
    command: Sequence[str],
    told: str,
    exported: Mapping[str, str] | None,
    environment: Mapping[str, str],
    account: Account | None,
) -> subprocess.CompletedProcess[str]:
    """Run a command, as an account if one is given; `exported`: the environment that sbatch gives to the job."""
    as_account: dict[str, Any] = {"env": dict(environment)}
    if account:
        as_account = {"user": account.uid, "group": account.gid, "extra_groups": account.groups(), "cwd": "/"}
        as_account["env"] = {**environment, **account.environment}
    with tempfile.TemporaryFile() as file:
        words = list(command)
        for name, value in (exported or {}).items():
            file.write(f"{name}={value}\0".encode("utf-8", "surrogateescape"))
        file.flush()
        if exported is not None:  # opened anew for every component of a job, by the account
            words[1:1] = [f"--export-file=/dev/fd/{file.fileno()}"]
            if account:
                os.fchown(file.fileno(), account.uid, account.gid)
        try:
            return subprocess.run(  # noqa: S603 - our own words, no shell
                words,
                input=told,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PATIENCE,
                pass_fds=() if exported is None else (file.fileno(),),
                check=False,
                **as_account,
            )
        except subprocess.TimeoutExpired as fault:
            raise SilentError(f"{command[0]} has not answered for {PATIENCE:g} s") from fault
        except FileNotFoundError as fault:
            raise SilentError(f"{command[0]} is not installed here") from fault


def words_of(said: str | None) -> str:
    """Return what a command complains of, in one line."""
    lines = [line.removeprefix("sbatch: error: ").strip() for line in (said or "").splitlines()]
    return "; ".join(filter(None, lines))[:300] or "no reason"
