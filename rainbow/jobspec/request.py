"""The normal form: every dialect of jobspec is read into it.

Request ── variants ── a forest of Resource trees (any one variant will do; the first that matches is taken)
       │                       └── slots are resources of type "slot", with a label
       ├─ tasks ── TaskSpec, each naming the slots it runs in
       └─ attributes, constraint, parameters, warnings

Nothing behind the door knows which dialect a job came in.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain, count
from typing import Any

from rainbow.cache import cached_property

SLOT = "slot"
CONTAINMENT = "containment"  # the dominant graph, whose vertices have fields of their own
PROPERTIES = "node properties"  # of the worker that a vertex lies in, asked as if they were a subsystem
LOWEST, HIGHEST = -1023, 1024  # priority, as in POSIX
_numbers = count(1)
OF_ITS_OWN = "\0"  # the service of a job that gives it no name; no name can be this


def _numbered() -> Any:
    """Declare a number that no other object of this process has or will have; a memory is keyed by it.

    It is no part of what the object says: equality, copies and pickles leave it out, and `replace` gives a new one.
    """
    return field(default_factory=partial(next, _numbers), init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers in ascending order. They are kept as spans: a short text may name many."""

    spans: tuple[range, ...] = ()

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.spans)

    def __len__(self) -> int:
        return sum(map(len, self.spans))

    def place(self, number: int) -> int | None:
        """Return the place of a number among them, from 0; None if it is none of them.

        >>> Numbers((range(1, 3), range(8, 12, 2))).place(10)
        3
        """
        before = 0
        for span in self.spans:
            if number in span:
                return before + span.index(number)
            before += len(span)
        return None


@dataclass(frozen=True, slots=True)
class Count:
    """How many are wanted: `min`, or min, min+operand, ... up to `max` (RFC 14). `max` None has no upper bound.

    Operators: "+" adds the operand, "*" multiplies by it, "^" raises to it. `listed` holds the
    admissible counts where the jobspec lists them (RFC 14's "4,9,16,25"). Matching satisfies `min`.
    """

    min: int = 1
    max: int | None = 1
    operator: str = "+"
    operand: int = 1
    listed: Numbers = Numbers()


@dataclass(frozen=True, slots=True)
class Condition:
    """One question to a subsystem vertex, answered by the matcher called `matcher` ("match", "range", ...).

    `options` are the matcher's own: match has {"field", "value"}, range {"field", "min"?, "max"?},
    flat {"field", "value"} (met also by a vertex whose type is the text "field=value").
    """

    matcher: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Need:
    """Wants one vertex of a subsystem that meets every condition."""

    subsystem: str
    conditions: tuple[Condition, ...]
    number: int = _numbered()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle everything but the number."""
        return Need, (self.subsystem, self.conditions)


@dataclass(frozen=True, slots=True)
class Constraint:
    """An RFC 31 constraint on workers: `operator` over `values` (texts) or, for and, or, not, over `operands`."""

    operator: str  # properties, hostlist, ranks, at_least, counts, same, and, or, not
    values: tuple[str, ...] = ()
    operands: tuple[Constraint, ...] = ()


@dataclass(frozen=True, slots=True)
class Dependency:
    """A condition on another job (or the clock) that must hold first, as in RFC 26.

    `value` is a job's id for after, afterany, afterok and afternotok, seconds since 1970 for begin-time, and a name
    for string and fluid, which alone have `type` (in, out, inout) and `scope` (user, global).
    """

    scheme: str
    value: str
    type: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Elastic:
    """A job whose slots are shares that may come and go: from `min` to `max` of them, each with so many threads."""

    min: int = 1
    max: int = 1
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Array:
    """The ids of a job array's elements, and how many of them run at once (0: as many as there is room for)."""

    ids: Numbers
    at_once: int = 0


@dataclass(frozen=True, slots=True)
class Resource:
    """One request: `count` units of `type` (below the request above it), each holding its children.

    total    of slots: how many there are on all vertices of the request above together, at least one on each
    at_most  of slots: how many may lie on one vertex of a type, as ((type, how many), ...)
    within   "job": the vertices chosen for the request beside it have these together, at least one each
    same     a field that has one value on all vertices taken on one worker
    cpus     the units are hardware threads of cores
    shared   `exclusive: false` is written: Fluxion refuses that below what is exclusive
    """

    type: str
    count: Count = Count()
    unit: str = ""
    exclusive: bool = False
    label: str = ""
    needs: tuple[Need, ...] = ()
    children: tuple[Resource, ...] = ()
    total: bool = False
    at_most: tuple[tuple[str, int], ...] = ()
    within: str = ""
    same: str = ""
    cpus: bool = False
    shared: bool = False
    place: int = field(default=-1, compare=False, repr=False)  # among all of a variant, depth first; -1: not counted
    scale: int = field(
        default=1, compare=False, repr=False
    )  # of a count in base units: how many are a unit asked for
    number: int = _numbered()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle everything but the numbers."""
        own = (self.type, self.count, self.unit, self.exclusive, self.label, self.needs, self.children)
        return Resource, (*own, self.total, self.at_most, self.within, self.same, self.cpus, self.shared)

    @property
    def is_spread(self) -> bool:
        """Return whether it says something that only the vertices of one cluster decide (matching/site)."""
        return bool(self.total or self.at_most or self.within or self.same or self.cpus)

    @property
    def is_slot(self) -> bool:
        """Return whether this is a slot: no vertex of its own, a place where tasks run."""
        return self.type == SLOT

    def walk(self) -> Iterator[Resource]:
        """Yield this request and all below it, parents first."""
        stack = [self]
        while stack:
            resource = stack.pop()
            yield resource
            stack.extend(reversed(resource.children))


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """The command: argv over the slots of any one of `slots` (labels), `per_slot` or `total` processes."""

    name: str
    command: tuple[str, ...]
    slots: tuple[str, ...] = ()  # alternatives, in order of preference; none: the whole match
    per_slot: int = 1
    total: int | None = None
    per_resource: tuple[str, int] | None = None  # (type, count): RFC 14's third way to count
    replicas: int = 1  # independent copies
    group: str = ""  # entries of one group start together
    depends_on: tuple[str, ...] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """A jobspec in normal form. Times in seconds; `together`: entries without a group start as one gang."""

    variants: tuple[tuple[Resource, ...], ...]
    tasks: tuple[TaskSpec, ...]
    together: bool = True
    name: str = ""
    dialect: str = "rfc14"  # shown to people; nothing decides by it
    duration: float = 0.0  # 0: no limit asked for
    cwd: str = ""
    submitted_from: str = ""  # the working directory where there is no cwd, and the cluster has such a folder
    environment: Mapping[str, str | None] = field(default_factory=dict)
    constraint: Constraint | None = None
    dependencies: tuple[Dependency, ...] = ()  # on other jobs; TaskSpec.depends_on is on tasks of this one
    elastic: Elastic | None = None
    job_class: str = ""  # the class it is submitted to, where a policy has classes of jobs; "": the default one
    service: str = ""  # the service whose instances its slots are; "": it is none
    script: str = ""  # text; the command of the only task is then its name and its arguments
    queues: tuple[str, ...] = ()  # any one of them; none: the default one of each cluster
    licenses: Mapping[str, int] = field(default_factory=dict)
    clusters: tuple[str, ...] = ()  # only these; none: any
    shortest: float = 0.0  # the least duration that will do; 0: `duration`
    account: str = ""  # that a site charges; "": its default
    qos: str = ""  # a site's quality of service
    reservation: str = ""  # of a site
    settled: bool = False  # what it says of sites is said in plain words for one cluster
    array: Array | None = None  # the copies of the only task are its elements
    held: bool = False  # it waits until it is resumed
    parameters: Mapping[str, Any] = field(default_factory=dict)  # for selection: attributes.parameter.*
    attributes: Mapping[str, Any] = field(default_factory=dict)  # as given
    warnings: tuple[str, ...] = ()
    unfit: tuple[tuple[str, str], ...] = ()  # why it can be matched and not run: pointer, what is wrong
    document: Any = field(default=None, compare=False, repr=False)  # what it was read from: text or a mapping
    number: int = _numbered()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle everything but the number."""
        return partial(Request, **{each.name: getattr(self, each.name) for each in fields(self) if each.init}), ()

    @cached_property
    def key(self) -> bytes:
        """Equal for requests that every cluster answers alike."""
        return pickle.dumps((self.variants, self.constraint), pickle.HIGHEST_PROTOCOL)

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """Values computed from a request once for many clusters."""
        return {}

    @cached_property
    def site_key(self) -> bytes:
        """Equal for requests that every cluster of every site answers alike."""
        of_site = (
            self.settled,
            self.queues,
            dict(self.licenses),
            self.clusters,
            self.account,
            self.qos,
            self.reservation,
        )
        return pickle.dumps((self.key, *of_site, self.shortest or self.duration), pickle.HIGHEST_PROTOCOL)

    @cached_property
    def is_spread(self) -> bool:
        """Return whether some part of it is decided by the vertices of one cluster."""
        return any(part.is_spread for forest in self.variants for tree in forest for part in tree.walk())

    @property
    def resources(self) -> tuple[Resource, ...]:
        """The preferred variant."""
        return self.variants[0]
