"""Matches remembered: the same jobspec against the same graphs has the same answer, whatever the clusters' states.

A burst of equal jobs is matched once. What is remembered is bounded by the number of verdicts, not of jobspecs.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rainbow.jobspec import Request
    from rainbow.matching import Verdict
    from rainbow.service.service import Entry

MOST = 200_000  # verdicts
LONGEST = 100_000  # characters of a jobspec that is remembered


@dataclass(frozen=True, slots=True)
class Match:
    """A jobspec read, its verdicts, and both as they are shown. `among` keeps others from having their identities."""

    request: Request
    verdicts: Sequence[Verdict]
    told: dict[str, Any]
    counts: Mapping[str, int]  # of verdicts by reason
    places: Mapping[str, int]  # of verdicts by cluster
    among: Sequence[Entry]


class Matches:
    """The last matches, by jobspec and clusters."""

    def __init__(self) -> None:
        self._known: OrderedDict[Any, Match] = OrderedDict()
        self._verdicts = 0
        self._lock = threading.Lock()

    def get(self, jobspec: Any, among: Sequence[Entry], make: Callable[[], Match]) -> Match:
        """Return what is known of this jobspec and these clusters; else what `make` finds."""
        text = json.dumps(jobspec, default=repr)
        key = (type(jobspec), text, tuple(map(id, among)))
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        found = make()
        if len(text) <= LONGEST:
            self._keep(key, found)
        return found

    def _keep(self, key: Any, found: Match) -> None:
        with self._lock:
            if key not in self._known:
                self._known[key] = found
                self._verdicts += len(found.verdicts) + 1
            while self._verdicts > MOST and len(self._known) > 1:
                _, oldest = self._known.popitem(last=False)
                self._verdicts -= len(oldest.verdicts) + 1
