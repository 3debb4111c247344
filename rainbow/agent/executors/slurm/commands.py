"""Slurm's commands, the only place where they are started: without a shell, each with a time limit.

The environment is built: nothing of the agent's but where Slurm and its programs are. A call for another account
becomes that account, its groups included, before the program starts; a helper does so where the agent cannot.

Slurm's REST interface (slurmrestd) takes calls of sbatch and scancel for an account, by a token of its own:

RAINBOW_SLURM_REST    where it answers, with the version: http://127.0.0.1:6820/slurm/v0.0.38
RAINBOW_SLURM_TOKENS  a folder with a file for each account, which holds its token (`scontrol token`) and
                      is read for each call

A token is in a header of the call alone. Nothing reads a script's #SBATCH lines there, so they are read here. What
cannot be said is refused; jobs are canceled, but none is taken back that may begin meanwhile.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import httpx

from rainbow.agent.executors.local import for_managers
from rainbow.agent.executors.process import read_end
from rainbow.agent.executors.slurm.accounts import SiteAccount
from rainbow.agent.executors.slurm.call import SbatchCall
from rainbow.errors import ConfigError, RainbowError
from rainbow.jobspec.sbatch import read_call
from rainbow.jobspec.sbatch.document import seconds
from rainbow.jobspec.sbatch.request import NotCarriedError
from rainbow.jobspec.sbatch.shape import mebibytes, read_range

COMMAND_TIMEOUT = 60.0  # seconds for one command
SUBMIT_TIMEOUT = (
    600.0  # seconds for sbatch, around which sites put programs of theirs; then it is unknown, not refused
)
PASSING = ("Unable to contact", "Socket timed out", "timed out", "Connection refused", "temporarily unable")
PASSING_THERE = ("commlib error", "unable to contact qmaster", "unable to send message to qmaster", "got send error")
FOR_ACCOUNTS = ("sbatch", "scancel", "scontrol", "qsub", "qdel", "tail")  # what is called as another account


# the only words of a shell: a folder and a command are its arguments
IN_FOLDER = 'cd -- "$1" 2>/dev/null || { echo "rainbow: no such folder" >&2; exit 93; }; shift; exec "$@"'
NO_FOLDER, NO_FOLDER_WORDS = 93, "rainbow: no such folder"
Where = tuple[str, int]  # the folder and the umask that a command is started with; "", -1: those of the agent


class DirectoryError(RainbowError):
    """The folder where a job was to work is not there, or its account may not enter it."""


class SilentError(OSError):
    """Slurm did not answer: nothing is known, nothing is concluded."""


class Commands:
    """Starts them as the agent's account, or as another.

    `helper`: the words of the program that becomes it; `rest`: Slurm's REST interface, which is asked instead.
    """

    def __init__(self, helper: Sequence[str] = (), rest: Rest | None = None) -> None:
        self._helper, self._rest = tuple(helper), rest
        self._environment = for_managers(os.environ)

    def ask(self, *command: str, text: str = "", account: SiteAccount | None = None, requestor: str = "") -> str:
        """Return what a command prints; CalledProcessError has its words, SilentError: it has not answered."""
        if account is not None and self._rest:
            return _passing(partial(self._rest.ask, command, account))
        return _said(command, self._run(command, text, None, account, requestor))

    def sbatch(self, call: SbatchCall, account: SiteAccount | None = None, requestor: str = "") -> str:
        """Submit a call. Its environment goes by a descriptor: named by --export, Slurm would add a login's."""
        if account is not None and self._rest:
            return _passing(partial(self._rest.sbatch, call, account))
        return self.submit(("sbatch", "--parsable", *call.words), call, account, requestor)

    def submit(
        self, command: Sequence[str], call: SbatchCall, account: SiteAccount | None = None, requestor: str = ""
    ) -> str:
        """Submit a call by this command; DirectoryError if its folder is not there."""
        done = self._run(command, call.script, call.environment, account, requestor, (call.folder, call.umask))
        if done.returncode == NO_FOLDER and NO_FOLDER_WORDS in done.stderr:
            raise DirectoryError(f"{call.folder} is not there, or its account may not enter it")
        return _said(command, done)

    def test(self, call: SbatchCall, account: SiteAccount | None = None, requestor: str = "") -> str:
        """Return what sbatch says of a call that it is only to try; CalledProcessError has why it would refuse it."""
        if account is not None and self._rest:  # which cannot be asked so
            raise SilentError("slurmrestd tries no job")
        command = ("sbatch", "--test-only", *call.words)
        done = self._run(command, call.script, None, account, requestor, ("", call.umask))
        _said(command, done)
        return done.stderr

    def _run(
        self,
        command: Sequence[str],
        text: str,
        exported: Mapping[str, str] | None,
        account: SiteAccount | None,
        requestor: str,
        where: Where = ("", -1),
    ) -> subprocess.CompletedProcess[str]:
        if account is not None and self._helper:
            return self._helped(command, text, exported, requestor, where)
        return run(command, text, exported, self._environment, account, limit_of(command), where)

    def helper_trouble(self) -> str:
        """Try the helper with a requestor that has no account; return what is wrong with it, empty: nothing."""
        if not self._helper:
            return ""
        try:
            done = self._helped(("sbatch", "--version"), "", None, "", ("", -1))
        except SilentError as fault:
            return f"the helper does not work: {fault}"
        return "" if "has no account" in done.stderr else f"the helper does not work: {words_of(done.stderr)}"

    def _helped(
        self, command: Sequence[str], text: str, exported: Mapping[str, str] | None, requestor: str, where: Where
    ) -> subprocess.CompletedProcess[str]:
        question = {"requestor": requestor, "command": command, "input": text, "environment": exported}
        request = json.dumps({**question, "folder": where[0], "umask": where[1]})
        done = run(self._helper, request, None, self._environment, None, limit_of(command))
        try:
            answer = json.loads(done.stdout)
            return subprocess.CompletedProcess(command, answer["code"], answer["out"], answer["err"])
        except (ValueError, KeyError, TypeError):
            said = f"the helper {self._helper[0]} has not answered: {done.stderr.strip()[:200]}"
            return subprocess.CompletedProcess(command, done.returncode or 1, "", said)


def limit_of(command: Sequence[str]) -> float:
    """Return for how many seconds a command may take."""
    return SUBMIT_TIMEOUT if command[0] in ("sbatch", "qsub") else COMMAND_TIMEOUT


def _passing(ask: Callable[[], str]) -> str:
    """Return what is answered; a fault that passes is silence."""
    try:
        return ask()
    except subprocess.CalledProcessError as fault:
        if any(words in str(fault.output) for words in PASSING):
            raise SilentError(words_of(fault.output)) from fault
        raise


def _said(command: Sequence[str], done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode and any(words in done.stderr for words in (*PASSING, *PASSING_THERE)):
        raise SilentError(words_of(done.stderr))
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, output=done.stderr or done.stdout)
    return done.stdout


def run(
    command: Sequence[str],
    text: str,
    exported: Mapping[str, str] | None,
    environment: Mapping[str, str],
    account: SiteAccount | None,
    limit: float = COMMAND_TIMEOUT,
    where: Where = ("", -1),
) -> subprocess.CompletedProcess[str]:
    """Run a command, as an account if one is given; `exported`: the environment that sbatch gives to the job."""
    as_account: dict[str, Any] = {"env": dict(environment)}
    if account:
        as_account = {"user": account.uid, "group": account.gid, "extra_groups": account.groups(), "cwd": "/"}
        as_account["env"] = {**environment, **account.environment}
    with tempfile.TemporaryFile() as file:
        program = shutil.which(command[0], path=environment.get("PATH"))  # on ours: the account has a PATH of its own
        if program is None:
            raise SilentError(f"{command[0]} is not installed here")
        words = [program, *command[1:]]
        for name, value in (exported or {}).items():
            file.write(f"{name}={value}\0".encode("utf-8", "surrogateescape"))
        file.flush()
        if exported is not None:  # opened anew for every component of a job, by the account
            words[1:1] = [f"--export-file=/dev/fd/{file.fileno()}"]
            if account:
                os.fchown(file.fileno(), account.uid, account.gid)
        if where[0]:  # as the account: root may enter what it may not
            words = ["/bin/sh", "-c", IN_FOLDER, "sh", where[0], *words]
        try:
            with subprocess.Popen(  # noqa: S603 - our own words, no shell
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                pass_fds=() if exported is None else (file.fileno(),),
                start_new_session=True,
                umask=where[1],
                **as_account,
            ) as process:
                try:
                    out, err = process.communicate(text, limit)
                except BaseException as fault:  # what it has started must not go on without us
                    with contextlib.suppress(OSError):
                        os.killpg(process.pid, signal.SIGKILL)
                    if isinstance(fault, subprocess.TimeoutExpired):
                        raise SilentError(f"{command[0]} has not answered for {limit:g} s") from fault
                    raise
                return subprocess.CompletedProcess(words, process.returncode, out, err)
        except FileNotFoundError as fault:
            raise SilentError(f"{command[0]} is not installed here") from fault


def words_of(said: str | None) -> str:
    """Return what a command complains of, in one line."""
    lines = [line.removeprefix("sbatch: error: ").strip() for line in (said or "").splitlines()]
    return "; ".join(filter(None, lines))[:300] or "no reason"


# ── by REST ──


LISTS = 39  # the version that took an environment as a list; none after 38 was tried on a live Slurm
OPTIONAL_TEXTS = ("comment", "constraint", "dependency", "partition", "output", "error", "input")  # "": not asked for


def _same(names: str) -> dict[str, str]:
    return {name: name.replace("-", "_") for name in names.split()}


TEXTS: Mapping[str, str] = {
    **_same("account array comment dependency distribution gres gres-flags gpus gpus-per-node gpus-per-task"),
    **_same("gpus-per-socket cpus-per-gpu licenses mail-type mail-user mcs-label open-mode partition prefer qos"),
    **_same("reservation signal wckey container deadline"),
    "constraint": "constraints",
    "job-name": "name",
    "chdir": "current_working_directory",
    "bb": "burst_buffer",
    "output": "standard_output",
    "error": "standard_error",
    "input": "standard_input",
    "hint": "cpu_binding_hint",
}
NUMBERS: Mapping[str, str] = {
    **_same("cpus-per-task cores-per-socket sockets-per-node threads-per-core nice"),
    "ntasks": "tasks",
    "ntasks-per-node": "tasks_per_node",
    "ntasks-per-core": "tasks_per_core",
    "ntasks-per-socket": "tasks_per_socket",
    "mincpus": "minimum_cpus_per_node",
    "core-spec": "core_specification",
    "thread-spec": "thread_specification",
}
MEMORY = {"mem": "memory_per_node", "mem-per-cpu": "memory_per_cpu", "mem-per-gpu": "memory_per_gpu"}
TIMES = {"time": "time_limit", "time-min": "time_minimum"}
FLAGS: Mapping[str, tuple[str, bool]] = {
    "requeue": ("requeue", True),
    "no-requeue": ("requeue", False),
    "oversubscribe": ("oversubscribe", True),
    "spread-job": ("spread_job", True),
    "use-min-nodes": ("minimum_nodes", True),
    "no-kill": ("no_kill", True),
}
OURS = ("hold", "export", "export-file", "begin")  # Rainbow has acted on them


def body_of(call: SbatchCall, version: int) -> dict[str, Any]:
    """Return the message that asks for what a call of sbatch asks for; NotCarriedError names what it cannot say.

    >>> body_of(SbatchCall(("--ntasks=2", "--time=90"), "#!/bin/sh\\n#SBATCH -p batch\\n", {"A": "b"}), 38)["job"]
    {'partition': 'batch', 'tasks': 2, 'time_limit': 90, 'environment': {'A': 'b'}}
    """
    options = [word for word in call.words if word.startswith("--")]
    rest = [word for word in call.words if not word.startswith("--")]
    result = read_call(call.script, [*options, *(rest or ["script"])], {}, "script")
    if len(result.components) > 1:
        raise NotCarriedError("a job of several components (hetjob) cannot be said to slurmrestd")
    if len(rest) > 1 and version < LISTS:  # slurmrestd 22.05 submits such a job, and crashes
        raise NotCarriedError("arguments of a script cannot be said to slurmrestd: put them into the script")
    job: dict[str, Any] = {}
    for name, value in result.options.items():
        job |= _field(name, value)
    if "nodes" in job and "tasks" not in job:  # as sbatch says itself
        job["tasks"] = read_range(result.options["nodes"])[0] * job.get("tasks_per_node", 1)
    environment: Any = dict(call.environment or {})
    if version >= LISTS:
        environment = [f"{name}={value}" for name, value in environment.items()]
    arguments = {"argv": ["script", *rest[1:]]} if len(rest) > 1 else {}
    return {"job": {**job, **arguments, "environment": environment}, "script": call.script}


def _field(name: str, value: str) -> dict[str, Any]:
    if name in OURS or (not value and name in OPTIONAL_TEXTS):
        return {}
    if name in TEXTS:
        return {TEXTS[name]: value}
    if name in FLAGS:
        field, is_so = FLAGS[name]
        return {field: is_so}
    if name == "exclusive":
        return {"exclusive": value or "exclusive"}
    if name == "nodes":
        least, most = read_range(value)  # slurmrestd 22.05 forgets a list, which its document asks for
        return {"nodes": f"{least}-{most}"}
    result = _number(name, value)
    if result is None:
        raise NotCarriedError(f"--{name} cannot be said to slurmrestd (--identity rest)")
    return result


def _number(name: str, value: str) -> dict[str, int] | None:
    if name in NUMBERS and value.removeprefix("-").isdecimal():
        return {NUMBERS[name]: int(value)}
    if name in MEMORY:
        return {MEMORY[name]: mebibytes(name, value)}
    if name in TIMES:
        return {TIMES[name]: -int(-seconds(value) // 60)}
    return None


class Rest:
    """Calls as an account, by HTTP."""

    def __init__(self, url: str, tokens: Path) -> None:
        _, _, number = url.rstrip("/").rpartition("v0.0.")
        if not number.isdecimal():
            raise ConfigError("RAINBOW_SLURM_REST must end with a version: http://127.0.0.1:6820/slurm/v0.0.38")
        self._lock = Lock()  # slurmrestd 22.05 drops connections of calls at the same time
        self._url, self._version, self._tokens = url.rstrip("/"), int(number), tokens

    def sbatch(self, call: SbatchCall, account: SiteAccount) -> str:
        """Submit a call; return the job's number."""
        answer = self._asked("POST", "/job/submit", account, body_of(call, self._version))
        return str(answer.get("job_id") or "")

    def ask(self, command: Sequence[str], account: SiteAccount) -> str:
        """Do what a command of Slurm's does."""
        if command[0] == "scancel" and "--state=PENDING" not in command:
            self._asked("DELETE", f"/job/{command[-1]}", account)
        if command[0] == "tail":  # of this account's own files we read what everybody may read
            return read_end(Path(command[-1]), int(command[2]), account.uid)
        return ""

    def _asked(self, method: str, path: str, account: SiteAccount, body: Any = None) -> dict[str, Any]:
        headers = {"X-SLURM-USER-NAME": account.name, "X-SLURM-USER-TOKEN": self._token(account)}
        try:
            with self._lock, httpx.Client(timeout=COMMAND_TIMEOUT, trust_env=False) as client:
                answer = client.request(method, self._url + path, headers=headers, json=body)
            reported = answer.json()
        except (httpx.HTTPError, ValueError) as fault:
            raise SilentError(f"slurmrestd has not answered: {type(fault).__name__}") from fault
        if reported.get("job_id"):  # with it comes what else is to be said, such as that the job is held
            return dict(reported)
        errors = [_words(one) for one in reported.get("errors") or ()]
        if errors or answer.is_error:
            raise subprocess.CalledProcessError(1, ("slurmrestd",), output="\n".join(errors) or answer.reason_phrase)
        return dict(reported)

    def _token(self, account: SiteAccount) -> str:
        path = self._tokens / account.name
        try:
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                raise NotCarriedError(f"the token of account {account.name} can be read by others: chmod 600 {path}")
            token = path.read_text().strip().removeprefix("SLURM_JWT=")
        except OSError:
            raise NotCarriedError(f"account {account.name} has no token for slurmrestd at this site") from None
        if (until := expires(token)) is not None and until <= time.time():
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(until))
            raise NotCarriedError(f"the token of account {account.name} for slurmrestd has expired at {when}")
        return token


def opened_rest(environment: Mapping[str, str]) -> Rest:
    """Return the interface that the variables name."""
    url, tokens = (environment.get(f"RAINBOW_SLURM_{name}", "") for name in ("REST", "TOKENS"))
    if not url or not tokens:
        raise ConfigError(
            "identity rest needs RAINBOW_SLURM_REST (where slurmrestd answers) and RAINBOW_SLURM_TOKENS"
        )
    return Rest(url, Path(tokens))


def _words(error: Mapping[str, Any]) -> str:
    return str(error.get("error") or error.get("description") or "no reason")[:300]


def expires(token: str) -> float | None:
    """Return when a token ends that is a JWT, None: it does not say. It is not checked: Slurm does that."""
    try:
        claims = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (LookupError, ValueError, TypeError):
        return None
