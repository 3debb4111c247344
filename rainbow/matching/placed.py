"""A copy of the job on a reduced layout, without the layout: what is remembered of a search is small."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rainbow.matching.verdict import Take

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rainbow.graph import Cluster
    from rainbow.graph.outline import Copy
    from rainbow.matching.reduced import Reduced


class Step(NamedTuple):
    """Where a position is: what contains it, and its place among all siblings there."""

    above: int
    place: int


class Placed(NamedTuple):
    """One copy of the job by positions, and the steps from the root to each of them."""

    take: Take
    steps: Mapping[int, Step]

    @classmethod
    def of(cls, take: Take, reduced: Reduced) -> Placed:
        """Keep of a layout only the ways to what is taken."""
        steps: dict[int, Step] = {}
        workers = (int(worker) for _, held in take.placed for worker in held if worker)
        for at in (*map(int, take.vertices), *workers):
            for i in reduced.up(at):
                if i == 0 or i in steps:
                    break
                steps[i] = Step(reduced.parents[i], reduced.places[i])
        return cls(take, steps)

    def inside(self, cluster: Cluster) -> Take:
        """Say what the copy is in a cluster with the root it was searched on."""
        copies = _Copies(self.steps, cluster)
        return Take(
            tuple((label, {copies.worker(w): n for w, n in held.items()}) for label, held in self.take.placed),
            {copies.of(int(i)).id: amount for i, amount in self.take.vertices.items()},
        )


class _Copies:
    """The vertices of a cluster at the positions of a reduced layout."""

    def __init__(self, steps: Mapping[int, Step], cluster: Cluster) -> None:
        self.steps = steps
        self.cluster = cluster
        self._known: dict[int, tuple[int, Copy]] = {0: (0, next(cluster.outline.copies(0)))}

    def of(self, i: int) -> Copy:
        way = []
        while i not in self._known:
            way.append(i)
            i = self.steps[i].above
        for i in reversed(way):
            above, place = self.steps[i]
            self._known[i] = self.cluster.outline.at(*self._known[above], place)
        return self._known[i][1]

    def worker(self, called: str) -> str:
        return self.cluster.worker_names[self.of(int(called)).id] if called else called
