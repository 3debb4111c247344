"""The backend `index`: the same answers as the plain search, over kinds of equal subtrees.

What is found for a request and a root holds for every cluster with that root. A registration, a new subsystem or a
change of the graph makes a new cluster value with another root, so that what is remembered is never out of date.
Clusters with strict levels, and what kinds cannot answer (question.py), are left to the plain search.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from rainbow.matching.apart import cannot_collide
from rainbow.matching.finding import Finding
from rainbow.matching.kinds import compile_kinds
from rainbow.matching.memory import Memory
from rainbow.matching.named import Relabelling, names_of
from rainbow.matching.question import Question
from rainbow.matching.rooted import Rooted, rooted
from rainbow.matching.tally import Tally
from rainbow.matching.totals import quick_check
from rainbow.matching.verdict import Take, Verdict
from rainbow.matching.walk import Walk

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request, Resource
    from rainbow.matching.kinds import Kind

MOST_QUESTIONS = 4_096
MOST_FINDINGS = 65_536


class Compiled:
    """What the index keeps of a cluster: its root, the kinds of its entries, and the verdicts that are its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.kinds: list[Kind]
        self.kinds, self.hides_names = compile_kinds(cluster)
        self.rooted: Rooted = rooted(cluster, self.kinds[0])
        self.is_plain = cluster.levels != "strict" and cluster.worker_type not in self.rooted.nested
        self.own: Memory[bytes, Verdict] = Memory(MOST_QUESTIONS)

    def by_kinds(self, question: Question) -> bool:
        """Tell whether the kinds of the cluster can answer a question; else the plain search does."""
        return self.is_plain and question.by_kinds and not (question.asks_names and self.hides_names)

    def answers(self, question: Question) -> bool:
        """Tell whether the answer holds for every cluster with this root."""
        return self.by_kinds(question) and not question.names_workers


class Index:
    """Answers by kind, each question once."""

    def __init__(self) -> None:
        self._walk = Walk()
        self._compiled: WeakKeyDictionary[Cluster, Compiled] = WeakKeyDictionary()
        self._questions: Memory[bytes, Question] = Memory(MOST_QUESTIONS)
        self._findings: Memory[tuple[bytes, int], Finding] = Memory(MOST_FINDINGS)

    def match(self, request: Request, cluster: Cluster) -> Verdict:
        """Say whether `cluster`, empty, can run `request`."""
        compiled, question = self.compiled(cluster), self.question(request)
        if not compiled.answers(question):
            return self._own(question, cluster, compiled)
        finding = self.finding(question, compiled.rooted)
        return Verdict(cluster.name, finding.matched, later=partial(finding.answer, cluster))

    def compiled(self, cluster: Cluster) -> Compiled:
        """Return the compiled form of a cluster, made at the first call and kept as long as the cluster."""
        found = self._compiled.get(cluster)
        if found is None:
            found = self._compiled[cluster] = Compiled(cluster)
        return found

    def question(self, request: Request) -> Question:
        """Return a request prepared for asking."""
        found = self._questions.get(request.key)
        return found or self._questions.put(request.key, Question(request))

    def finding(self, question: Question, root: Rooted) -> Finding:
        """Return what is found for a question on a root."""
        key = (question.request.key, root.number)
        return self._findings.get(key) or self._findings.put(key, Finding(question, root))

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
        return self._walk.take(request, cluster, workers)


def _holds(question: Question, resources: tuple[Resource, ...], cluster: Cluster, compiled: Compiled) -> bool:
    """Tell whether a cluster has all of a variant on the workers that a constraint by name allows."""
    if quick_check(resources, compiled.rooted.totals, compiled.rooted):
        return False
    tally = Tally(compiled.rooted, resources, question.satisfied(compiled.rooted), question.passes)
    if question.rule:
        tally.root = Relabelling(tally, names_of(cluster, compiled.kinds), question.rule).root()
    return all(tally.available(place) >= r.count.min for place, r in enumerate(resources))
