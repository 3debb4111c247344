"""The backend `index`: the same answers as the plain search, each found once.

Answers are remembered by cluster value and request. A registration, a new subsystem or a change of the graph
makes a new cluster value, so that what is remembered is never out of date. What is not remembered is searched for as
the backend `networkx` does; there, equal subtrees are asked once (bound.py).
"""

from __future__ import annotations

import pickle
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from rainbow.matching.walk import Walk

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.verdict import Take, Verdict

MOST_ANSWERS = 4_096  # remembered for one cluster; the least recently used leave


class Index:
    """Answers from memory, else by the plain search."""

    def __init__(self) -> None:
        self._walk = Walk()
        self._answers: WeakKeyDictionary[Cluster, dict[bytes, Verdict]] = WeakKeyDictionary()

    def match(self, request: Request, cluster: Cluster) -> Verdict:
        """Say whether `cluster`, empty, can run `request`."""
        key = pickle.dumps((request.variants, request.constraint))
        known = self._answers.setdefault(cluster, {})
        verdict = known.pop(key, None) or self._walk.match(request, cluster)
        known[key] = verdict  # at the end: the least recently used stand first
        if len(known) > MOST_ANSWERS:
            with suppress(RuntimeError, StopIteration):  # another thread is at it too
                known.pop(next(iter(known)), None)
        return verdict

    def take(self, request: Request, cluster: Cluster, workers: Collection[str]) -> Take | None:
        """Choose what one copy holds when only `workers` are free; None if it cannot run there."""
        return self._walk.take(request, cluster, workers)
