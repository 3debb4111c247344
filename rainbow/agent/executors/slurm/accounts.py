"""Whose jobs an agent's are: the site decides which of its accounts a requestor is.

self     the agent's own account, for its owner alone
service  the agent's own account, for every requestor; the comment says for whom
root     the requestor's account, which the agent, as root, becomes for every call
helper   the same by a program that root has allowed the agent to start (helper.py)
rest     the same by Slurm's REST interface, with a token of the account's (commands.py)

users.yaml says who is who: `users: {ann: anna, bob: {account: bob, slurm_account: physics, partitions: [batch]}}`,
and what sbatch is asked: `defaults: {qos: normal}`, `forbidden: [reservation, qos=high]`, `force: {wckey: rainbow}`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rainbow.errors import ConfigError
from rainbow.jobspec.sbatch.request import NotCarriedError, Options, site_options

IDENTITIES = ("self", "service", "root", "helper", "rest")
MAPPED = ("root", "helper", "rest")
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast: it reads for every job
LEAST = 1000  # user ids below are those of the system
PARTS = {"users", "defaults", "forbidden", "force"}
KEYS = {"account", "slurm_account", "partitions"}
OURS = {"array", "chdir", "comment", "export", "hold", "open-mode"}  # by which a job is found, or is whole
MEMORY = {"mem", "mem-per-cpu", "mem-per-gpu"}  # of which sbatch takes one


@dataclass(frozen=True, slots=True)
class SiteAccount:
    """An account of this machine, and what the site lets it ask for; no partitions: all."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str = "/bin/sh"
    slurm_account: str = ""
    partitions: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """Variables that are its own."""
        own = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}
        return {**own, "PATH": login_path()}

    def groups(self) -> list[int]:
        """Return all groups it is in."""
        return os.getgrouplist(self.name, self.gid)

    def cannot_read(self, path: Path) -> Path | None:
        """Return a file that it may not read, or the folder on its way that it may not enter."""
        groups = {self.gid, *self.groups()}
        for each in [step for way in (path, path.resolve()) for step in (*reversed(way.parents), way)]:
            try:
                said = each.stat()
            except OSError:
                return each
            shift = 6 if said.st_uid == self.uid else 3 if said.st_gid in groups else 0
            if not said.st_mode >> shift & (1 if stat.S_ISDIR(said.st_mode) else 4):
                return each
        return None

    def bounded(self, options: Options) -> Options:
        """Return options of sbatch as the site lets it ask for them; NotCarriedError for another partition."""
        result = {**options, **({"account": self.slurm_account} if self.slurm_account else {})}
        requirements = [name for name in result.get("partition", "").split(",") if name]
        if self.partitions and not requirements:
            result["partition"] = self.partitions[0]
        if self.partitions and (wrong := sorted(set(requirements) - set(self.partitions))):
            raise NotCarriedError(f"{self.name} may use {', '.join(self.partitions)} here, not {wrong[0]:.60}")
        return result


@dataclass(frozen=True, slots=True)
class SiteBounds:
    """Options of sbatch that a site adds, refuses (NAME or NAME=VALUE), and sets whatever a job asks for."""

    defaults: Mapping[str, str] = field(default_factory=dict)
    forbidden: tuple[str, ...] = ()
    force: Mapping[str, str] = field(default_factory=dict)

    def bounded(self, options: Options, script: Mapping[str, str]) -> Options:
        """Return options as the site lets them be; NotCarriedError for what it forbids, here or in the script."""
        said = {**script, **options}
        for name, value in said.items():
            wrong = {name, *(f"{name}={part}" for part in str(value).split(","))}.intersection(self.forbidden)
            if wrong and name not in self.force:
                raise NotCarriedError(f"this site forbids --{min(wrong)}")
        named = {*said, *(MEMORY if MEMORY.intersection(said) else ())}
        return {**{name: each for name, each in self.defaults.items() if name not in named}, **options, **self.force}


LOGINS = Path("/etc/login.defs")
PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"


def login_path() -> str:
    """Return the PATH that a login of a user begins with at this machine."""
    with contextlib.suppress(OSError):
        for line in LOGINS.read_text().splitlines():
            name, _, path = line.strip().partition("ENV_PATH")
            if not name and path.strip():
                return path.strip().removeprefix("PATH=")
    return PLAIN_PATH


def read_bounds(path: Path) -> SiteBounds:
    """Read the bounds in users.yaml; ConfigError says what is wrong with them."""
    answer = _read(path)
    forbidden = answer.get("forbidden") or ()
    try:
        defaults, force = (site_options(dict(answer.get(key) or {})) for key in ("defaults", "force"))
        if isinstance(forbidden, str | Mapping):
            raise TypeError("forbidden must be a list of NAME or NAME=VALUE")
        if stored := sorted(OURS.intersection({*defaults, *force, *forbidden})):
            raise NotCarriedError(f"--{stored[0]} is set by Rainbow")
    except (NotCarriedError, TypeError, ValueError) as fault:
        raise ConfigError(f"{path}: {fault}") from None
    return SiteBounds(defaults, tuple(map(str, forbidden)), force)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        answer = yaml.load(path.read_text(), LOADER)  # noqa: S506 (a safe one)
    except (OSError, yaml.YAMLError) as fault:
        raise ConfigError(f"{path} cannot be read: {fault}") from fault
    if not isinstance(answer, Mapping):
        return {}
    if wrong := sorted(map(str, set(answer) - PARTS)):
        raise ConfigError(f"{path} has no key {wrong[0]:.60}; it may have {', '.join(sorted(PARTS))}")
    return answer


def read_users(path: Path) -> dict[str, dict[str, Any]]:
    """Read users.yaml; ConfigError says what is wrong with it."""
    users = _read(path).get("users")
    if not isinstance(users, Mapping):
        raise ConfigError(f"{path} must have users: {{REQUESTOR: ACCOUNT}}")
    results = {str(who): {"account": one} if isinstance(one, str) else one for who, one in users.items()}
    for who, one in results.items():
        if not isinstance(one, Mapping) or not isinstance(one.get("account"), str) or set(one) - KEYS:
            raise ConfigError(f"{path}: {who:.60} must be an account, or have {', '.join(sorted(KEYS))}")
    return {who: dict(one) for who, one in results.items()}


def account_of(users: Mapping[str, Mapping[str, Any]], requestor: str) -> SiteAccount:
    """Return the account of a requestor; NotCarriedError if the site gives it none."""
    entry = users.get(requestor)
    if entry is None:
        raise NotCarriedError(f"requestor {requestor or '?':.60} has no account at this site (users.yaml)")
    try:
        result = pwd.getpwnam(entry["account"])
    except KeyError:
        raise NotCarriedError(f"account {entry['account']:.60} does not exist at this site") from None
    if result.pw_uid < LEAST or result.pw_gid == 0:
        raise NotCarriedError(f"account {result.pw_name} belongs to the system and runs no jobs")
    request = entry.get("partitions") or ()
    partitions = tuple(map(str, [request] if isinstance(request, str) else request))
    own = (result.pw_name, result.pw_uid, result.pw_gid, result.pw_dir, result.pw_shell or "/bin/sh")
    return SiteAccount(*own, str(entry.get("slurm_account") or ""), partitions)


class Identity:
    """How an agent finds the account of a requestor."""

    def __init__(self, how: str = "service", users: Path | None = None) -> None:
        if how not in IDENTITIES:
            raise ConfigError(f"identity must be one of {', '.join(IDENTITIES)}, got {how:.40}")
        if how in MAPPED and users is None:
            raise ConfigError(f"identity {how} needs a file that says who is who; add --users FILE")
        if how == "root" and os.getuid():
            raise ConfigError("identity root needs an agent that runs as root; use self, service, helper or rest")
        self.how, self._users = how, users
        self.own = pwd.getpwuid(os.getuid()).pw_name
        self._known(users)
        self.bounds()

    @property
    def is_mapped(self) -> bool:
        """Whether jobs belong to other accounts than the agent's."""
        return self.how in MAPPED

    def bounds(self) -> SiteBounds:
        """Return what the site lets jobs ask for, as its file says now."""
        return read_bounds(self._users) if self._users else SiteBounds()

    def _known(self, users: Path | None) -> dict[str, dict[str, Any]]:
        return read_users(users) if users else {}

    def account(self, requestor: str) -> SiteAccount | None:
        """Return the account of a requestor, None: the agent's own; NotCarriedError if it has none here.

        The file is read again for every job, so that who leaves the site can be taken out at any time.
        """
        if self.how in MAPPED:
            return account_of(self._known(self._users), requestor)
        if (
            self.how == "self"
            and self._known(self._users).get(requestor, {"account": requestor})["account"] != self.own
        ):
            text = f"this agent takes the jobs of {self.own} alone (--identity self), not of {requestor or '?':.60}"
            raise NotCarriedError(text)
        return None

    @property
    def warning(self) -> str:
        """What an operator should know of it at start; empty: nothing."""
        if self.how == "service":
            return f"all jobs run as {self.own}: Slurm's fair share and records see one user (--identity service)"
        if self.how == "root":
            return "who takes the server takes every account of users.yaml here (--identity root)"
        if self.how == "rest":
            return "who takes the server takes every account whose token is here, until it expires (--identity rest)"
        return ""
