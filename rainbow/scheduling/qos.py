"""Qualities of service and limits of running cores, as a policy's host knows them.

    qos      a named bundle: priority, limits, exemptions, who may use it, and which others it may preempt and how
    limit    so many running cores at most, of an account with all below it, of a quality of service, or of each user
             of one of them; on one cluster or over all

Jobs that name no quality of service have the one named `default`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rainbow.accounts.budget import GUARANTEED, read_limits
from rainbow.cache import cached_property
from rainbow.errors import PolicyError, RequestError
from rainbow.jobspec.request import HIGHEST, LOWEST
from rainbow.scheduling.settings_schema import Check, Fields, filled, integer, listed, number, one_of, record

DEFAULT = "default"
REQUEUE, CANCEL = "requeue", "cancel"
PREEMPTION, LIMITS, BUDGETS = "preemption", "limits", "budgets"
SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2", "CONT", "URG")
RUNNING, USER_RUNNING = "running_cores", "user_running_cores"
LONGEST_GRACE = 86_400.0


def _limits(value: Any, pointer: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise PolicyError("limits must be a mapping", pointer=pointer)
    try:
        return read_limits(value, pointer)
    except RequestError as fault:
        raise PolicyError(fault.message, pointer=fault.pointer) from None


NAMES: Check = listed(filled)
SCHEMA: Fields = {
    "priority": (0, integer(LOWEST, HIGHEST)),  # added to that of its jobs
    "users": ([], NAMES),  # who may use it; with neither users nor accounts everybody
    "accounts": ([], NAMES),
    "limits": ({}, _limits),
    "exempt": ([], listed(one_of(PREEMPTION, LIMITS, BUDGETS))),
    "exempt_seconds": (0, number()),  # after its start in which a task is not preempted
    "preempts": ([], NAMES),
    "how": (REQUEUE, one_of(REQUEUE, CANCEL)),
    "signal": ("TERM", one_of(*SIGNALS)),  # what preempted tasks get first
    "grace": (30, number(0.0, LONGEST_GRACE)),  # seconds from the signal until they are ended
}


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service, checked; see SCHEMA."""

    name: str
    priority: int = 0
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)
    exempt: tuple[str, ...] = ()
    exempt_seconds: float = 0.0
    preempts: tuple[str, ...] = ()
    how: str = REQUEUE
    signal: str = "TERM"
    grace: float = 30.0

    def admits(self, user: str, account: str) -> bool:
        """Return whether a user's job of an account may have it."""
        return not (self.users or self.accounts) or user in self.users or account in self.accounts


def check_qos(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a quality of service with every default; PolicyError names the first fault."""
    return record(SCHEMA, owner="a quality of service")(options, "")


def read_qos(name: str, options: Mapping[str, Any]) -> Qos:
    """Read settings.

    >>> read_qos("urgent", {"priority": 100, "preempts": ["default"]}).preempts
    ('default',)
    """
    checked: dict[str, Any] = check_qos(options)
    values: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in checked.items()}
    return Qos(name, **values)


class Limit(NamedTuple):
    """A limit of running cores; `user`: of each user, and this one; `cluster`: there, else over all."""

    kind: str
    name: str
    user: str
    cluster: str
    most: float

    def __str__(self) -> str:
        whose, cores = f"{self.kind} {self.name}", "1 core" if self.most == 1 else f"{self.most:g} cores"
        where = f" on {self.cluster}" if self.cluster else " over all clusters"
        return (f"user {self.user} of {whose}" if self.user else whose) + f" may run {cores}{where}"


Owner = tuple[str, str, str]  # account, user, quality of service


@dataclass(frozen=True)
class Rules:
    """What holds on one cluster. `lines`: each account's name and limits with those above it.

    `parents`: of those with a guarantee. `elsewhere`: the cores that run on other clusters under each limit over all.
    """

    cluster: str = ""
    qos: Mapping[str, Qos] = field(default_factory=dict)
    lines: Mapping[str, tuple[tuple[str, Mapping[str, Any]], ...]] = field(default_factory=dict)
    elsewhere: Mapping[Limit, float] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    _known: dict[Owner, tuple[Limit, ...]] = field(default_factory=dict, compare=False, repr=False)

    def of(self, name: str) -> Qos:
        """Return a quality of service; one that is not defined has no rights."""
        return self.qos.get(name or DEFAULT) or Qos(name or DEFAULT)

    def limits(self, owner: Owner) -> tuple[Limit, ...]:
        """Return the limits that a job is under."""
        if owner not in self._known:
            self._known[owner] = tuple(self._limits(*owner))
        return self._known[owner]

    def guarantee(self, owner: Owner) -> Limit | None:
        """Return what the nearest account above a job is guaranteed; what siblings run beyond theirs they borrow."""
        line = self.lines.get(owner[0], ()) if self.parents else ()
        result = next(((name, own[GUARANTEED]) for name, own in line if GUARANTEED in own), None)
        return Limit("guarantee", result[0], "", "", float(result[1])) if result else None

    def counted(self, owner: Owner) -> tuple[Limit, ...]:
        """Return all that a job's cores are counted under."""
        own = self.guarantee(owner)
        return (*self.limits(owner), own) if own else self.limits(owner)

    def are_siblings(self, one: Limit, other: Limit) -> bool:
        """Return whether two guarantees are of accounts that lend each other what they do not use."""
        return one != other and self.parents[one.name] == self.parents[other.name]

    def _limits(self, account: str, user: str, name: str) -> Iterator[Limit]:
        qos = self.of(name)
        line = () if LIMITS in qos.exempt else self.lines.get(account, ())
        for kind, whose, options in (*(("account", *one) for one in line), ("qos", qos.name, qos.limits)):
            for where in ("", self.cluster):
                own = options.get("clusters", {}).get(where, {}) if where else options
                for key, of_user in ((RUNNING, ""), (USER_RUNNING, user)):
                    if key in own:
                        yield Limit(kind, whose, of_user, where, float(own[key]))

    @cached_property
    def has_preemption(self) -> bool:
        """Whether any quality of service may preempt another."""
        return any(one.preempts for one in self.qos.values())

    @cached_property
    def has_limits(self) -> bool:
        """Whether there is any limit of running cores."""
        inputs = [own for line in self.lines.values() for _, own in line] + [one.limits for one in self.qos.values()]
        return any(_has(own) or any(map(_has, own.get("clusters", {}).values())) for own in inputs)

    @cached_property
    def has_shared_limits(self) -> bool:
        """Whether a limit of running cores counts over all clusters."""
        inputs = [own for line in self.lines.values() for _, own in line] + [one.limits for one in self.qos.values()]
        return bool(self.parents) or any(map(_has, inputs))


def _has(limits: Mapping[str, Any]) -> bool:
    return RUNNING in limits or USER_RUNNING in limits
