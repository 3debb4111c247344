"""The backend `index`: the same answers as the plain search, over kinds of equal subtrees.

What is found for a request and a root holds for every cluster with that root. A registration, a new subsystem or a
change of the graph makes a new cluster value with another root, so that what is remembered is never out of date.
Clusters with strict levels, and what kinds cannot answer (question.py), are left to the plain search.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, overload
from weakref import WeakKeyDictionary

from rainbow.matching.apart import cannot_collide
from rainbow.matching.catalogue import Catalogue
from rainbow.matching.compiled import Compiled
from rainbow.matching.filling import Offers, shape_of
from rainbow.matching.finding import Finding
from rainbow.matching.memory import Memory
from rainbow.matching.named import Relabelling, names_of
from rainbow.matching.question import Question
from rainbow.matching.search import Allowance
from rainbow.matching.tally import Tally
from rainbow.matching.totals import quick_check
from rainbow.matching.verdict import Answer, Take, Verdict
from rainbow.matching.walk import Walk
from rainbow.matching.workers import workers_of

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request, Resource
    from rainbow.matching.rooted import Rooted

MOST_QUESTIONS = 4_096
FEW = 16  # clusters that are asked one by one rather than in a batch
MOST_FINDINGS = 16_384  # one that was looked at holds its take: a kilobyte a node


class Index:
    """Answers by kind, each question once."""

    def __init__(self) -> None:
        self._walk = Walk()
        self._compiled: WeakKeyDictionary[Cluster, Compiled] = WeakKeyDictionary()
        self._questions: Memory[bytes, Question] = Memory(MOST_QUESTIONS)
        self._catalogue: Catalogue | None = None
        self._findings: Memory[tuple[bytes, int], Finding] = Memory(MOST_FINDINGS)

    def match(self, request: Request, cluster: Cluster, allowance: Allowance | None = None) -> Verdict:
        """Say whether `cluster`, empty, can run `request`."""
        compiled, question = self.compiled(cluster), self.question(request)
        if not compiled.answers(question):
            return self._own(question, cluster, compiled)
        finding = self.finding(question, compiled.rooted, allowance)
        return Verdict(cluster.name, finding.matched, later=partial(finding.answer, cluster))

    def match_all(self, request: Request, clusters: Sequence[Cluster]) -> Sequence[Verdict]:
        """Say of every cluster, empty, whether it can run `request`; in order of name."""
        if len(clusters) < FEW:
            allowance = Allowance()
            return [self.match(request, c, allowance) for c in sorted(clusters, key=attrgetter("sort_key"))]
        return Verdicts(self, self.question(request), self._listed(clusters))

    def _listed(self, clusters: Sequence[Cluster]) -> Catalogue:
        """Return the catalogue of some clusters, the last one if it is of the same."""
        last = self._catalogue
        if last is None or not last.lists(clusters):
            last = self._catalogue = Catalogue(clusters, self.compiled)
        return last

    def forget(self) -> None:
        """Forget every answer; what is compiled of clusters stays."""
        self._questions.clear()
        self._findings.clear()
        if self._catalogue:
            self._catalogue.forget()
        for compiled in self._compiled.values():
            compiled.own.clear()

    def compiled(self, cluster: Cluster) -> Compiled:
        """Return the compiled form of a cluster, made at the first call and kept as long as the cluster."""
        found = self._compiled.get(cluster)
        if found is None:
            found = self._compiled[cluster] = Compiled(cluster)
        return found

    def prepare(self, cluster: Cluster) -> None:
        """Compile a cluster now rather than at the first request."""
        if cluster.levels != "strict":
            self.compiled(cluster)

    def question(self, request: Request) -> Question:
        """Return a request prepared for asking."""
        found = self._questions.get(request.key)
        return found or self._questions.put(request.key, Question(request))

    def finding(self, question: Question, root: Rooted, allowance: Allowance | None = None) -> Finding:
        """Return what is found for a question on a root."""
        key = (question.request.key, root.number)
        known = self._findings.get(key)
        if known is None:
            known = Finding(question, root, allowance)
            if known.holds_good:
                self._findings.put(key, known)
        return known

    def _own(self, question: Question, cluster: Cluster, compiled: Compiled) -> Verdict:
        """Return a verdict that holds for this cluster only."""
        request = question.request
        known = compiled.own.get(request.key)
        if known is not None:
            return known
        by_name = question.names_workers and compiled.by_kinds(question)
        found = self._named(question, cluster, compiled) if by_name else self._walk.match(request, cluster)
        return compiled.own.put(request.key, found)

    def _named(self, question: Question, cluster: Cluster, compiled: Compiled) -> Verdict:
        """Judge the workers a request names one by one; the plain search says the rest when it is looked at."""
        variants = question.request.variants
        if not all(cannot_collide(resources, compiled.rooted) for resources in variants):
            return self._walk.match(question.request, cluster)
        matched = any(_holds(question, resources, cluster, compiled) for resources in variants)
        return Verdict(cluster.name, matched, later=lambda: self._walk.match(question.request, cluster).answer)

    def take(self, request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
        """Choose what one copy of `request` holds when only `workers` are free; None if it cannot run there."""
        offers = self._offers(request, cluster)
        if offers is None:
            return self._walk.take(request, cluster, workers)
        found = workers_of(cluster)
        free = sorted(found.numbers[name] for name in workers if name in found.numbers)
        chosen = offers.lowest(free, found.stands)
        return None if chosen is None else found.say(offers.shape.per_slot, chosen)

    def _offers(self, request: Request, cluster: Cluster) -> Offers | None:
        """Return what workers give to a request that takes from nothing else, None for any other request."""
        compiled = self.compiled(cluster)
        if request.key not in compiled.offers:
            question = self.question(request)
            plain = compiled.answers(question) and len(request.variants) == 1
            shape = shape_of(request.resources, compiled.rooted) if plain else None
            compiled.offers.put(request.key, Offers(shape, question.passes) if shape else None)
        return compiled.offers.get(request.key)


def _holds(question: Question, resources: tuple[Resource, ...], cluster: Cluster, compiled: Compiled) -> bool:
    """Tell whether a cluster has all of a variant on the workers that a constraint by name allows."""
    if quick_check(resources, compiled.rooted.totals, compiled.rooted):
        return False
    tally = Tally(compiled.rooted, resources, question.satisfied(compiled.rooted), question.passes)
    if question.rule:
        tally.root = Relabelling(tally, names_of(cluster), compiled.kinds, question.rule).root()
    return all(tally.available(place) >= r.count.min for place, r in enumerate(resources))


class Verdicts(Sequence[Verdict]):
    """The verdicts of a catalogue, each made when it is looked at."""

    def __init__(self, index: Index, question: Question, catalogue: Catalogue) -> None:
        self._index = index
        self._question = question
        self._catalogue = catalogue
        self._holds = catalogue.holds(question)
        self._allowance = Allowance()
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
        if place not in self._made:
            self._made[place] = self._make(place)
        return self._made[place]

    def _make(self, place: int) -> Verdict:
        cluster, compiled = self._catalogue.clusters[place], self._catalogue.compiled[place]
        holds = self._holds.get(compiled.rooted.number)
        if holds is None or not compiled.answers(self._question):
            return self._index.match(self._question.request, cluster, self._allowance)
        return Verdict(cluster.name, holds, later=partial(self._later, cluster, compiled.rooted))

    def _later(self, cluster: Cluster, root: Rooted) -> Answer:
        return self._index.finding(self._question, root).answer(cluster)

    def __eq__(self, other: object) -> bool:
        """Sequences of equal verdicts are equal."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # like a list
