"""The backend `index`: the same answers as the plain search, over kinds of equal subtrees.

What is found for a request and a root holds for every cluster with that root. A registration, a new subsystem or a
change of the graph makes a new cluster value with another root, so that what is remembered is never out of date.
Clusters with strict levels, and what kinds cannot answer (question.py), are left to the plain search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from rainbow.matching.apart import cannot_collide
from rainbow.matching.budget import STEPS, Budget, Meter, OutOfBudgetError
from rainbow.matching.catalogue import Catalogue
from rainbow.matching.compiled import Compiled
from rainbow.matching.explain import undecided
from rainbow.matching.filling import Offers, shape_of
from rainbow.matching.finding import Finding
from rainbow.matching.kinds import compile_kinds
from rainbow.matching.memory import Memory
from rainbow.matching.named import Relabelling, names_of
from rainbow.matching.question import Question
from rainbow.matching.tally import Tally
from rainbow.matching.totals import quick_check
from rainbow.matching.verdict import Take, Verdict
from rainbow.matching.verdicts import Verdicts, found_at
from rainbow.matching.walk import Walk
from rainbow.matching.workers import workers_of

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request, Resource
    from rainbow.matching.rooted import Rooted

MOST_QUESTIONS = 4_096
FEW = 16  # clusters that are asked one by one rather than in a batch
MOST_FINDINGS = 16_384  # one that was looked at holds its take: a kilobyte a node
MOST_CATALOGUES = 4  # lists of clusters: callers may use different ones


class Index:
    """Answers by kind, each question once."""

    def __init__(self) -> None:
        self._walk = Walk()
        self._compiled: WeakKeyDictionary[Cluster, Compiled] = WeakKeyDictionary()
        self._questions: Memory[bytes, Question] = Memory(MOST_QUESTIONS)
        self._catalogues: list[Catalogue] = []  # the last one asked first
        self._findings: Memory[tuple[bytes, int], Finding] = Memory(MOST_FINDINGS)

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
        found = self.decide(request, ordered, range(len(ordered)), budget)
        return [found[place] for place in range(len(ordered))]

    def decide(
        self, request: Request, clusters: Sequence[Cluster], places: Iterable[int], budget: Budget
    ) -> dict[int, Verdict]:
        """Decide at some places of a list, within a budget."""
        by_cost = sorted(places, key=lambda place: len(self.compiled(clusters[place]).rooted.closure))
        later = partial(budget.later, len(by_cost))
        return budget.decide(by_cost, lambda place, meter: self.match(request, clusters[place], meter, later))

    def _listed(self, clusters: Sequence[Cluster]) -> Catalogue:
        """Return the catalogue of some clusters, a known one if it is of the same."""
        known = next((one for one in self._catalogues if one.lists(clusters)), None)
        if known is None or known is not self._catalogues[0]:
            known = known or Catalogue(clusters, self.compiled)
            self._catalogues = [known, *(one for one in self._catalogues if one is not known)][:MOST_CATALOGUES]
        return known

    def forget(self) -> None:
        """Forget every answer; what is compiled of clusters stays."""
        self._questions.clear()
        self._findings.clear()
        for catalogue in self._catalogues:
            catalogue.forget()
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

    def finding(
        self, question: Question, root: Rooted, meter: Meter, later: Callable[[], Meter], fits: bool = False
    ) -> Finding:
        """Return what is found for a question on a root; `fits`: its only variant was counted there, and fits."""
        key = (question.request.key, root.number)
        known = self._findings.get(key)
        if known is None:
            known = Finding(question, root, meter, later, fits)
            if known.matched is not None:  # with more time it may be decided
                self._findings.put(key, known)
        return known

    def _own(
        self, question: Question, cluster: Cluster, compiled: Compiled, meter: Meter, later: Callable[[], Meter]
    ) -> Verdict:
        """Return a verdict that holds for this cluster only."""
        request = question.request
        known = compiled.own.get(request.key)
        if known is not None:
            return known
        by_name = question.names_workers and compiled.by_kinds(question)
        if by_name:
            found = self._named(question, cluster, compiled, meter, later)
        else:
            found = self._walk.match(request, cluster, meter, later)
        return found if found.matched is None else compiled.own.put(request.key, found)

    def _named(
        self, question: Question, cluster: Cluster, compiled: Compiled, meter: Meter, later: Callable[[], Meter]
    ) -> Verdict:
        """Judge the workers a request names one by one; the plain search says the rest when it is looked at."""
        variants = question.request.variants
        try:
            if not all(cannot_collide(resources, compiled.rooted, meter.timed) for resources in variants):
                return self._walk.match(question.request, cluster, meter, later)
            matched = any(_holds(question, resources, cluster, compiled, meter.timed) for resources in variants)
        except OutOfBudgetError:
            return Verdict(cluster.name, None, reason=undecided())
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


def _holds(
    question: Question, resources: tuple[Resource, ...], cluster: Cluster, compiled: Compiled, meter: Meter
) -> bool:
    """Tell whether a cluster has all of a variant on the workers that a constraint by name allows."""
    if quick_check(resources, compiled.rooted.totals, compiled.rooted):
        return False
    question.judge(compiled.rooted, meter)
    tally = Tally(compiled.rooted, resources, question.satisfied(compiled.rooted), question.passes, meter)
    if question.rule:
        tally.root = Relabelling(tally, names_of(cluster), compile_kinds(cluster)[0], question.rule).root()
    return all(tally.available(place) >= r.count.min for place, r in enumerate(resources))
