"""The verdicts of many clusters: yes or no of all at once, each made into an object when it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, overload

import numpy as np

from rainbow.lazy import cached_property
from rainbow.matching.budget import FREE, STEPS, Budget
from rainbow.matching.catalogue import OPEN
from rainbow.matching.verdict import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rainbow.graph import Cluster
    from rainbow.matching.catalogue import Catalogue
    from rainbow.matching.finding import Finding
    from rainbow.matching.index import Index
    from rainbow.matching.question import Question


class Verdicts(Sequence[Verdict]):
    """The verdicts of a catalogue, in order of name."""

    def __init__(self, index: Index, question: Question, catalogue: Catalogue, budget: Budget | None = None) -> None:
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
        found = self._holds.copy()
        for place, verdict in self._decided.items():
            found[place] = OPEN if verdict.matched is None else verdict.matched
        return found

    @cached_property
    def _decided(self) -> dict[int, Verdict]:
        """The verdicts that no batch could give."""
        places = np.flatnonzero(self._holds == OPEN).tolist()
        return self._index.decide(self._question.request, self._catalogue.clusters, places, self._budget)

    def name(self, place: int) -> str:
        """Return the name of a cluster."""
        return self._catalogue.clusters[place].name

    def _make(self, place: int) -> Verdict:
        cluster, holds = self._catalogue.clusters[place], self._holds[place]
        if holds == OPEN:
            return self._decided[place]
        return found_at(cluster, bool(holds), partial(self._counted, place))

    def _counted(self, place: int) -> Finding:
        """Return what is found where a batch has counted: it is decided, whatever the rest costs."""
        fits = bool(self._holds[place]) and len(self._question.request.variants) == 1
        root, later = self._catalogue.compiled[place].rooted, partial(self._budget.later, len(self))
        return self._index.finding(self._question, root, FREE, later, fits=fits)

    def __eq__(self, other: object) -> bool:
        """Sequences of equal verdicts are equal."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # like a list


def found_at(cluster: Cluster, matched: bool | None, finding: Callable[[], Finding]) -> Verdict:
    """Return the verdict on a cluster whose root a finding is, or will be, about."""
    return Verdict(cluster.name, matched, later=lambda: finding().answer, take_later=lambda: finding().take(cluster))


class Some(Sequence[Verdict]):
    """The verdicts at some places."""

    def __init__(self, verdicts: Verdicts, places: NDArray[np.intp]) -> None:
        self._verdicts = verdicts
        self._places = places

    def __len__(self) -> int:
        """One for each place."""
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> Verdict: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Verdict]: ...
    def __getitem__(self, at: int | slice) -> Verdict | Sequence[Verdict]:
        """Return a verdict, or some of them."""
        if isinstance(at, slice):
            return Some(self._verdicts, self._places[at])
        return self._verdicts[int(self._places[at])]

    def __iter__(self) -> Iterator[Verdict]:
        """Yield each."""
        return map(self._verdicts.__getitem__, self._places.tolist())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the clusters."""
        return tuple(map(self._verdicts.name, self._places.tolist()))


def candidates_of(verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
    """Return those that match, in the order given."""
    if isinstance(verdicts, Verdicts):
        return Some(verdicts, np.flatnonzero(verdicts.matched == 1))
    return [verdict for verdict in verdicts if verdict.matched]


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


def is_in_order(verdicts: Sequence[Verdict]) -> bool:
    """Tell whether verdicts are known to stand in order of name."""
    return isinstance(verdicts, Verdicts)
