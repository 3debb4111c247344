"""Many clusters as one list is asked again and again: in order of name, their roots divided into batches."""

from __future__ import annotations

from functools import reduce
from operator import attrgetter, is_
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rainbow.matching.apart import cannot_collide
from rainbow.matching.batch import LARGEST, Batch
from rainbow.matching.budget import Budget, Meter, OutOfBudgetError
from rainbow.matching.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from rainbow.graph import Cluster
    from rainbow.matching.compiled import Compiled
    from rainbow.matching.question import Question
    from rainbow.matching.rooted import Rooted

MOST_ROOTS = 2_048  # in one batch: a cluster that comes or goes makes one batch new, not all
MOST_BATCHES = 64
MOST_ANSWERS = 1_024
OPEN = -1

_batches: Memory[tuple[int, ...], Batch] = Memory(MOST_BATCHES)


class Division(NamedTuple):
    """A batch, and where its answers belong: `rows` of the batch at `places` of the catalogue."""

    batch: Batch
    rows: NDArray[np.intp]
    places: NDArray[np.intp]


class Catalogue:
    """The clusters of one list; a list with another cluster in it is another catalogue."""

    def __init__(self, clusters: Sequence[Cluster], compiled: Callable[[Cluster], Compiled]) -> None:
        self._given = clusters if isinstance(clusters, tuple) else list(clusters)  # the caller's list may grow
        self.clusters = sorted(clusters, key=attrgetter("sort_key"))
        self.compiled = [compiled(cluster) for cluster in self.clusters]
        self._divided: dict[bool, list[Division]] = {}
        self._holds: Memory[bytes, NDArray[np.int8]] = Memory(MOST_ANSWERS)

    def lists(self, clusters: Sequence[Cluster]) -> bool:
        """Tell whether the catalogue was made of just these clusters."""
        if clusters is self._given:
            return True
        return len(clusters) == len(self._given) and all(map(is_, clusters, self._given))

    def forget(self) -> None:
        """Forget every answer."""
        self._holds.clear()

    def holds(self, question: Question, budget: Budget) -> NDArray[np.int8]:
        """Return by place whether the cluster holds the request: 1, 0, or OPEN where no batch decides it in time."""
        known = self._holds.get(question.request.key)
        if known is None:
            known, is_whole = self._ask(question, Meter(budget.clock, budget.query))
            if is_whole:
                self._holds.put(question.request.key, known)
        return known

    def _ask(self, question: Question, meter: Meter) -> tuple[NDArray[np.int8], bool]:
        """Ask batch after batch; tell whether there was time for all of them."""
        answers = np.full(len(self.clusters), OPEN, dtype=np.int8)
        if not question.by_kinds or question.names_workers:
            return answers, True
        for batch, rows, places in self._divisions(question.asks_names):
            try:
                found = _holds(batch, question, meter)
            except OutOfBudgetError:
                return answers, False
            if found is not None:
                answers[places] = found[rows]
        return answers, True

    def _divisions(self, asks_names: bool) -> list[Division]:
        if asks_names not in self._divided:
            self._divided[asks_names] = list(self._divide(asks_names))
        return self._divided[asks_names]

    def _divide(self, asks_names: bool) -> Iterator[Division]:
        at: dict[int, list[int]] = {}  # number of a root: places
        roots: dict[int, Rooted] = {}
        for place, one in enumerate(self.compiled):
            if one.is_plain and one.rooted.largest < LARGEST and not (asks_names and one.hides_names):
                at.setdefault(one.rooted.number, []).append(place)
                roots[one.rooted.number] = one.rooted
        for batch in _divide(roots):
            pairs = [(row, place) for row, number in enumerate(batch.numbers) for place in at[number]]
            rows, places = np.array(pairs, dtype=np.intp).T
            yield Division(batch, rows, places)


def _divide(roots: Mapping[int, Rooted]) -> Iterator[Batch]:
    """Divide roots by their forms, and those of one form in the order of their numbers."""
    alike: dict[object, list[Rooted]] = {}
    for number in sorted(roots):
        alike.setdefault(roots[number].forms, []).append(roots[number])
    for some in alike.values():
        for first in range(0, len(some), MOST_ROOTS):
            yield batch_of(some[first : first + MOST_ROOTS])


def batch_of(roots: Sequence[Rooted]) -> Batch:
    """Return the batch of some roots, kept while it is used."""
    key = tuple(root.number for root in roots)
    return _batches.get(key) or _batches.put(key, Batch(roots))


def _holds(batch: Batch, question: Question, meter: Meter) -> NDArray[np.bool_] | None:
    """Ask for every variant; None where siblings may collide, or a need is met in between."""
    variants = question.request.variants
    if not all(cannot_collide(resources, batch.like, meter) for resources in variants):
        return None
    found = [batch.holds(question, resources, meter) for resources in variants]
    known = [holds for holds in found if holds is not None]
    return reduce(lambda one, other: one | other, known) if len(known) == len(found) else None
