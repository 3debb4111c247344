"""Verdicts with their reasons and what they take, and the interface of a backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rainbow.cache import cached_property
from rainbow.certificate.document import Certificate, Row
from rainbow.jobspec.quantities import in_words
from rainbow.text import data_frame, html_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import networkx as nx
    import pandas

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request


MOST_ALTERNATIVES = 3  # variants of a request that a refusal tells of


class Why(StrEnum):
    """The fixed list of reasons a cluster is refused for."""

    TYPE_MISSING = "type-missing"  # the cluster has none of a type
    TOTAL_TOO_SMALL = "total-too-small"  # it has too little of a type in all
    VERTEX_TOO_SMALL = "vertex-too-small"  # no vertex (or not enough of them) is large enough
    NEED_UNMET = "need-unmet"  # no located vertex has what a subsystem must offer
    CONSTRAINT_UNMET = "constraint-unmet"  # too few workers pass the constraint
    SIBLINGS_COLLIDE = "siblings-collide"  # each part would fit alone, not all together
    SITE_REFUSES = "site-refuses"  # its resource manager says that it would not take the job
    QUEUE_UNMET = "queue-unmet"  # no queue of the site takes the job: name, state, limits, access
    LICENSE_UNMET = "license-unmet"  # the site has too few of a license
    NOT_AMONG = "not-among"  # the job names the clusters that may have it, and this is none of them
    WORD_UNKNOWN = "word-unknown"  # it would match, if the graph had a word for something that is asked
    UNDECIDED = "undecided"  # the budget ended first: neither yes nor no


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a cluster does not match: `wanted` and `found` at the nearest miss, in units of `subject`."""

    why: Why
    text: str  # for people, one line
    subject: str = ""  # the type, subsystem or constraint it is about
    wanted: int | None = None
    found: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Take:
    """What one copy of the job would hold.

    placed    for every slot, in order: (label, {worker: {type: amount}})
    vertices  {vertex: amount}, every vertex of which something is held, whole subtrees by their top
    rows      the same request by request, for the variant that is met: its certificate

    Amounts are whole numbers of base units (bytes of memory in any unit of bytes); see rainbow.matching.measures.
    """

    placed: tuple[tuple[str, Mapping[str, Mapping[str, int]]], ...]
    vertices: Mapping[str, int]
    rows: tuple[Row, ...] = ()
    variant: int = 0

    def certificate(self, graph: int | None = None) -> Certificate:
        """What proves it; `graph` is the revision of the cluster's graph."""
        return Certificate(self.variant, self.rows, graph)

    @cached_property
    def by_worker(self) -> Mapping[str, Mapping[str, int]]:
        """All that is held of each worker; what lies outside every worker is left out."""
        result: dict[str, dict[str, int]] = {}
        for _, held in self.placed:
            for worker, amounts in held.items():
                if worker:
                    there = result.setdefault(worker, {})
                    for kind, amount in amounts.items():
                        there[kind] = there.get(kind, 0) + amount
        return result


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verdict says beyond yes or no.

    fits      how many copies are taken one after another, each as low as can be (`exact`), or at least so many
    totals    of one copy: nodes, cores, gpus, memory, and every other type by its name, in base units
    units     the base units of totals that have one: {"memory": "B"}
    """

    fits: int = 0
    exact: bool = True
    totals: Mapping[str, int] = field(default_factory=dict)
    take: Take | None = None
    reason: Reason | None = None
    units: Mapping[str, str] = field(default_factory=dict)


MATCHED = {True: "matches", False: "does not match", None: "undecided"}


class Verdict:
    """One cluster's answer. `matched`: True, False, or None (undecided); all else is worked out when looked at."""

    __slots__ = (
        "_answer",
        "_later",
        "_of",
        "_take",
        "_take_later",
        "cluster",
        "matched",
        "presumed",
        "queue",
        "unknown",
    )

    def __init__(
        self,
        cluster: str,
        matched: bool | None,
        fits: int = 0,
        exact: bool = True,
        totals: Mapping[str, int] | None = None,
        take: Take | None = None,
        reason: Reason | None = None,
        later: Callable[[], Answer] | None = None,
        take_later: Callable[[], Take | None] | None = None,
        units: Mapping[str, str] | None = None,
        queue: str = "",
    ) -> None:
        self.cluster = cluster
        self.queue = queue  # of the site, that the job would be in
        self.presumed: Verdict | None = None  # the yes of an undecided one, if the words that it lacks are met
        self.unknown: tuple[str, ...] = ()  # what a presumed yes does not know
        self.matched = matched
        self._later = later
        self._answer = None if later else Answer(fits, exact, totals or {}, take, reason, units or {})
        self._take: Take | None = None
        self._take_later = take_later
        self._of: Cluster | None = None

    def of(self, cluster: Cluster) -> Verdict:
        """Return the same verdict, able to show the cluster it is about."""
        site = cluster.site
        default = site.default if site and self.matched and site.default in (site.queues or {}) else ""
        shown = Verdict(
            self.cluster,
            self.matched,
            later=lambda: self.answer,
            take_later=lambda: self.take,
            queue=self.queue or default,
        )
        shown._of = cluster
        shown.presumed, shown.unknown = self.presumed, self.unknown
        return shown

    @property
    def has_graph(self) -> bool:
        """Return whether the cluster's graph is known here: not of a verdict that was read from a record."""
        return self._of is not None

    def to_networkx(self) -> nx.DiGraph[str]:
        """Return the cluster's graph, each vertex with `chosen`, `taken` (base units) and `slots` (labels of slots).

        A vertex that is taken whole is chosen with all that it contains. Without a match nothing is chosen.
        """
        import networkx as nx

        if self._of is None:
            raise ValueError(
                f"this verdict does not know the graph of {self.cluster}; rainbow.match gives one that does"
            )
        graph, take = self._of.graph.copy(), self.take or Take((), {})
        whole = {below for vertex in take.vertices for below in nx.descendants(graph, vertex)}
        slots: dict[str, list[str]] = {}
        for label, held in take.placed:
            for worker in held:
                slots.setdefault(self._of.workers.get(worker, ""), []).append(label)
        for vertex, fields in graph.nodes(data=True):
            chosen = vertex in take.vertices or vertex in whole
            fields |= {"chosen": chosen, "taken": take.vertices.get(vertex, 0), "slots": slots.get(vertex, [])}
        return graph

    @property
    def answer(self) -> Answer:
        """All that is said beyond yes or no."""
        if self._answer is None and self._later:
            self._answer = self._later()
        return self._answer or Answer()

    @property
    def fits(self) -> int:
        """How many copies are taken one after another, the lowest first; if not `exact`, at least that many."""
        return self.answer.fits

    @property
    def exact(self) -> bool:
        """Return whether no more than `fits` copies are held."""
        return self.answer.exact

    @property
    def totals(self) -> Mapping[str, int]:
        """What one copy takes in all: nodes, cores, gpus, memory, and every other type by its name, in base units."""
        return self.answer.totals

    @property
    def units(self) -> Mapping[str, str]:
        """The base units of totals that have one: {"memory": "B"}."""
        return self.answer.units

    @property
    def take(self) -> Take | None:
        """What one copy would hold."""
        if self._take_later:
            self._take, self._take_later = self._take_later(), None
        return self._take or self.answer.take

    @property
    def switches(self) -> int | None:
        """How many leaf switches one copy's workers are below; None if one is below none, or the graph is unknown."""
        placed = self.take.placed if self._of and self.take else ()
        above = {self._of.switches.get(worker) for _, held in placed for worker in held} if self._of else set()
        return None if None in above else len(above) or None

    @property
    def reason(self) -> Reason | None:
        """Why not."""
        return self.answer.reason

    def __eq__(self, other: object) -> bool:
        """Verdicts that say the same are equal."""
        if not isinstance(other, Verdict):
            return NotImplemented
        return (self.cluster, self.matched, self._said) == (other.cluster, other.matched, other._said)

    @property
    def _said(self) -> Answer:
        return replace(self.answer, take=self.take)

    __hash__ = None  # type: ignore[assignment] # like the mappings it holds

    def __repr__(self) -> str:
        """Show the answer in a line."""
        said = ", ".join(value if name == "reason" else f"{name} {value}" for name, value in self._rows)
        return f"<Verdict {self.cluster}: {MATCHED[self.matched]}: {said}>"

    def _repr_html_(self) -> str:
        return html_table(f"{self.cluster}: {MATCHED[self.matched]}", self._rows)

    def to_frame(self) -> pandas.DataFrame:
        """Return one row, by cluster: matched, fits, what one copy takes, the reason; pandas.concat joins several."""
        reason = {"why": str(self.reason.why), "reason": self.reason.text} if self.reason else {}
        return data_frame(
            [{"cluster": self.cluster, "matched": self.matched, "fits": self.fits, **self.totals, **reason}],
            "cluster",
        )

    @property
    def _rows(self) -> list[tuple[str, str]]:
        if not self.matched:
            return [("reason", self.reason.text if self.reason else "none is known")]
        units = self.units
        held = ((kind, in_words(n, units[kind]) if kind in units else n) for kind, n in self.totals.items() if n)
        return [("fits", f"{'' if self.exact else '≥ '}{self.fits}"), *((kind, str(n)) for kind, n in held)]


class Backend(Protocol):
    """Answers which clusters can run a request; two backends give the same answers."""

    def match(self, request: Request, cluster: Cluster) -> Verdict:
        """Return whether `cluster`, empty, can run `request`."""

    def take(self, request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
        """Choose what one copy of `request` holds when only these workers are free; None if it cannot run."""


@runtime_checkable
class Requires(Protocol):
    """A backend that works only where something else is installed."""

    def require(self) -> None:
        """Return if it is; a RainbowError says what is missing."""


@runtime_checkable
class Prepares(Protocol):
    """A backend that works out early what the first request would wait for."""

    def prepare(self, cluster: Cluster) -> None:
        """Work it out now."""
