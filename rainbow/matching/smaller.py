"""The smallest change that would make a refused request match a cluster, verified by matching again.

mild     edits that ask for less where it stands; only if all of them are not enough, requests are left out too
needed   edits without which all the others are not enough: if they are enough themselves, they are the answer
else     one edit ─► two ─► a set from which no edit can be left out

Every edit is probed in its weakest form; counts are then raised to the largest that still matches. Smallest: no
request left out, then the fewest edits, then the mildest kinds (edits.Kind), then the least share of what was asked
for, then what the refusal is about, then the order of the request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, groupby
from typing import TYPE_CHECKING, Any

from rainbow.matching.edits import MILD, Edit, Kind, edited, edits_of
from rainbow.matching.verdict import Why

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.verdict import Backend, Reason, Verdict

PROBES = 200  # matches that finding one change may cost
DEAR = 25  # as many of them as one that was searched for in vain until its budget was used up
LARGE = 64  # requests in a job; a match of one with twice as many counts for two more
MOST_PAIRED = 16  # edits that are tried in pairs


@dataclass(frozen=True)
class Change:
    """Edits that together make the request match; `request` is the request with all of them made."""

    edits: tuple[Edit, ...]
    request: Request

    @property
    def text(self) -> str:
        """The change in words."""
        return "; ".join(edit.text for edit in self.edits)

    def document(self) -> dict[str, Any]:
        """Write the change as JSON."""
        return {"text": self.text, "edits": [edit.document() for edit in self.edits]}


class Probes:
    """Asks the backend about edited requests, as often as it may; afterwards every answer is no."""

    def __init__(self, cluster: Cluster, request: Request, backend: Backend, left: int = PROBES) -> None:
        self.cluster, self.request, self.backend, self.left = cluster, request, backend, left

    def match(self, edits: Sequence[Edit]) -> bool:
        """Tell whether the request matches with these edits made."""
        changed = edited(self.request, edits)
        if changed is None or self.left <= 0:
            return False
        verdict = self.backend.match(changed, self.cluster)
        self.left -= cost(changed, verdict)
        return verdict.matched is True

    def raised(self, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
        """Raise every count to the largest that still matches, one after another."""
        for place, edit in enumerate(edits):
            if edit.kind is Kind.COUNT:
                edits = self._largest(edits, place, edit.asked)
        return edits

    def _largest(self, edits: tuple[Edit, ...], place: int, refused: int) -> tuple[Edit, ...]:
        """Double the count while it matches, then halve the gap to the least that is known to be refused."""
        doubling = True
        while refused - edits[place].count > 1:
            low = edits[place].count
            count = min(2 * low, refused - 1) if doubling else (low + refused) // 2
            tried = (*edits[:place], replace(edits[place], count=count), *edits[place + 1 :])
            if self.match(tried):
                edits = tried
            else:
                refused, doubling = count, False
        return edits


def cost(request: Request, verdict: Verdict | None = None) -> int:
    """Return how many probes a match counts for."""
    parts = sum(1 for forest in request.variants for root in forest for _ in root.walk())
    dear = verdict is not None and verdict.reason is not None and verdict.reason.why is Why.UNDECIDED
    return (DEAR if dear else 1) + parts // LARGE


def smallest_change(cluster: Cluster, request: Request, backend: Backend, probes: int = PROBES) -> Change | None:
    """Return the smallest verified change that makes a refused request match; None if none was found."""
    verdict = backend.match(request, cluster)
    if verdict.matched:
        return None
    trial = Probes(cluster, request, backend, probes)
    edits = sorted(edits_of(request), key=lambda edit: _order(edit, verdict.reason, cluster))
    edits = edits[: probes // cost(request)]  # each must be probed at least once
    mild = [edit for edit in edits if edit.kind in MILD]
    found = _smallest(trial, mild) or (_smallest(trial, edits) if len(mild) < len(edits) else None)
    changed = edited(request, found) if found else None
    return Change(found, changed) if found and changed else None


def _smallest(trial: Probes, edits: Sequence[Edit]) -> tuple[Edit, ...] | None:
    made = _together(trial.request, edits)
    all_made = len(made) == len(edits)
    if all_made and not trial.match(made):
        return None
    needed = tuple(edit for edit in made if not trial.match(_but(made, edit))) if all_made else ()
    if needed and trial.match(needed):
        return trial.raised(needed)
    few = [edit for edit in edits[:MOST_PAIRED] if edit not in needed]
    one = _one(trial, edits) if not needed else None
    return one or _two(trial, needed, few) or _several(trial, made)


def _together(request: Request, edits: Sequence[Edit]) -> list[Edit]:
    """Make as many edits as go together, in order: a slot does not lose all that is in it."""
    made: list[Edit] = []
    for edit in edits:
        if edited(request, [*made, edit]) is not None:
            made.append(edit)
    return made


def _but(edits: Sequence[Edit], one: Edit) -> list[Edit]:
    return [edit for edit in edits if edit is not one]


def _order(edit: Edit, reason: Reason | None, cluster: Cluster) -> tuple[Kind, bool, bool]:
    """The mildest first, then what the refusal is about, then what the cluster has none of."""
    return edit.kind, reason is None or edit.of != reason.subject, edit.of in cluster.totals


def _one(trial: Probes, edits: Sequence[Edit]) -> tuple[Edit, ...] | None:
    return _best(trial, ([(edit,) for edit in group] for _, group in groupby(edits, key=lambda edit: edit.kind)))


def _two(trial: Probes, needed: tuple[Edit, ...], others: Sequence[Edit]) -> tuple[Edit, ...] | None:
    """Try the pairs that hold all that is needed."""
    more = combinations(others, max(0, 2 - len(needed))) if len(needed) <= 2 else ()
    pairs = sorted(((*needed, *rest) for rest in more), key=_hurt)
    return _best(trial, (list(group) for _, group in groupby(pairs, key=_hurt)))


def _hurt(edits: Sequence[Edit]) -> list[Kind]:
    return sorted((edit.kind for edit in edits), reverse=True)


def _best(trial: Probes, groups: Iterator[Sequence[tuple[Edit, ...]]]) -> tuple[Edit, ...] | None:
    """Return the least loss within the first group of which anything matches."""
    for group in groups:
        found = [trial.raised(edits) for edits in group if trial.match(edits)]
        if found:
            return min(found, key=lambda edits: sum((edit.lost for edit in edits), Fraction(0)))
    return None


def _several(trial: Probes, made: list[Edit]) -> tuple[Edit, ...] | None:
    """Take edits back one after another, the worst first, while what is left matches."""
    if not trial.match(made):
        return None
    for edit in reversed(list(made)):
        if trial.match(_but(made, edit)):
            made = _but(made, edit)
    return trial.raised(tuple(made))
