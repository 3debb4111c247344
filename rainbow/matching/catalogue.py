"""Many clusters as one list is asked again and again: in order of name, their roots divided into batches."""

from __future__ import annotations

from functools import reduce
from operator import attrgetter, is_
from typing import TYPE_CHECKING

from rainbow.matching.apart import cannot_collide
from rainbow.matching.batch import LARGEST, Batch
from rainbow.matching.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from rainbow.graph import Cluster
    from rainbow.matching.compiled import Compiled
    from rainbow.matching.question import Question
    from rainbow.matching.rooted import Rooted

MOST_ROOTS = 2_048  # in one batch: a cluster that comes or goes makes one batch new, not all
MOST_BATCHES = 64
MOST_ANSWERS = 1_024

_batches: Memory[tuple[int, ...], Batch] = Memory(MOST_BATCHES)


class Catalogue:
    """The clusters of one list; a list with another cluster in it is another catalogue."""

    def __init__(self, clusters: Sequence[Cluster], compiled: Callable[[Cluster], Compiled]) -> None:
        self._given = list(clusters)  # the caller's list may grow
        self.clusters = sorted(clusters, key=attrgetter("sort_key"))
        self.compiled = [compiled(cluster) for cluster in self.clusters]
        self._divided: dict[bool, list[Batch]] = {}
        self._holds: Memory[bytes, Mapping[int, bool]] = Memory(MOST_ANSWERS)

    def lists(self, clusters: Sequence[Cluster]) -> bool:
        """Tell whether the catalogue was made of just these clusters."""
        return len(clusters) == len(self._given) and all(map(is_, clusters, self._given))

    def forget(self) -> None:
        """Forget every answer."""
        self._holds.clear()

    def holds(self, question: Question) -> Mapping[int, bool]:
        """Return {number of a root: whether it holds the request} for every root that a batch can decide."""
        known = self._holds.get(question.request.key)
        if known is None:
            known = self._holds.put(question.request.key, dict(self._ask(question)))
        return known

    def _ask(self, question: Question) -> Iterator[tuple[int, bool]]:
        if not question.by_kinds or question.names_workers:
            return
        for batch in self._batches(question.asks_names):
            found = _holds(batch, question)
            if found is not None:
                yield from zip(batch.numbers, found.tolist(), strict=True)

    def _batches(self, asks_names: bool) -> list[Batch]:
        if asks_names not in self._divided:
            usable = (c for c in self.compiled if c.is_plain and not (asks_names and c.hides_names))
            roots = {c.rooted.number: c.rooted for c in usable if c.rooted.largest < LARGEST}
            self._divided[asks_names] = list(_divide(roots))
        return self._divided[asks_names]


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


def _holds(batch: Batch, question: Question) -> NDArray[np.bool_] | None:
    """Ask for every variant; None where siblings may collide, or a need is met in between."""
    variants = question.request.variants
    if not all(cannot_collide(resources, batch.like) for resources in variants):
        return None
    found = [batch.holds(question, resources) for resources in variants]
    known = [holds for holds in found if holds is not None]
    return reduce(lambda one, other: one | other, known) if len(known) == len(found) else None
