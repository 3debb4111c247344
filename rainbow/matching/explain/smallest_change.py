"""The smallest change that would make a refused request match, verified by matching again.

mild     edits that ask for less where it stands; only if all of them are not enough, requests are left out too
needed   edits without which all the others are not enough: every answer holds them
search   best first over sets of edits: those that are about what the last refusal was about, the fewest, the mildest
else     all edits that go together, taken back one after another while what is left matches

Every edit is probed in its weakest form; counts are then raised to the largest that still matches. Smallest: no
request left out, then the fewest edits, then the mildest kinds (edits.Kind), then the least share of what was asked
for, then what the refusal is about, then the order of the request. Once something matches, the search continues for
what is smaller, until nothing smaller is left or the probes are used up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from rainbow.matching.explain.edits import MILD, Edit, Kind, edited, edits_of, names_of
from rainbow.matching.model.budget import FREE, MatchesAll, Meter, OutOfBudgetError
from rainbow.matching.model.verdict import Why

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.model.verdict import Backend, Reason, Verdict


FEW_COUNTS = 32  # halving the gap takes no more matches
PROBES = 200  # matches that finding one change may cost
DEAR = 25  # as many of them as one that was searched for in vain until its budget was used up
LARGE = 64  # requests in a job; a match of one with twice as many counts for two more
RAISING = 40  # probes that are kept for raising counts
MOST_EDITS = 6  # in a set that the search looks at
MOST_SETS = 1_000  # that the search looks at: some leave nothing of the request, and cost no probe

Edits = tuple[Edit, ...]
Rank = tuple[int, int, list[Kind]]  # edits that are not about a refusal, edits, their kinds with the worst first


@dataclass(frozen=True)
class RequestEdit:
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
    """Asks the backend about edited requests, as often and as long as it may; afterwards every answer is no."""

    def __init__(
        self, cluster: Cluster, request: Request, backend: Backend, remaining: int = PROBES, meter: Meter = FREE
    ) -> None:
        self.cluster, self.request, self.backend, self.left, self.meter = cluster, request, backend, remaining, meter

    def ask(self, edits: Sequence[Edit]) -> Verdict | None:
        """Return the verdict on the request with these edits made; None if it is empty, or no probes are left."""
        changed = edited(self.request, edits)
        if changed is None or self.left <= 0:
            return None
        if not self.has_time():
            return None
        verdict = self._verdict(changed)
        self.left -= cost(changed, verdict)
        return verdict

    def has_time(self) -> bool:
        """Return whether the time has not ended; once it has, no probe is left."""
        try:
            self.meter.check()
        except OutOfBudgetError:
            self.left = 0
        return self.left > 0

    def _verdict(self, request: Request) -> Verdict:
        if isinstance(self.backend, MatchesAll):
            return self.backend.match_all(request, [self.cluster], self.meter.probe())[0]
        return self.backend.match(request, self.cluster)

    def match(self, edits: Sequence[Edit]) -> bool:
        """Return whether the request matches with these edits made."""
        verdict = self.ask(edits)
        return verdict is not None and verdict.matched is True

    def raised(self, edits: Edits) -> Edits:
        """Raise every count to the largest that still matches, one after another."""
        for place, edit in enumerate(edits):
            if edit.kind is Kind.COUNT:
                edits = self._largest(edits, place, edit.asked)
        return edits

    def _largest(self, edits: Edits, place: int, refused: int) -> Edits:
        """Ask for what vertices have; double the count while it matches, then halve the gap to what is refused."""
        doubling = True
        if refused > FEW_COUNTS:
            for count in edits[place].likely[::-1]:
                if edits[place].count < count < refused:
                    tried = (*edits[:place], replace(edits[place], count=count), *edits[place + 1 :])
                    if not self.match(tried):
                        refused = count
                        continue
                    edits = tried
                    above = (*edits[:place], replace(edits[place], count=count + 1), *edits[place + 1 :])
                    refused = refused if count + 1 == refused or self.match(above) else count + 1
                    break
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
    dear = verdict is not None and verdict.matched is None
    return (DEAR if dear else 1) + parts // LARGE


def smallest_change(
    cluster: Cluster, request: Request, backend: Backend, probes: int = PROBES, meter: Meter = FREE
) -> RequestEdit | None:
    """Return the smallest verified change that makes a refused request match; None if none was found."""
    if cost(request) > probes:
        return None
    trial = Probes(cluster, request, backend, probes + cost(request), meter)
    verdict = trial.ask(())
    if verdict is None or verdict.matched:
        return None
    edits = sorted(edits_of(request, cluster), key=lambda edit: _order(edit, verdict.reason, cluster))
    edits = edits[: probes // cost(request)]  # each must be probed at least once
    mild = [edit for edit in edits if edit.kind in MILD]
    result = _smallest(trial, mild) or (_smallest(trial, edits) if len(mild) < len(edits) else None)
    changed = edited(request, result) if result else None
    return RequestEdit(tuple(sorted(result, key=_in_words)), changed) if result and changed else None


def _in_words(edit: Edit) -> bool:
    """What is asked of resources first, then needs and constraints."""
    return edit.kind in (Kind.NEED, Kind.CONSTRAINT, Kind.SITE)


def _smallest(trial: Probes, edits: Sequence[Edit]) -> Edits | None:
    made = _together(trial, edits)
    all_made = len(made) == len(edits)
    if all_made and not trial.match(made):
        return None
    needed = tuple(edit for edit in made if not trial.match(_but(made, edit))) if all_made else ()
    if needed and trial.match(needed):
        return trial.raised(needed)
    return _searched(trial, needed, edits) or _several(trial, made)


def _together(trial: Probes, edits: Sequence[Edit]) -> list[Edit]:
    """Make as many edits as go together, in order: a slot does not lose all that is in it."""
    made: list[Edit] = []
    for edit in edits:
        if trial.has_time() and edited(trial.request, [*made, edit]) is not None:
            made.append(edit)
    return made


def _but(edits: Sequence[Edit], one: Edit) -> list[Edit]:
    return [edit for edit in edits if edit is not one]


def _order(edit: Edit, reason: Reason | None, cluster: Cluster) -> tuple[Kind, bool, bool]:
    """The mildest first, then what the refusal is about, then what the cluster has none of."""
    return edit.kind, reason is None or edit.of != reason.subject, edit.of in cluster.totals


# ── the search ──


def _searched(trial: Probes, needed: Edits, edits: Sequence[Edit]) -> Edits | None:
    """Search best first; of what matches return the smallest, of equal ones that with the least loss."""
    about = [names_of(trial.request, edit) for edit in edits]
    start = tuple(place for place, edit in enumerate(edits) if edit in needed)
    heap: list[tuple[Rank, tuple[int, ...]]] = [(_rank(edits, start, 0), start)]
    seen, best = {start}, None
    for _ in range(MOST_SETS):
        if not heap or trial.left <= len(edits) + RAISING:
            break
        rank, places = heappop(heap)
        if best is not None and rank[1:] > best[0]:
            continue
        chosen = tuple(edits[place] for place in places)
        verdict = trial.ask(chosen)
        if verdict is not None and verdict.matched:
            raised = trial.raised(tuple(_without_idle(trial, chosen)))
            results = (_rank(raised, tuple(range(len(raised))), 0)[1:], sum((e.lost for e in raised), Fraction(0)))
            if best is None or results < best[:2]:
                best = (*results, raised)
        elif verdict is not None and len(places) < MOST_EDITS:
            for more, is_about in _next(places, verdict.reason, about):
                if more not in seen:
                    seen.add(more)
                    heappush(heap, (_rank(edits, more, rank[0] + (not is_about)), more))
    return best[2] if best else None


def _rank(edits: Sequence[Edit], places: tuple[int, ...], astray: int) -> Rank:
    return (astray, len(places), sorted((edits[place].kind for place in places), reverse=True))


def _next(
    places: tuple[int, ...], reason: Reason | None, about: Sequence[frozenset[str]]
) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Yield the sets with one more edit, and whether that one is about the refusal."""
    open_ended = reason is None or reason.why in (Why.SIBLINGS_COLLIDE, Why.UNDECIDED)
    subjects = frozenset(reason.subject.split(", ")) if reason else frozenset()
    for place, names in enumerate(about):
        if place not in places:
            yield tuple(sorted((*places, place))), open_ended or not subjects.isdisjoint(names)


def _several(trial: Probes, made: list[Edit]) -> Edits | None:
    """Make all edits, and take back what is not needed."""
    return trial.raised(tuple(_without_idle(trial, made))) if trial.match(made) else None


def _without_idle(trial: Probes, made: Sequence[Edit]) -> Sequence[Edit]:
    """Take edits back one after another, the worst first, while what is left matches."""
    for edit in reversed(list(made)):
        if len(made) > 1 and trial.match(_but(made, edit)):
            made = _but(made, edit)
    return made
