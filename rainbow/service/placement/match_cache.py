"""Remembered matches: the same request against the same clusters has the same answer, whatever their states.

A burst of jobs that ask for the same is matched once. What is remembered is bounded by the number of verdicts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rainbow.cache import LruCache, cached_property
from rainbow.jobspec import Request, parse_jobspec
from rainbow.matching import asks_site, candidates_of, match, names_of, refusals_of, undecided_of, verdict_to_json
from rainbow.selection.variables import matched_values
from rainbow.service.core.counters import phase
from rainbow.service.core.memory import IMMUTABLE, Table
from rainbow.service.jobs.jobspecs import changed_request
from rainbow.service.placement.candidates import MOST_REQUESTORS, DigestedText, own_queues, placeable

if TYPE_CHECKING:
    from rainbow.matching import Verdict
    from rainbow.service.core.service import Service
    from rainbow.service.placement.candidates import ReachableClusters


MOST_VERDICTS = 200_000
MOST_TEXTS = 2_000
LONGEST = 20_000  # characters of a jobspec whose reading is remembered
# candidates and refusals of which a submit says all there is; of the others it says how many they are
MOST_SHOWN = 16


class Match:
    """The verdicts on the clusters of a reach."""

    def __init__(
        self, reach: ReachableClusters, verdicts: Sequence[Verdict], answers: Sequence[Verdict] | None = None
    ) -> None:
        self.reach = reach
        self.verdicts = verdicts  # by which jobs are placed
        self.answers = verdicts if answers is None else answers  # what match says
        self.candidates = candidates_of(verdicts)
        self.refusals = refusals_of(verdicts)
        self.undecided = undecided_of(verdicts)
        self._known: tuple[dict[str, Any], dict[str, int]] | None = None
        self._columns: LruCache[tuple[str, ...], DigestedText] = LruCache(MOST_REQUESTORS)

    @cached_property
    def allowed(self) -> LruCache[str, list[str]]:
        """{requestor: candidates open to them}: of a reach, if all of it are candidates, whatever is asked for."""
        return self.reach.allowed if len(self.candidates) == len(self.reach.entries) else LruCache(MOST_REQUESTORS)

    def verdict(self, name: str) -> Verdict:
        """Return the verdict on a cluster."""
        return self.verdicts[self.reach.places[name]]

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Verdicts by reason: worked out for the first refusals, the others are `refused`."""
        reasons = Counter(str(v.reason.why) if v.reason else "refused" for v in self.refusals[:MOST_SHOWN])
        others = len(self.refusals) - MOST_SHOWN
        results = {
            "matched": len(self.candidates),
            "undecided": len(self.undecided),
            "refused": reasons.pop("refused", 0) + max(0, others),
            **reasons,
        }
        return {verdict: times for verdict, times in results.items() if times}

    @cached_property
    def ids(self) -> Mapping[str, str]:
        """{cluster id: name} of the candidates."""
        if len(self.candidates) == len(self.reach.entries):
            return self.reach.names
        entries, places = self.reach.entries, self.reach.places
        return {entries[places[name]].id: name for name in names_of(self.candidates)}

    def as_decision(self, request: Request, chosen: str | None) -> dict[str, Any]:
        """Say what a submit is answered: the first verdicts and the chosen one, and how many more there are."""
        first, more = self._known or self._told(request)
        candidates, remaining = [*first["candidates"]], len(self.candidates) - len(first["candidates"])
        if chosen is not None and all(one["cluster"] != chosen for one in candidates):
            candidates += verdict_to_json(request, [self.verdict(chosen)])["candidates"]
            remaining -= 1
        more = {"candidates": remaining, **more}
        unknown = self.verdict(chosen).unknown if chosen is not None else ()
        doubts = [f"{chosen}: {text}; placed there all the same" for text in unknown]
        answer = {**first, "candidates": candidates, "warnings": [*request.warnings, *doubts]}
        return {**answer, "more": more} if any(more.values()) else answer

    def _told(self, request: Request) -> tuple[dict[str, Any], dict[str, int]]:
        """Say the first verdicts, and how many more do not match or are undecided: the same for equal jobs.

        What time has cut short may be more the next time.
        """
        first, refused, undecided = (
            verdicts[:MOST_SHOWN] for verdicts in (self.candidates, self.refusals, self.undecided)
        )
        more = {"refusals": len(self.refusals) - len(refused)}
        if self.undecided:
            more["undecided"] = len(self.undecided) - len(undecided)
        answers = verdict_to_json(request, [*first, *refused, *undecided]), more
        if not undecided and all(one.exact for one in first) and all(one.reason for one in refused):
            self._known = answers
        return answers

    @property
    def fits_in_answer(self) -> bool:
        """Return whether what a submit is answered leaves no cluster out."""
        return max(map(len, (self.candidates, self.refusals, self.undecided))) <= MOST_SHOWN

    @cached_property
    def named(self) -> DigestedText:
        """The candidates and refusals by name, as the ledger keeps them."""
        if len(self.candidates) == len(self.reach.entries):
            return self.reach.all_match
        return DigestedText.of(self._named())

    def _named(self) -> dict[str, list[dict[str, str]]]:
        results = {
            "candidates": names_of(self.candidates),
            "refusals": names_of(self.refusals),
            "undecided": names_of(self.undecided),
        }
        return {key: [{"cluster": name} for name in names] for key, names in results.items()}

    def columns(self, read: Sequence[str]) -> DigestedText:
        """What matching found of the candidates, by variable that a decision may read: one value, or one for each."""
        known = self._columns.get(tuple(read))
        return known or self._columns.put(tuple(read), DigestedText.of({name: self._column(name) for name in read}))

    def _column(self, name: str) -> Any:
        values = matched_values(self.candidates, name)
        return values[0] if len(set(values)) == 1 else values

    @cached_property
    def worked_out(self) -> DigestedText:
        """The same, with all there is to say of each candidate: for a selection that has looked at it."""
        candidates = verdict_to_json(Request(((),), ()), self.candidates)["candidates"]
        others = {"refusals": self.refusals, "undecided": self.undecided}
        named = {key: [{"cluster": name} for name in names_of(verdicts)] for key, verdicts in others.items()}
        return DigestedText.of({"candidates": candidates, **named})


@dataclass(frozen=True, slots=True)
class MatchedRequest:
    """A jobspec read, and what it matches."""

    request: Request
    match: Match


# what is asked, of whom, by which backend; whose policies have queues of their own; where a word is unknown
MatchKey = tuple[bytes, "ReachableClusters", str, frozenset[str], str]


class Requests(
    Table[tuple[type, str], Request], name="requests", most=MOST_TEXTS, valid=IMMUTABLE, key="text of a jobspec"
):
    """The last jobspecs, read."""


class Matches(
    Table[MatchKey, Match],
    name="matches",
    most=MOST_VERDICTS,
    valid=IMMUTABLE,
    key="request, reach, backend, queues of policies; most is of verdicts",
):
    """The last matches by what was asked and of whom."""


def find(
    service: Service,
    jobspec: Any,
    reach: ReachableClusters,
    backend: str,
    overrides: Mapping[str, Any] | None = None,
) -> MatchedRequest:
    """Read a jobspec and match it, as far as that is not known; one that time has cut short is not kept."""
    with phase("parse"):
        request = changed_request(_read(service.state(Requests), jobspec), overrides)
    of_sites = reach.has_sites or asks_site(request)
    own, settings, known = own_queues(service, request, reach.entries), service.settings, service.state(Matches)
    key = (request.site_key if of_sites else request.key, reach, backend, own, settings.undecided)
    with phase("match"):
        match_ = known.get(key)
        if match_ is None:
            answers = match(request, reach.clusters, backend, settings.budget(), own)
            match_ = Match(reach, placeable(service, answers), answers)
            if all(one.presumed is not None for one in match_.undecided):
                known.put(key, match_, weight=len(match_.verdicts) + 1)
        return MatchedRequest(request, match_)


def _read(known: Requests, jobspec: Any) -> Request:
    text = json.dumps(jobspec, default=repr)
    key = (type(jobspec), text)
    request = known.get(key) or parse_jobspec(jobspec)
    return known.put(key, request) if len(text) <= LONGEST else request
