"""The world of one epoch: nodepools, machines, jobs and shares.

It is built again for every plan from the view (world.py), so that errors do not accumulate, and thrown away after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rainbow.scheduling.fair_share.settings import ClassSettings, Settings
from rainbow.scheduling.fair_share.share_tables import Tables
from rainbow.scheduling.interface import Wait
from rainbow.scheduling.snapshot import GangView

if TYPE_CHECKING:
    from rainbow.matching import Take


CLUSTER = ""  # placements name what lies outside every worker under it


@dataclass(frozen=True, slots=True)
class JobWork:
    """What is known of a job's work; times in milliseconds."""

    most: int  # shares it may ever hold; -1: those it holds now
    items_left: int
    threads: int = 1
    time_per_item: float = 0.0  # 0: unknown
    initialising: bool = False  # none of its shares is ready yet
    init_times: tuple[float, ...] = ()  # of the shares that are ready
    completed: bool = False


Amounts = Mapping[str, int]
KEPT_FOR_ONE_JOB = "kept"  # why a machine is closed that one job is to have


@dataclass(slots=True, eq=False)
class Share:
    """One nshare that is held, until its end is confirmed; `leaving`: it was told to stop."""

    id: str
    job: Job
    machine: Machine
    order: int
    tasks: tuple[str, ...]
    started: float
    initialised: bool = True
    initialising: float = 0.0
    investment: float = 0.0
    leaving: bool = False
    evicted: str = ""  # why it is told to stop in this epoch
    pinned: bool = False  # part of something that is not one share: its space is booked, and that is all

    @property
    def preemptable(self) -> bool:
        """Whether it may be taken away for another job."""
        return self.job.cls.fair and not self.pinned

    def evict(self, why: str) -> None:
        """Tell it to stop; its space stays booked until its end is confirmed, and that is never taken back."""
        self.leaving, self.evicted = True, why
        self.machine.leaving += self.order

    def stay(self) -> None:
        """Take back what this epoch decided of it, before an agent has heard of it."""
        self.leaving, self.evicted = False, ""
        self.machine.leaving -= self.order


@dataclass(slots=True, eq=False)
class Machine:
    """One worker. `open`: new work may be placed on it; `used`: qshares of all its shares, leaving ones too."""

    id: str
    kind: str
    order: int
    memory: int
    pool: Pool
    open: bool
    left: dict[str, int] = field(default_factory=dict)  # amounts free, by type
    shares: list[Share] = field(default_factory=list)
    used: int = 0
    claimed: int = 0  # qshares kept for jobs that need them
    services: set[str] = field(default_factory=set)  # with an instance here, one that only starts now included
    leaving: int = 0  # qshares of shares that were told to stop
    why_closed: str = ""

    def quanta(self, amounts: Amounts) -> int:
        """Qshares of what is not one share, by the type of which it takes the largest part of what is left."""
        parts = (-(-amount * self.free // self.left[kind]) for kind, amount in amounts.items() if self.left.get(kind))
        return max(parts, default=0)

    @property
    def usable(self) -> bool:
        """Whether it takes new work, or will when the one it is kept for has started."""
        return self.open or self.why_closed == KEPT_FOR_ONE_JOB

    @property
    def free(self) -> int:
        """Qshares nothing holds."""
        return max(0, self.order - self.used)

    @property
    def eventual(self) -> int:
        """Qshares that will be free, and are promised to nobody, when all that is leaving has left."""
        return self.order - self.used + self.leaving - self.claimed

    @property
    def unclaimed(self) -> int:
        """Qshares nothing holds and nobody has been promised."""
        return max(0, self.free - self.claimed)


@dataclass(slots=True, eq=False)
class Pool:
    """One nodepool; children are in search order."""

    name: str
    parent: Pool | None = None
    depth: int = 0
    quantum: int = 1
    children: list[Pool] = field(default_factory=list)
    machines: list[Machine] = field(default_factory=list)
    tables: Tables = field(default_factory=lambda: Tables([0], [0]))

    def subtree(self) -> Iterator[Pool]:
        """Yield the pool, then its children's subtrees in search order."""
        yield self
        for child in self.children:
            yield from child.subtree()

    @property
    def top(self) -> Pool:
        """The top-level pool it belongs to."""
        return self.parent.top if self.parent else self


@dataclass(slots=True, eq=False)
class Job:
    """One job. Counts are nshares of its order.

    held      shares it holds, those that are leaving not counted
    cap       shares it could use now; `wanted` is no more than it may start and its machines could ever hold
    counted   shares How Much gives it
    deserved  shares it would be owed without caps and without what others leave (pure fair share)
    """

    id: str
    name: str  # the job it is, or is a part of
    user: str
    cls: ClassSettings
    pool: Pool
    order: int
    submitted: float
    load: JobWork
    elastic: bool
    ready: bool = False  # it has initialised, as far as anybody said
    least: int = 0
    asked: int = 0  # the amount of the quantum's type that one share asks for
    service: str = ""
    amounts: dict[str, Amounts] = field(default_factory=dict)  # by kind of machine that can host a share
    gangs: list[GangView] = field(default_factory=list)  # what may start, in order: a share each
    shares: list[Share] = field(default_factory=list)
    cap: int = 0
    wanted: int = 0
    counted: int = 0
    deserved: int = 0
    limit: str = ""  # what holds its cap
    reason: str = ""  # why it is not given what it wants
    facts: dict[str, object] = field(default_factory=dict)
    starts: list[Machine] = field(default_factory=list)
    promised: list[Machine] = field(default_factory=list)  # machines a reservation will have
    claims: dict[Machine, int] = field(default_factory=dict)  # shares kept for it there
    spread: list[tuple[GangView, Take]] = field(default_factory=list)  # what starts now on several machines

    @property
    def staying(self) -> list[Share]:
        """Shares that are not leaving."""
        return [share for share in self.shares if not share.leaving]

    @property
    def held(self) -> int:
        """How many shares it will hold when all orders of this epoch are carried out."""
        return sum(not share.leaving for share in self.shares) + len(self.starts)

    @property
    def need(self) -> int:
        """How many shares it lacks of what it is counted."""
        return max(0, self.counted - self.held)

    @property
    def startable(self) -> int:
        """How many shares it lacks and could start now: what is leaving must have left before it starts again."""
        return min(self.need, len(self.gangs) - len(self.starts))

    @property
    def settled(self) -> int:
        """How many of its shares are where nothing new may be placed: they stay, and no table has room for them."""
        there = sum(not share.leaving and (share.pinned or not share.machine.open) for share in self.shares)
        return min(there, self.wanted)

    @property
    def rank(self) -> tuple[float, str]:
        """Its place among the jobs of its class."""
        return self.submitted, self.id

    def reach(self) -> Iterator[Pool]:
        """Yield the pools its shares may be in: what can be preempted may go down the tree, the rest may not."""
        if self.cls.fair:
            yield from self.pool.subtree()
        else:
            yield self.pool

    def fragmented(self, why: Wait | None) -> None:
        """Note that amounts are large enough for a share, which does not fit."""
        if why is not None:
            self.reason, self.facts = why.reason, {**why.facts, "said": why.text}

    def room(self, machine: Machine, quanta: int) -> int:
        """How many of its shares fit into so many quanta of a machine, and into what else is left there."""
        amounts = self.amounts.get(machine.kind)
        if amounts is None:
            return 0
        most = quanta // self.order
        for kind, amount in amounts.items():
            if amount:
                most = min(most, machine.left.get(kind, 0) // amount)
        return most


@dataclass(slots=True, eq=False)
class World:
    """Everything one plan is made from."""

    settings: Settings
    tops: list[Pool]
    machines: list[Machine]  # by id
    jobs: list[Job]  # in order of submission, then id
    wide: list[Job] = field(default_factory=list)  # whose gangs need several machines each
    limbo: list[Job] = field(default_factory=list)  # what runs where its class may not, or has no class any more

    @property
    def longest(self) -> int:
        """The largest order of any machine: nothing larger can be counted."""
        return max((machine.order for machine in self.machines), default=0)

    def trees(self) -> Iterator[World]:
        """Yield every top-level nodepool with what is in it as a world of its own."""
        for top in self.tops:
            machines = [machine for machine in self.machines if machine.pool.top is top]
            jobs, wide = ([job for job in some if job.pool.top is top] for some in (self.jobs, self.wide))
            yield World(self.settings, [top], machines, jobs, wide)

    def priorities(self, top: Pool) -> Iterator[list[Job]]:
        """Yield the jobs of a tree by priority of their class, best first."""
        groups: dict[int, list[Job]] = {}
        for job in self.jobs:
            if job.pool.top is top:
                groups.setdefault(job.cls.priority, []).append(job)
        for priority in sorted(groups):
            yield groups[priority]
