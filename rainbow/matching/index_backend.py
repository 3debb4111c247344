"""Backend `index`: the plain search's answers, computed over classes of equal subtrees.

What is found for a request and a root holds for every cluster with that root. A registration, a new subsystem or a
change of the graph makes a new cluster value with another root, so that what is remembered is never out of date.
Clusters with strict levels, and what kinds cannot answer (equivalence/query.py), are left to the plain search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, overload
from weakref import WeakSet

from rainbow.cache import LazyModule, LruCache, cached_property
from rainbow.matching.equivalence.class_solver import ClassSolver, totals_standing
from rainbow.matching.equivalence.cluster_class import ClusterClass, cluster_class_of
from rainbow.matching.equivalence.count_arrays import OPEN, Catalogue
from rainbow.matching.equivalence.count_scalar import ScalarCount
from rainbow.matching.equivalence.query import NamedHosts, Query, names_in
from rainbow.matching.equivalence.subtree_classes import classify, nameless, root_of
from rainbow.matching.model.base_units import variants_on
from rainbow.matching.model.budget import FREE, STEPS, Budget, Meter, OutOfBudgetError
from rainbow.matching.model.verdict import Take, Verdict
from rainbow.matching.networkx_backend import NetworkxBackend
from rainbow.matching.quick_check import quick_check
from rainbow.matching.reasons import undecided
from rainbow.matching.solution import Standing, closed_form
from rainbow.matching.upper_bound import bound_is_exact
from rainbow.matching.workers.allocation import CandidateHeap, shape_of
from rainbow.matching.workers.worker_use import workers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request, Resource
else:  # few clusters are counted one by one
    np = LazyModule("numpy")


MOST_OWN = 1_024


class PreparedCluster:
    """What the index keeps of a cluster: its root, and the verdicts that are its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.mark = object()
        self.nameless = nameless(cluster)
        self.rooted: ClusterClass = cluster_class_of(cluster, root_of(cluster))
        self.is_plain = cluster.levels != "strict" and not self.rooted.has_nested_workers
        self.own: LruCache[bytes, Verdict] = LruCache(MOST_OWN)
        self.offers: LruCache[bytes, CandidateHeap | None] = LruCache(MOST_OWN)

    def by_kinds(self, question: Query) -> bool:
        """Return whether the kinds of the cluster can answer a question; else the plain search does."""
        return self.is_plain and question.by_kinds and not question.asks_names & self.nameless

    def answers(self, question: Query) -> bool:
        """Return whether the answer holds for every cluster with this root."""
        return self.by_kinds(question) and not question.names_workers


MOST_QUESTIONS = 4_096
FEW = 16  # clusters that are asked one by one rather than in a batch
MOST_FINDINGS = 16_384  # one that was looked at holds its take: a kilobyte a node
MOST_CATALOGUES = 4  # lists of clusters: callers may use different ones


class IndexBackend:
    """Answers by kind, each question once."""

    def __init__(self) -> None:
        self._walk = NetworkxBackend()
        self._compiled: WeakSet[PreparedCluster] = WeakSet()  # each is kept by its cluster
        self._questions: LruCache[bytes, Query] = LruCache(MOST_QUESTIONS)
        self._catalogues: list[Catalogue[PreparedCluster]] = []  # the last one asked first
        self._findings: LruCache[tuple[bytes, int], ClassSolver] = LruCache(MOST_FINDINGS)

    def match(
        self,
        request: Request,
        cluster: Cluster,
        meter: Meter | None = None,
        later: Callable[[], Meter] = STEPS.later,
    ) -> Verdict:
        """Return whether `cluster`, empty, can run `request`; `later` gives a meter for what is looked at."""
        compiled, question, meter = self.compiled(cluster), self.question(request), meter or STEPS.share()
        if not compiled.answers(question):
            return self._own(question, cluster, compiled, meter, later)
        finding = self.finding(question, compiled.rooted, meter, later)
        return found_at(cluster, finding.matched, lambda: finding)

    def match_all(
        self, request: Request, clusters: Sequence[Cluster], budget: Budget | None = None
    ) -> Sequence[Verdict]:
        """Return of every cluster, empty, whether it can run `request`; in order of name."""
        budget = budget or STEPS
        if len(clusters) >= FEW:
            return Verdicts(self, self.question(request), self._listed(clusters), budget)
        ordered = sorted(clusters, key=attrgetter("sort_key"))
        results = self.decide(request, ordered, range(len(ordered)), budget)
        return [results[place] for place in range(len(ordered))]

    def decide(
        self, request: Request, clusters: Sequence[Cluster], places: Iterable[int], budget: Budget
    ) -> dict[int, Verdict]:
        """Decide at some places of a list, within a budget."""
        by_cost = sorted(places, key=lambda place: len(self.compiled(clusters[place]).rooted.closure))
        later = partial(budget.later, len(by_cost))
        return budget.decide(by_cost, lambda place, meter: self.match(request, clusters[place], meter, later))

    def _listed(self, clusters: Sequence[Cluster]) -> Catalogue[PreparedCluster]:
        """Return the catalogue of some clusters, a known one if it is of the same."""
        known = next((one for one in self._catalogues if one.lists(clusters)), None)
        if known is None or known is not self._catalogues[0]:
            known = known or self._alike(clusters) or Catalogue(clusters, self.compiled)
            self._catalogues = [known, *(one for one in self._catalogues if one is not known)][:MOST_CATALOGUES]
        return known

    def _alike(self, clusters: Sequence[Cluster]) -> Catalogue[PreparedCluster] | None:
        """Return a catalogue made of one that differs in few clusters."""
        made = (one.with_others(clusters, self.compiled) for one in self._catalogues)
        return next((one for one in made if one is not None), None)

    def forget(self) -> None:
        """Forget every answer; what is compiled of clusters stays."""
        self._questions.clear()
        self._findings.clear()
        for catalogue in self._catalogues:
            catalogue.forget()
        for compiled in list(self._compiled):
            compiled.own.clear()

    def compiled(self, cluster: Cluster) -> PreparedCluster:
        """Return the compiled form of a cluster, made at the first call and kept as long as the cluster."""
        result: PreparedCluster | None = cluster.memo.get(self)
        if result is None:
            result = cluster.memo.setdefault(self, PreparedCluster(cluster))
            self._compiled.add(result)
        return result

    def prepare(self, cluster: Cluster) -> None:
        """Compile a cluster now rather than at the first request."""
        if cluster.levels != "strict":
            self.compiled(cluster)

    def question(self, request: Request) -> Query:
        """Return a request prepared for asking."""
        result = self._questions.get(request.key)
        return result or self._questions.put(request.key, Query(request))

    def finding(
        self, question: Query, root: ClusterClass, meter: Meter, later: Callable[[], Meter], fits: bool = False
    ) -> ClassSolver:
        """Return what is found for a question on a root; `fits`: its only variant was counted there, and fits."""
        key = (question.request.key, root.number)
        known = self._findings.get(key)
        if known is None:
            known = ClassSolver(question, root, meter, later, fits)
            if known.matched is not None:  # with more time it may be decided
                self._findings.put(key, known)
        return known

    def _own(
        self, question: Query, cluster: Cluster, compiled: PreparedCluster, meter: Meter, later: Callable[[], Meter]
    ) -> Verdict:
        """Return a verdict that holds for this cluster only."""
        request = question.request
        known = compiled.own.get(request.key)
        if known is not None:
            return known
        by_name = question.names_workers and compiled.by_kinds(question)
        if by_name:
            verdict = self._named(question, cluster, compiled, meter, later)
        else:
            verdict = self._walk.match(request, cluster, meter, later)
        return verdict if verdict.matched is None else compiled.own.put(request.key, verdict)

    def _named(
        self, question: Query, cluster: Cluster, compiled: PreparedCluster, meter: Meter, later: Callable[[], Meter]
    ) -> Verdict:
        """Judge the workers a request names one by one; the plain search says the rest when it is looked at."""
        variants = variants_on(question.request, compiled.rooted.pools)
        try:
            if not all(bound_is_exact(resources, compiled.rooted, meter.timed) for resources in variants):
                return self._walk.match(question.request, cluster, meter, later)
            matched = any(
                _holds_variant(question, resources, cluster, compiled, meter.timed) for resources in variants
            )
        except OutOfBudgetError:
            return Verdict(cluster.name, None, reason=undecided())
        return Verdict(cluster.name, matched, later=lambda: self._walk.match(question.request, cluster).answer)

    def take(self, request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
        """Choose what one copy of `request` holds when only `workers` are free; None if it cannot run there."""
        offers = self._offers(request, cluster)
        if offers is None:
            return self._walk.take(request, cluster, workers)
        result = workers_of(cluster)
        free = sorted(result.numbers[name] for name in workers if name in result.numbers)
        chosen = offers.lowest(free, result.fresh)
        if chosen is None:
            return None
        shape = offers.shape
        return result.say(shape.per_slot, shape.unit.label, [(n, offer.take) for n, offer in chosen])

    def _offers(self, request: Request, cluster: Cluster) -> CandidateHeap | None:
        """Return what workers give to a request that takes from nothing else, None for any other request."""
        compiled = self.compiled(cluster)
        if request.key not in compiled.offers:
            question = self.question(request)
            plain = compiled.answers(question) and len(request.variants) == 1
            variants = variants_on(request, compiled.rooted.pools)
            shape = shape_of(variants[0], compiled.rooted) if plain else None
            compiled.offers.put(request.key, CandidateHeap(shape, question.passes) if shape else None)
        return compiled.offers.get(request.key)


def _holds_variant(
    question: Query, resources: tuple[Resource, ...], cluster: Cluster, compiled: PreparedCluster, meter: Meter
) -> bool:
    """Return whether a cluster has all of a variant on the workers that a constraint by name allows."""
    if quick_check(resources, compiled.rooted.totals, compiled.rooted):
        return False
    question.judge(compiled.rooted, meter)
    tally = ScalarCount(compiled.rooted, resources, question.satisfied(compiled.rooted), question.passes, meter)
    if question.rule:
        tally.root = NamedHosts(tally, names_in(cluster), classify(cluster)[0], question.rule).root()
    return all(tally.available(place) >= r.count.min for place, r in enumerate(resources))


class Verdicts(Sequence[Verdict]):
    """The verdicts of a catalogue, in order of name."""

    def __init__(
        self,
        index: IndexBackend,
        question: Query,
        catalogue: Catalogue[PreparedCluster],
        budget: Budget | None = None,
    ) -> None:
        self._index = index
        self._question = question
        self._catalogue = catalogue
        self._budget = budget or STEPS
        self._holds = catalogue.holds(question, self._budget)
        self._made: dict[int, Verdict] = {}

    def __len__(self) -> int:
        """One for each cluster."""
        return len(self._catalogue.clusters)

    @overload
    def __getitem__(self, place: int) -> Verdict: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Verdict]: ...
    def __getitem__(self, place: int | slice) -> Verdict | Sequence[Verdict]:
        """Return a verdict, or some of them."""
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        if place < 0:
            place += len(self)
        if place not in self._made:
            self._made[place] = self._make(place)
        return self._made[place]

    @cached_property
    def matched(self) -> NDArray[np.int8]:
        """By place: 1 yes, 0 no, OPEN undecided."""
        result = self._holds.copy()
        for place, verdict in self._decided.items():
            result[place] = OPEN if verdict.matched is None else verdict.matched
        return result

    @cached_property
    def _decided(self) -> dict[int, Verdict]:
        """The verdicts that no batch could give."""
        places = np.flatnonzero(self._holds == OPEN).tolist()
        return self._index.decide(self._question.request, self._catalogue.clusters, places, self._budget)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the clusters."""
        return self._catalogue.names

    def amounts(self, name: str) -> NDArray[np.object_]:
        """By place, how much of one type one copy takes where it stands on whole workers, OPEN elsewhere.

        It is the same of all roots in a batch.
        """
        result = np.full(len(self), OPEN, object)
        for batch, _, places in self._catalogue.divisions(self._question.asks_names):
            if (totals := self._standing(batch.like)) is not None:
                result[places[self._holds[places] == 1]] = totals.get(name)
        return result

    def _standing(self, root: ClusterClass) -> Mapping[str, int] | None:
        """What one copy takes of a root on which a batch decides, None if that depends on where it is."""
        variants = variants_on(self._question.request, root.pools)
        form = closed_form(variants[0], root) if len(variants) == 1 else None
        return totals_standing(form, root) if isinstance(form, Standing) else None

    def _make(self, place: int) -> Verdict:
        cluster, holds = self._catalogue.clusters[place], self._holds[place]
        if holds == OPEN:
            return self._decided[place].of(cluster)
        return found_at(cluster, bool(holds), partial(self._counted, place)).of(cluster)

    def _counted(self, place: int) -> ClassSolver:
        """Return what is found where a batch has counted: it is decided, whatever the rest costs."""
        fits = bool(self._holds[place]) and len(self._question.request.variants) == 1
        root, later = self._catalogue.compiled[place].rooted, partial(self._budget.later, len(self))
        return self._index.finding(self._question, root, FREE, later, fits=fits)

    def __eq__(self, other: object) -> bool:
        """Sequences of equal verdicts are equal."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # like a list


def found_at(cluster: Cluster, matched: bool | None, finding: Callable[[], ClassSolver]) -> Verdict:
    """Return the verdict on a cluster whose root a finding is, or will be, about."""
    return Verdict(cluster.name, matched, later=lambda: finding().answer, take_later=lambda: finding().take(cluster))


class Some(Sequence[Verdict]):
    """The verdicts at some places."""

    def __init__(self, verdicts: Verdicts, places: NDArray[np.intp]) -> None:
        self._verdicts = verdicts
        self._places = places
        self._amounts: dict[str, list[int | None]] = {}

    def __len__(self) -> int:
        """One for each place."""
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> Verdict: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Verdict]: ...
    def __getitem__(self, at: int | slice) -> Verdict | Sequence[Verdict]:
        """Return a verdict, or some of them."""
        return self.at(at) if isinstance(at, slice) else self._verdicts[int(self._places[at])]

    def at(self, chosen: slice | list[int]) -> Some:
        """Return some of these."""
        return Some(self._verdicts, self._places[chosen])

    def __iter__(self) -> Iterator[Verdict]:
        """Yield each."""
        return map(self._verdicts.__getitem__, self._places.tolist())

    @cached_property
    def all_match(self) -> bool:
        """Whether each of them matches."""
        return bool((self._verdicts.matched[self._places] == 1).all())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the clusters."""
        every = self._verdicts.names
        return every if len(self) == len(every) else tuple(map(every.__getitem__, self._places.tolist()))

    def amounts(self, name: str) -> list[int | None]:
        """Return how much of one type one copy takes on each, None where it takes none of it."""
        if name not in self._amounts:
            result = self._verdicts.amounts(name)[self._places]
            for at in np.flatnonzero(result == OPEN).tolist():
                result[at] = self[at].totals.get(name)
            self._amounts[name] = result.tolist()
        return self._amounts[name]


def candidates_of(verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
    """Return those that match, in the order given."""
    if isinstance(verdicts, Some) and verdicts.all_match:
        return verdicts
    if isinstance(verdicts, Verdicts):
        return Some(verdicts, np.flatnonzero(verdicts.matched == 1))
    return [verdict for verdict in verdicts if verdict.matched]


def candidates_without(verdicts: Sequence[Verdict], names: Collection[str]) -> Sequence[Verdict]:
    """Return those that match and are not of these clusters, in the order given."""
    results = candidates_of(verdicts)
    if not isinstance(results, Some):
        return [verdict for verdict in results if verdict.cluster not in names]
    return results.at([at for at, name in enumerate(results.names) if name not in names])


def refusals_of(verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
    """Return those that do not match, in the order given."""
    if isinstance(verdicts, Verdicts):
        return Some(verdicts, np.flatnonzero(verdicts.matched == 0))
    return [verdict for verdict in verdicts if verdict.matched is False]


def undecided_of(verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
    """Return those that the budget left undecided, in the order given."""
    if isinstance(verdicts, Verdicts):
        return Some(verdicts, np.flatnonzero(verdicts.matched == OPEN))
    return [verdict for verdict in verdicts if verdict.matched is None]


def names_of(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Return the names of the clusters."""
    return verdicts.names if isinstance(verdicts, Some) else tuple(verdict.cluster for verdict in verdicts)


def amounts_on(verdicts: Sequence[Verdict], name: str) -> list[int | None]:
    """Return how much of one type one copy takes on each: see Verdict.totals."""
    return verdicts.amounts(name) if isinstance(verdicts, Some) else [one.totals.get(name) for one in verdicts]


def is_in_order(verdicts: Sequence[Verdict]) -> bool:
    """Return whether verdicts are known to be in order of name."""
    return isinstance(verdicts, Verdicts | Some)
